//! An array for bdevperf, in SPDK's JSON: the methods that its application calls first.

use serde_json::{Value, json};

use crate::driver::{Kind, Plan};

pub(super) const ARRAY: &str = "Array";
const BLOCK_BYTES: u64 = 512;

fn member(slot: u16) -> String {
    format!("Member{slot}")
}

pub(super) fn members_mib(plan: &Plan) -> u64 {
    match plan.kind {
        Kind::Memory => {
            (u64::from(plan.slots) * plan.member_sectors * BLOCK_BYTES).div_ceil(1 << 20)
        }
        Kind::Null => 0,
    }
}

/// The configuration: the members, the array (perhaps without one member), and an optional limit of
/// requests a second.
pub(super) fn text(plan: &Plan, rate: Option<u32>) -> String {
    let create = match plan.kind {
        Kind::Memory => "bdev_malloc_create",
        Kind::Null => "bdev_null_create",
    };
    let mut calls: Vec<Value> = (0..plan.slots)
        .map(|slot| {
            json!({"method": create, "params": {
                "name": member(slot),
                "num_blocks": plan.member_sectors,
                "block_size": BLOCK_BYTES,
            }})
        })
        .collect();
    calls.push(json!({"method": "bdev_raid_create", "params": {
        "name": ARRAY,
        "raid_level": "raid5f",
        "strip_size_kb": plan.chunk_sectors / 2,
        "base_bdevs": (0..plan.slots).map(member).collect::<Vec<_>>(),
    }}));
    calls.push(json!({"method": "bdev_wait_for_examine"}));
    if let Some(slot) = plan.missing {
        let params = json!({"name": member(slot)});
        calls.push(json!({"method": "bdev_raid_remove_base_bdev", "params": params}));
    }
    if let Some(rate) = rate {
        let params = json!({"name": ARRAY, "rw_ios_per_sec": rate});
        calls.push(json!({"method": "bdev_set_qos_limit", "params": params}));
    }
    json!({"subsystems": [{"subsystem": "bdev", "config": calls}]}).to_string()
}

#[cfg(test)]
mod tests {
    use braid_engine::Tuning;

    use super::*;

    #[test]
    fn the_array_is_that_of_the_plan() {
        let plan = Plan {
            kind: Kind::Null,
            slots: 4,
            chunk_sectors: 128,
            member_sectors: 4096,
            missing: Some(2),
            tuning: Tuning::default(),
            payloads: 1,
            payload_sectors: 8,
        };
        let config: Value = serde_json::from_str(&text(&plan, Some(9000))).expect("JSON");
        let calls = config["subsystems"][0]["config"].as_array().expect("calls");
        let named = |name: &str| -> Vec<&Value> {
            calls.iter().filter(|call| call["method"] == name).map(|call| &call["params"]).collect()
        };
        assert_eq!(named("bdev_null_create").len(), 4);
        assert_eq!(named("bdev_raid_create")[0]["strip_size_kb"], 64);
        assert_eq!(named("bdev_raid_create")[0]["base_bdevs"][3], "Member3");
        assert_eq!(named("bdev_raid_remove_base_bdev")[0]["name"], "Member2");
        assert_eq!(named("bdev_set_qos_limit")[0]["rw_ios_per_sec"], 9000);
        assert!(!text(&plan, None).contains("qos"));
        assert_eq!(members_mib(&plan), 0);
        assert_eq!(members_mib(&Plan { kind: Kind::Memory, ..plan }), 8);
    }
}
