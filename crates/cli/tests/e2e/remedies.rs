//! Remedies typed unchanged, without a served array: of `create`, of `serve`, and for the machine.
//!
//! `remedies_served` covers the refusals of a running array. The kit tries each remedy that only
//! reads, in every test where braid refuses (`kit/remedies.rs`). This file covers three kinds of
//! other remedies: those that change or destroy, those with a blank for the operator, and those of
//! refusals in no other test.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::kit::{
    Array, Background, Client, FLOCK, Fail, FaultFs, FileOp, Mount, Need, RAID_0, RAID_1, RAID_5,
    Ran, SUPERBLOCK_BYTES, needs, note, offered, ok, run, skip, wait_until,
};
use crate::members::{MEMBER_BYTES, blank, text};

const PATIENCE: Duration = Duration::from_secs(30);

/// Offset of the features in a superblock 1.x; the constants below are offsets of other fields.
const FEATURES_AT: usize = 8;
const CHUNK_AT: usize = 88;
const BITMAP_AT: usize = 96;
const EVENTS_AT: usize = 200;
const RESYNC_AT: usize = 208;
const ROLES_AT: usize = 220;
const TABLE_AT: usize = 256;

#[track_caller]
pub(crate) fn error_of(ran: &Ran) -> Value {
    assert!(!ran.status.success(), "it was not refused: {ran:?}");
    let last = ran.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[track_caller]
pub(crate) fn refusal(array: &Array, words: &[&str], members: &[PathBuf]) -> Value {
    error_of(&array.braid(words, members))
}

fn blanks(array: &Array, prefix: &str, count: usize) -> Vec<PathBuf> {
    (0..count).map(|index| blank(array, &format!("{prefix}{index}"), MEMBER_BYTES)).collect()
}

pub(crate) fn words_of(members: &[PathBuf]) -> String {
    members.iter().map(|member| text(member)).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_served(array: &Array, members: &[PathBuf]) {
    let ran = array.braid(&["serve", "--run", "true"], members);
    assert!(ran.status.success(), "{ran:?}");
}

/// A path in `/tmp`, like those in the examples that braid prints, and used by no other test.
fn in_tmp(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("/tmp/braid-e2e-{}-{number}-{name}", std::process::id())
}

#[test]
fn words_that_mean_nothing_are_refused_with_a_command_that_makes_the_array() {
    let array = Array::create(RAID_1);
    for (index, (label, words)) in [
        ("Did you mean", &["--level", "7"][..]),
        ("Did you mean", &["--level", "5", "--layout", "left-symetric"]),
        ("Leave --layout out", &["--level", "1", "--layout", "n2"]),
        ("Leave --consistency out", &["--level", "0", "--consistency", "bitmap"]),
        ("Instead", &["--level", "1", "--consistency", "bitmaps"]),
        ("Instead", &["--level", "6", "--consistency", "ppl"]),
        ("Instead", &["--level", "1", "--consistency", "log"]),
        ("Instead", &["--level", "5", "--consistency", "log", "--metadata", "1.0"]),
        ("Instead", &["--level", "5", "--consistency", "llbitmap", "--metadata", "1.0"]),
        ("Instead", &["--level", "1", "--bitmap-chunk", "3K"]),
        ("Instead", &["--level", "1", "--chunk", "64K"]),
        ("Instead", &["--level", "5", "--chunk", "96K"]),
        ("Instead", &["--level", "0", "--chunk", "6K"]),
        ("Instead", &["--level", "5", "--chunk", "8E"]),
        ("Instead", &["--level", "1", "--metadata", "0.90"]),
    ]
    .into_iter()
    .enumerate()
    {
        let members = blanks(&array, &format!("{index}-"), 4);
        let error = refusal(&array, &[&["create", "new"][..], words].concat(), &members);
        array.follow(&error, label);
        assert_served(&array, &members);
    }
    // This remedy is an option to use in the command line, not a command.
    let members = blanks(&array, "part", 4);
    let words = ["create", "new", "--level", "5", "--chunk"];
    let error = refusal(&array, &[&words[..], &["64"]].concat(), &members);
    let part = offered(&error, "Write");
    let better = part.strip_prefix("--chunk ").expect("the option that was given");
    let ran = array.braid(&[&words[..], &[better]].concat(), &members);
    assert!(ran.status.success(), "{part}: {ran:?}");
    note("Write");
    assert_served(&array, &members);
}

#[test]
fn members_that_are_not_there_are_refused_with_a_command_that_makes_them() {
    let array = Array::create(RAID_1);
    let here = blanks(&array, "here", 4);
    let absent = array.path("absent");
    let members = [here[0].clone(), absent.clone()];
    let error = refusal(&array, &["create", "new", "--level", "1"], &members);
    array.follow(&error, "Make it as a file");
    assert!(absent.is_file());
    assert_served(&array, &members);
    // The members' folder does not exist either.
    let deep = [array.path("deep/down/m0"), array.path("deep/down/m1")];
    let words = ["create", "new", "--level", "1", "--member-size", "16M"];
    let error = refusal(&array, &words, &deep);
    array.follow(&error, "Make the folder");
    let ran = array.braid(&words, &deep);
    assert!(ran.status.success(), "{ran:?}");
    assert_served(&array, &deep);
    // Remedies without a command are noted by the kit.
    let missing = PathBuf::from("missing");
    let members = [here[1].clone(), missing.clone(), missing.clone()];
    let error = refusal(&array, &["create", "new", "--level", "5"], &members);
    assert_eq!(error["code"], "B030", "{error}");
    let members = [here[1].clone(), here[2].clone(), here[3].clone(), missing];
    let error = refusal(&array, &["create", "new", "--level", "6"], &members);
    array.follow(&error, "Make it match: zero the members");
    assert_served(&array, &members[..3]);
}

#[test]
fn what_is_on_members_is_refused_with_commands_that_serve_it_or_write_over_it() {
    let (one, other) = (Array::create(RAID_1), Array::create(RAID_1));
    // Both arrays are called tank.
    let members = [one.members[0].clone(), other.members[0].clone()];
    let words = ["create", "new", "--level", "1"];
    let error = refusal(&one, &words, &one.members);
    one.follow(&error, "Serve the existing array");
    let error = refusal(&one, &[&words[..], &["--destroy", "tank"]].concat(), &members);
    one.follow(&error, "To destroy all of them, name each");
    assert_served(&one, &members);
    let error = refusal(&one, &words, &members);
    one.follow(&error, "To destroy it, name it");
    assert_served(&one, &members);
    let fresh = blanks(&one, "fresh", 2);
    let error = refusal(&one, &[&words[..], &["--destroy", "photos"]].concat(), &fresh);
    one.follow(&error, "Create without it");
    assert_served(&one, &fresh);
}

#[test]
fn a_state_folder_that_is_none_is_refused_and_another_one_is_taken() {
    let array = Array::create(RAID_1);
    let _ = std::fs::remove_dir_all(array.path("state"));
    std::fs::write(array.path("state"), "").expect("a file");
    let create = "braid --json create new --level 1 --destroy tank m0 m1";
    let error = error_of(&array.type_line(create));
    assert_eq!(error["code"], "B080", "{error}");
    let label = "Save them elsewhere: add";
    let option = offered(&error, label).replace("FOLDER", "elsewhere");
    let ran = array.type_line(&format!("{create} {option}"));
    assert!(ran.status.success(), "{ran:?}");
    note(label);
    assert!(array.path("elsewhere/undo").is_dir());
    // A folder whose histories cannot be read is refused as well.
    let broken = array.path("broken");
    std::fs::create_dir(&broken).expect("a folder");
    std::fs::write(broken.join("arrays"), "").expect("a file");
    let line = ["--json", "--state-dir", text(&broken), "history"];
    let error = error_of(&array.run_braid(line.map(str::to_owned).to_vec()));
    assert_eq!(offered(&error, "See who may"), format!("ls -lR {}", text(&broken)));
}

#[test]
fn a_place_that_cannot_be_served_at_is_refused_with_one_that_can() {
    let array = Array::create(RAID_1);
    let precious = array.path("precious");
    std::fs::write(&precious, "text").expect("a file");
    let members = words_of(&array.members);
    let uri = |name: &str| format!("nbd+unix:///{name}?socket={}", text(&array.path("x.sock")));
    let at = format!("nbd+unix:///?socket={}", text(&precious));
    for (option, value, label, place) in [
        ("--nbd", "nbd+unix:///", "Serve on a Unix socket", "/tmp/braid.sock"),
        ("--nbd", &uri("photos"), "Serve it under its own name", "/tmp/braid.sock"),
        ("--nbd", &at, "Serve somewhere else", "/tmp/other.sock"),
        ("--control", text(&precious), "Name another place", "/tmp/other.control"),
    ] {
        let error = refusal(&array, &["serve", option, value], &array.members);
        let chosen = [(place, &*in_tmp("socket")), ("MEMBER...", &members)];
        array.follow_with(&error, label, &chosen);
    }
    assert_eq!(std::fs::read(&precious).expect("a file"), b"text");
    // The runtime folder is the operator's own, but open to others.
    std::fs::create_dir_all(array.runtime()).expect("a folder");
    std::fs::set_permissions(array.runtime(), Permissions::from_mode(0o755)).expect("ours");
    let error = refusal(&array, &["serve"], &array.members);
    assert_eq!(error["code"], "B071", "{error}");
    let folder = in_tmp("folder");
    let chosen = [("/tmp/braid", &*folder), ("MEMBER...", &members)];
    array.follow_with(&error, "Name another place", &chosen);
}

#[test]
fn metrics_and_hooks_that_go_nowhere_are_refused_with_what_they_look_like() {
    let array = Array::create(RAID_1);
    let members = words_of(&array.members);
    let public = ["serve", "--metrics", "0.0.0.0:0"];
    for (words, label, place, chosen) in [
        (public, "Serve them on this machine", "127.0.0.1:9101", "127.0.0.1:0"),
        (public, "Let other machines read them", "0.0.0.0:9101", "0.0.0.0:0"),
        // No server listens at the webhook's address; braid reports this, and the array is served.
        (
            ["serve", "--webhook", "ftp://host/"],
            "Like this",
            "https://hooks.example.org/braid",
            "https://127.0.0.1:1/",
        ),
        (
            ["serve", "--mail", "a@b\nBcc: c"],
            "Like this",
            "root@localhost",
            "root@localhost --sendmail true",
        ),
    ] {
        let error = refusal(&array, &words, &array.members);
        array.follow_with(&error, label, &[(place, chosen), ("MEMBER...", &members)]);
    }
}

#[test]
fn a_socket_that_was_passed_on_for_nothing_is_refused_with_how_to_see_its_unit() {
    let array = Array::create(RAID_1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(array.command_line(&["serve"], &array.members));
    command.envs([("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", "photos")]);
    let error = error_of(&Background::spawn_command(command, "").wait());
    assert_eq!(error["code"], "B009", "{error}");
    offered(&error, "See the socket unit (FileDescriptorName=)");
}

#[test]
fn a_dirty_array_without_a_member_is_served_by_the_commands_that_accept_it() {
    let array = Array::create_with("tank", RAID_5, "16M", &["--consistency", "resync"]);
    for slot in 0..RAID_5.members {
        array.patch_superblock(slot, RESYNC_AT, &0_u64.to_le_bytes(), true);
    }
    let error = refusal(&array, &["serve"], &array.without(&[2]));
    assert_eq!(error["code"], "B031", "{error}");
    array.follow(&error, "Read it; data at risk is an I/O error");
    array.follow(&error, "Look, although some data may be wrong");
    array.follow(&error, "Accept the risk");
}

#[test]
fn members_put_back_on_purpose_are_gone_on_from_by_the_command_that_says_so() {
    let array = Array::create(RAID_5);
    array.serve().stop();
    let old: Vec<Vec<u8>> =
        array.members.iter().map(|path| std::fs::read(path).expect("a member")).collect();
    let served = array.serve();
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &[7; 4096]);
    client.flush();
    drop(client);
    served.stop();
    for (path, old) in array.members.iter().zip(old) {
        std::fs::write(path, old).expect("a member");
    }
    let error = refusal(&array, &["serve"], &array.members);
    assert_eq!(error["code"], "B038", "{error}");
    array.follow(&error, "If they were restored on purpose, go on from them");
    assert_served(&array, &array.members);
}

/// A superblock of several sectors was torn while it recorded that the other member had failed.
#[test]
fn a_damaged_member_that_may_be_the_newest_is_left_out_by_the_command_that_says_so() {
    const ROLES: u32 = 200;
    let array = Array::create(RAID_1);
    for slot in 0..RAID_1.members {
        let unused = vec![0xff; (ROLES as usize - RAID_1.members) * 2];
        array.patch_superblock(slot, TABLE_AT + RAID_1.members * 2, &unused, false);
        array.patch_superblock(slot, ROLES_AT, &ROLES.to_le_bytes(), true);
        assert!(array.checksum_is_right(slot));
    }
    let mut events = [0; 8];
    let file = File::open(&array.members[0]).expect("a member");
    file.read_exact_at(&mut events, SUPERBLOCK_BYTES + EVENTS_AT as u64).expect("its events");
    let newer = (u64::from_le_bytes(events) + 2).to_le_bytes();
    array.patch_superblock(0, EVENTS_AT, &newer, false);
    let error = refusal(&array, &["serve"], &array.members);
    assert_eq!(error["code"], "B037", "{error}");
    array.follow(&error, "Go on from the intact ones, without their missed writes");
    assert_served(&array, &array.members[1..]);
}

#[test]
fn an_array_that_is_not_understood_is_looked_at_by_the_commands_that_are_offered() {
    // The superblocks have an unknown feature.
    let array = Array::create(RAID_1);
    for slot in 0..RAID_1.members {
        array.patch_superblock(slot, FEATURES_AT, &(1_u32 << 30).to_le_bytes(), true);
    }
    let error = refusal(&array, &["serve"], &array.members);
    assert_eq!(error["code"], "B023", "{error}");
    offered(&error, "See what it says");
    // The bitmap would overlap the data: it is ignored, and the array is read-only.
    let array = Array::create(RAID_1);
    for slot in 0..RAID_1.members {
        array.patch_superblock(slot, BITMAP_AT, &4096_u32.to_le_bytes(), true);
        array.patch_superblock(slot, FEATURES_AT, &1_u32.to_le_bytes(), true);
    }
    let error = refusal(&array, &["serve"], &array.members);
    array.follow(&error, "Read it");
    // One member describes the array differently.
    let array = Array::create(RAID_5);
    array.patch_superblock(1, CHUNK_AT, &256_u32.to_le_bytes(), true);
    let error = refusal(&array, &["serve"], &array.members);
    array.follow(&error, "Look without it");
}

#[test]
fn a_member_that_cannot_be_locked_is_copied_to_where_it_can() {
    needs!("findmnt");
    let array = Array::create(RAID_1);
    // The `flock` system call fails with EOPNOTSUPP.
    let Some(ran) = array.braid_denied((FLOCK, 95), &["serve", "--run", "true"]) else { return };
    let error = error_of(&ran);
    array.follow(&error, "See what it is on");
    let elsewhere = array.path("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    let chosen = [("/var/tmp/", text(&elsewhere))];
    array.follow_with(&error, "Copy it to a file system with locks", &chosen);
    assert_served(&array, &[elsewhere.join("m0"), array.members[1].clone()]);
}

#[test]
fn a_limit_that_is_too_low_is_seen_by_the_commands_that_are_offered() {
    let array = Array::create(RAID_1);
    let serve =
        |limits: &str| array.braid_after(limits, &["serve", "--run", "true"], &array.members);
    // Below some memory limit the dynamic linker fails, and right above this limit Rust's runtime
    // cannot report its own failure (at 24 MB, with this program).
    let refused = |limits: &str, label: &str| {
        let ran = serve(limits);
        let error = (!ran.status.success() && !ran.stdout.is_empty()).then(|| error_of(&ran));
        error.filter(|error| error.to_string().contains(label))
    };
    let label = "See what a process may have";
    let error =
        (5..30).find_map(|step| refused(&format!("ulimit -v {}", step * 4000 + 600), label));
    array.follow(&error.expect("some limit is too low"), label);
    let label = "See the highest allowed limit";
    let mut limits = (5..24).map(|limit| (limit, format!("ulimit -n {limit}")));
    let low = limits.find_map(|(limit, words)| Some((limit, refused(&words, label)?, words)));
    let (limit, error, words) = low.expect("some limit is too low");
    // Types the remedy under the same limit as braid.
    let seen = array.type_line(&format!("{words}; {}", offered(&error, label)));
    assert_eq!(seen.stdout.trim(), limit.to_string(), "{seen:?}");
    note(label);
}

#[test]
fn a_member_that_cannot_be_read_is_refused_with_where_the_kernel_speaks_of_it() {
    let array = Array::create(RAID_1);
    let Some(files) = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten() else {
        return skip(Need::Fuse, "no FUSE can be mounted here");
    };
    files.fail(0, Fail { file_op: FileOp::Read, bytes: 0..u64::MAX, errno: 5 });
    let error = refusal(&array, &["serve"], &files.files()[..1]);
    assert_eq!(error["code"], "B055", "{error}");
    offered(&error, "See what the kernel says");
}

/// A loop device over a file, detached on drop.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let ran = run("losetup", ["--find", "--show", text(file)]);
        if !ran.status.success() {
            skip(Need::LoopDevices, "no loop device can be attached here");
            return None;
        }
        Some(Self(PathBuf::from(ran.stdout.trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The device may be unmounted and detached already.
        let _ = run("umount", [&self.0]);
        let _ = run("losetup", ["--detach".as_ref(), self.0.as_os_str()]);
    }
}

#[test]
fn a_member_that_is_attached_mounted_or_held_is_freed_by_the_command_that_is_offered() {
    needs!("losetup", "mke2fs", "mount", "umount", "lsblk");
    let array = Array::create(RAID_1);
    let Some(device) = Loop::over(&array.members[0]) else { return };
    let error = refusal(&array, &["serve"], &array.members);
    assert_eq!(error["code"], "B060", "{error}");
    array.follow(&error, "Detach it");
    assert_served(&array, &array.members);
    drop(device);
    // The disk that is to become a member has a mounted file system.
    let disk = blank(&array, "disk", MEMBER_BYTES);
    ok("mke2fs", ["-q", text(&disk)]);
    let Some(device) = Loop::over(&disk) else { return };
    let folder = array.path("mounted");
    std::fs::create_dir(&folder).expect("a folder");
    if !run("mount", [&device.0, &folder]).status.success() {
        return skip(Need::LoopDevices, "no file system can be mounted here");
    }
    let words = ["create", "new", "--level", "1"];
    let other = blank(&array, "other", MEMBER_BYTES);
    let members = [device.0.clone(), other];
    let error = refusal(&array, &words, &members);
    assert_eq!(error["code"], "B060", "{error}");
    array.follow(&error, "Unmount it");
    // The disk is unmounted: now braid sees its contents.
    let error = refusal(&array, &words, &members);
    assert_eq!(error["code"], "B012", "{error}");
    // Another process has the disk open exclusively, and the kernel does not say which process.
    let alone = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), alone);
    let held = options.open(&device.0).expect("nobody else has it");
    let error = refusal(&array, &words, &members);
    assert_eq!(error["code"], "B060", "{error}");
    array.follow(&error, "See who");
    drop(held);
}

/// Runs braid as an unprivileged user.
fn as_another(array: &Array, words: &[&str], members: &[PathBuf]) -> Option<Ran> {
    if !rustix::process::geteuid().is_root() {
        skip(Need::Other, "only root becomes another user");
        return None;
    }
    let line = array.command_line(words, members).join(" ");
    let braid = env!("CARGO_BIN_EXE_braid");
    Some(array.type_line(&format!("setpriv --inh-caps=-all --bounding-set=-all {braid} {line}")))
}

#[test]
fn what_this_user_may_not_open_is_refused_with_how_to_see_who_may() {
    needs!("setpriv");
    let array = Array::create(RAID_1);
    std::fs::set_permissions(&array.members[0], Permissions::from_mode(0o000)).expect("ours");
    let Some(ran) = as_another(&array, &["serve"], &array.members) else { return };
    let error = error_of(&ran);
    assert_eq!(error["code"], "B054", "{error}");
    array.follow(&error, "See who may");
    std::fs::set_permissions(&array.members[0], Permissions::from_mode(0o600)).expect("ours");
    let served = array.serve();
    let control = array.path("run/tank.control");
    std::fs::set_permissions(&control, Permissions::from_mode(0o000)).expect("ours");
    let Some(ran) = as_another(&array, &["status", text(&control)], &[]) else { return };
    let listed = array.follow(&error_of(&ran), "Whose it is");
    assert!(listed.stdout.starts_with("s---------"), "{listed:?}");
    served.stop();
}

/// The remedy is tried with and without the folder `/dev/disk/by-id`, independent of this machine.
#[test]
fn a_member_that_is_not_there_is_looked_for_among_disks() {
    needs!("unshare", "lsblk");
    let array = Array::create(RAID_0);
    let braid = env!("CARGO_BIN_EXE_braid");
    for (folder, label) in
        [("/dev/disk/by-id", "Names that do not change"), ("/dev/nothing", "See the disks")]
    {
        let setup = format!(
            "mount -t tmpfs tmpfs /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9 \
             && mkdir -p {folder} || exit 77"
        );
        let among = |line: &str| {
            let script = format!("{setup}; {line}");
            array.type_line(&format!("unshare --mount sh -c '{script}'"))
        };
        let ran = among(&format!("{braid} --json examine /nowhere/at/all"));
        if !ran.status.success() && ran.stdout.is_empty() {
            return skip(Need::Other, "no folder of devices can be mounted here");
        }
        let command = offered(&error_of(&ran), label);
        // The machine may have no disks.
        let ran = among(&command);
        assert!(ran.status.code().is_some_and(|code| code <= 1), "{command}: {ran:?}");
        note(label);
    }
}

/// Waits for a demo's folder until its members have content.
fn demo_folder(folder: &Path) -> PathBuf {
    let mut found = None;
    wait_until("the demo to write", PATIENCE, || {
        let mut entries = std::fs::read_dir(folder).expect("a folder").flatten();
        found = entries
            .find_map(|one| Some(one.path()).filter(|path| path.join("kept/disk1").exists()));
        found.is_some()
    });
    found.expect("just seen")
}

#[test]
fn a_demo_that_fails_is_played_again_or_looked_at_by_the_command_that_is_offered() {
    let array = Array::create(RAID_1);
    let error = refusal(&array, &["demo", "--size", "1M"], &[]);
    array.follow(&error, "Leave it out");
    let folder = array.path("demo");
    std::fs::create_dir(&folder).expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(["--json", "demo", "--size", "8M"]).env("TMPDIR", &folder);
    let demo = Background::spawn_command(command, "");
    let kept = demo_folder(&folder);
    // Clients no longer write the image, of which a part is at this offset of the first member.
    let disk = OpenOptions::new().write(true).open(kept.join("disk0"));
    disk.and_then(|disk| disk.write_all_at(&vec![0x3c; 2 << 20], 2 << 20)).expect("a member");
    let looked = array.follow(&error_of(&demo.wait()), "Look at them");
    assert!(looked.stdout.contains("demo"), "{looked:?}");
}
