//! Refusals of the operating system are reported as such, and never as a fault of a member.

use crate::kit::{Array, FLOCK, RAID_5, Ran};

fn error(ran: &Ran) -> (serde_json::Value, Option<i32>) {
    let last = ran.stdout.lines().last().unwrap_or_default();
    let error = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    (error, ran.status.code())
}

#[test]
fn a_lock_that_cannot_be_had_is_told_with_its_cause_and_is_no_missing_superblock() {
    let array = Array::create(RAID_5);
    // The errors ENOLCK, EPERM, EACCES and EOPNOTSUPP.
    for errno in [37, 1, 13, 95] {
        let Some(ran) = array.braid_denied((FLOCK, errno), &["serve", "--run", "true"]) else {
            return;
        };
        let (error, status) = error(&ran);
        assert_eq!((error["code"].as_str(), status), (Some("B062"), Some(1)), "{error}");
        let cause = error["cause"].as_str().expect("a text");
        assert!(cause.contains("lock"), "{error}");
        let member = array.members[0].display().to_string();
        for remedy in error["remedies"].as_array().expect("remedies") {
            let command = remedy["command"].as_str().expect("a text");
            assert!(command.contains(&member), "it cannot be typed as it stands: {command}");
        }
    }
}

#[test]
fn out_of_descriptors_at_start_is_not_a_member_less() {
    let array = Array::create(RAID_5);
    let mut refused = 0;
    for limit in 5..24 {
        let ran = array.braid_after(
            &format!("ulimit -n {limit}"),
            &["serve", "--run", "true"],
            &array.members,
        );
        let assembled = ran.stdout.lines().find(|line| line.contains("\"assembled\""));
        if let Some(assembled) = assembled {
            assert!(assembled.contains("\"degraded_slots\":0"), "{limit}: {ran:?}");
        }
        // Below some memory limit the dynamic linker fails.
        if !ran.status.success() && !ran.stdout.is_empty() {
            let (error, status) = error(&ran);
            assert_eq!(
                (error["code"].as_str(), status),
                (Some("B076"), Some(1)),
                "{limit}: {ran:?}"
            );
            refused += 1;
        }
    }
    assert!(refused > 3, "no limit was too low");
}

#[test]
fn out_of_memory_at_start_is_not_members_lost() {
    let array = Array::create(RAID_5);
    let ran = array.braid_denied((FLOCK, 12), &["serve", "--run", "true"]);
    let short = array.braid_after("ulimit -v 60000", &["serve", "--run", "true"], &array.members);
    for ran in ran.iter().chain([&short]) {
        let (error, status) = error(ran);
        assert_eq!((error["code"].as_str(), status), (Some("B076"), Some(1)), "{ran:?}");
        assert!(error.to_string().contains("allocate memory"), "{error}");
    }
}
