//! Write-mostly members of a mirror: reads avoid them while another member has a copy.

use serde_json::Value;

use crate::control::{json, said, status};
use crate::jobs::done;
use crate::kit::{Array, RAID_1, RAID_5};

fn marked(array: &Array) -> Vec<bool> {
    let examined = json(&array.braid(&["examine"], &array.members));
    let members = examined["members"].as_array().expect("a list").clone();
    let flag = |member: &Value| {
        let text = member.to_string();
        assert!(text.contains("\"write_mostly\""), "{text}");
        text.contains("\"write_mostly\":true")
    };
    members.iter().map(flag).collect()
}

/// Regression: md keeps reads from a slow disk if a fast disk has a copy; braid had no setting for
/// slow disks.
#[test]
fn a_write_mostly_member_is_shown_and_set_and_stays_so() {
    let array = Array::create(RAID_1);
    let served = array.serve();
    done(&array, &["set", "tank", "write-mostly=1"]);
    let slots = status(&array, "tank")["slots"].clone();
    assert_eq!(
        (&slots[0]["write_mostly"], &slots[1]["write_mostly"]),
        (&false.into(), &true.into())
    );
    let shown = said(&array, &["status", "tank"]).stdout;
    assert!(shown.contains("ok, write-mostly"), "{shown}");
    served.stop();
    assert_eq!(marked(&array), [false, true]);
    let served = array.serve();
    assert_eq!(status(&array, "tank")["slots"][1]["write_mostly"], true, "it stays so");
    done(&array, &["set", "tank", "write-mostly=none"]);
    served.stop();
    assert_eq!(marked(&array), [false, false]);
}

#[test]
fn write_mostly_is_for_copies() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    let ran = array.braid(&["set", "tank", "write-mostly=1"], &[]);
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    served.stop();
}
