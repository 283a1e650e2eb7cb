//! Each failure to open a member has its code; all reads stay within the member.

use std::path::PathBuf;

use braid_member::{FileKind, Holder, Member, MemberError, MemoryMember, OpenError};

use super::{io_error, open_error, probe_member};
use braid_console::error::Risk;
use braid_console::error::code::Code;

fn path() -> PathBuf {
    PathBuf::from("/dev/sd b")
}

fn busy(holder: Holder) -> OpenError {
    OpenError::Busy { path: path(), holder }
}

#[test]
fn every_way_in_which_opening_fails_has_a_code_and_a_safe_way_out() {
    let held = || "sdb".to_string();
    let cases = [
        (OpenError::Missing { path: path() }, Code::MemberMissing),
        (OpenError::DanglingLink { path: path() }, Code::MemberMissing),
        (OpenError::PermissionDenied { path: path() }, Code::MemberPermission),
        (OpenError::ReadOnlyMedium { path: path() }, Code::MemberPermission),
        (OpenError::NotAMember { path: path(), kind: FileKind::Fifo }, Code::MemberKind),
        (
            OpenError::TooSmall { path: path(), size_bytes: 1, minimum_bytes: 2 },
            Code::MemberTooSmall,
        ),
        (OpenError::AlreadyExists { path: path() }, Code::HoldsData),
        (OpenError::Replaced { path: path() }, Code::System),
        (OpenError::Unlockable { path: path(), errno: 37 }, Code::MemberUnlockable),
        (OpenError::Reserved { path: path(), reason: String::new() }, Code::OwnedElsewhere),
        (OpenError::System { path: path(), call: "open", errno: 12 }, Code::Shortage),
        (OpenError::System { path: path(), call: "open", errno: 24 }, Code::Shortage),
        (OpenError::System { path: path(), call: "open", errno: 40 }, Code::System),
        (OpenError::System { path: path(), call: "open", errno: 5 }, Code::MemberIo),
        (busy(Holder::Device { held: held(), holder: "dm-3".to_string() }), Code::MemberBusy),
        (busy(Holder::Swap { held: held() }), Code::MemberBusy),
        (busy(Holder::Unknown), Code::MemberBusy),
        (busy(Holder::Lock { process_id: Some(7), command: None }), Code::MemberLocked),
        (busy(Holder::Lock { process_id: None, command: None }), Code::MemberLocked),
    ];
    for (error, code) in cases {
        let told = open_error(&error);
        assert_eq!(told.code(), code, "{error}");
        assert_ne!(told.remedies()[0].risk, Risk::Destroy, "{error}");
        assert_eq!(told.to_json()["subject"], "/dev/sd b");
        let quoted = |command: &str| !command.contains("sd b") || command.contains("'/dev/sd b'");
        assert!(told.remedies().iter().all(|remedy| quoted(&remedy.command)), "{told:?}");
    }
}

#[test]
fn a_holder_is_named_with_what_lets_go_of_it() {
    let cases = [
        (
            Holder::KernelArray { held: "sdb".to_string(), array: "md127".to_string() },
            "mdadm --stop /dev/md127",
        ),
        (
            Holder::Device { held: "sdb".to_string(), holder: "md5".to_string() },
            "mdadm --stop /dev/md5",
        ),
        (
            Holder::Mount { held: "sdb".to_string(), mounted_at: PathBuf::from("/a b") },
            "umount '/a b'",
        ),
        (
            Holder::LoopDevice { name: "loop3".to_string(), user: None },
            "losetup --detach /dev/loop3",
        ),
        (Holder::Swap { held: "sdb2".to_string() }, "swapoff /dev/sdb2"),
    ];
    for (holder, command) in cases {
        let remedies = open_error(&busy(holder)).remedies();
        assert!(remedies.iter().any(|remedy| remedy.command == command), "{remedies:?}");
    }
}

#[test]
fn a_blank_member_is_blank_and_different_from_another() {
    let (one, two) = (MemoryMember::new(1 << 20), MemoryMember::new(1 << 20));
    let probed = |member: &dyn Member| probe_member(member, "m").expect("readable");
    assert!(probed(&one).probe.is_blank());
    assert_eq!(probed(&one).identity, probed(&one).identity);
    assert_ne!(probed(&one).identity, probed(&two).identity);
}

#[test]
fn an_io_error_says_which_member_and_why() {
    let error = io_error("c", "zeroing", &MemberError::OutOfSpace { errno: 28 });
    assert_eq!(error.code(), Code::MemberIo);
    assert_eq!(error.to_string(), "B055: zeroing c failed");
    assert!(error.to_json()["cause"].to_string().contains("no space"));
}
