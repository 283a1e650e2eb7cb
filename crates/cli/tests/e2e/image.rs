//! Failing disks: copied as far as they can be read (`braid image`). `braid rescue` computes a
//! copy's gaps from the other members, or reports them (`--fill`, `--lost` and `--check`).

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::kit::{
    Array, Client, Fail, FaultFs, FileOp, Mount, Need, RAID_0, RAID_1, RAID_5, RAID_6, RAID_10,
    Ran, ServerProcess, assert_same, needs, ok, random_bytes, skip, wait_until,
};
use crate::members::{filled, text};

const LIMIT: Duration = Duration::from_secs(20);
const EIO: i32 = 5;

fn image(array: &Array, words: &[&str]) -> Ran {
    array.braid(&[&["image"], words].concat(), &[])
}

#[track_caller]
fn said(ran: &Ran, exit: i32) -> Value {
    assert_eq!(ran.status.code(), Some(exit), "{ran:?}");
    serde_json::from_str(ran.stdout.trim()).expect("one object")
}

fn small(bytes: u64) -> usize {
    usize::try_from(bytes).expect("small")
}

fn missing(of: &Value) -> Vec<Range<u64>> {
    let number = |range: &Value, key: &str| range[key].as_u64().expect("a number");
    let range = |range: &Value| {
        let start = number(range, "offset_bytes");
        start..start + number(range, "length_bytes")
    };
    of.as_array().expect("ranges").iter().map(range).collect()
}

/// A disk is pulled during a copy, and attached again: requests that failed meanwhile are no bad
/// sectors.
#[test]
fn a_disk_that_drops_off_its_bus_is_not_called_bad() {
    let array = Array::create_sized(RAID_1, "96M");
    let disk = &array.members[0];
    fs::write(disk, random_bytes(77, 96 << 20)).expect("a disk");
    let Some(disks) =
        Mount::is_possible().then(|| FaultFs::over(std::slice::from_ref(disk))).flatten()
    else {
        return skip(Need::Fuse, "no FUSE can be mounted here");
    };
    let (file, copy) = (disks.files()[0].clone(), array.path("copy.img"));
    // The first half is copied, then all reads fail, also repeated ones.
    let half = 48 << 20;
    disks.fail(0, Fail { file_op: FileOp::Read, bytes: half..96 << 20, errno: EIO });
    said(&image(&array, &[text(&file), text(&copy)]), 3);
    let map = format!("0 ?\n0 {half} +\n");
    fs::write(format!("{}.map", text(&copy)), &map).expect("a map");
    disks.fail(0, Fail { file_op: FileOp::Read, bytes: 0..96 << 20, errno: EIO });
    let refusal = array.refused(&["image", text(&file), text(&copy)], &[]);
    refusal.is("B055", 1);
    assert!(refusal.json.to_string().contains("dropped off its bus"), "{}", refusal.json);
    let words = fs::read_to_string(format!("{}.map", text(&copy))).expect("a map");
    let found = braid_imaging::Map::parse(&words, 96 << 20).expect("a map");
    assert_eq!(found.bytes(braid_imaging::State::Done), half);
    assert_eq!(found.bytes(braid_imaging::State::Untried), half);
    disks.let_go();
    said(&image(&array, &[text(&file), text(&copy)]), 0);
    assert_same(&fs::read(&copy).expect("a copy"), &fs::read(disk).expect("a disk"), "all");
}

/// A copy of a member with these gaps, and the copy's map.
fn holed(array: &Array, member: &Path, name: &str, holes: &[Range<u64>]) -> PathBuf {
    let copy = array.path(name);
    fs::copy(member, &copy).expect("a copy");
    let file = fs::File::options().write(true).open(&copy).expect("a copy");
    let mut map = "# ddrescue's\n0x0  -  1\n".to_owned();
    let mut at = 0;
    for hole in holes {
        let length = hole.end - hole.start;
        // The copy's gaps hold bytes that the disk never had.
        file.write_all_at(&vec![0xee; small(length)], hole.start).expect("a copy");
        map += &format!("{at:#x} {:#x} +\n{:#x} {length:#x} -\n", hole.start - at, hole.start);
        at = hole.end;
    }
    let size = file.metadata().expect("a file").len();
    map += &format!("{at:#x} {:#x} +\n", size - at);
    fs::write(format!("{}.map", text(&copy)), map).expect("a map");
    copy
}

/// The time for copying a sparse file of a terabyte depends on its data only.
#[test]
fn a_huge_sparse_file_is_copied_by_its_holes() {
    let array = Array::create(RAID_1);
    let (source, copy) = (array.path("sparse"), array.path("copy.img"));
    let size: u64 = 1 << 40;
    let file = fs::File::create(&source).expect("a file");
    file.set_len(size).expect("a length");
    let bytes = random_bytes(79, 3 << 20);
    let places = [0, 5 << 30, size - (3 << 20)];
    places.iter().for_each(|at| file.write_all_at(&bytes, *at).expect("data"));
    let copied = said(&image(&array, &[text(&source), text(&copy)]), 0);
    assert_eq!(copied["read_bytes"], size);
    let file = fs::File::open(&copy).expect("a copy");
    let mut found = vec![0; bytes.len()];
    for at in places {
        file.read_exact_at(&mut found, at).expect("data");
        assert_same(&found, &bytes, "an island");
    }
    file.read_exact_at(&mut found, 7 << 30).expect("zeroes");
    assert!(found.iter().all(|byte| *byte == 0));
    let there = file.metadata().expect("a copy");
    assert!((there.len(), there.blocks() * 512 < 64 << 20) == (size, true));
}

/// A pipe as the map would wait for a writer that never comes.
#[test]
fn a_named_pipe_as_a_map_is_refused_and_not_waited_for() {
    let array = Array::create(RAID_5);
    let pipe = array.path("pipe");
    ok("mkfifo", [text(&pipe)]);
    let beside = format!("{}.map", text(&array.members[1]));
    fs::rename(&pipe, &beside).expect("a pipe beside a member");
    let refusal = array.refused(&["rescue"], &array.members);
    refusal.is("B106", 12);
    assert!(refusal.json.to_string().contains("it is a named pipe"), "{}", refusal.json);
    fs::rename(&beside, &pipe).expect("a pipe");
    let named = format!("{}={}", text(&array.members[1]), text(&pipe));
    array.refused(&["rescue", "--map", &named], &array.members).is("B106", 12);
}

#[test]
fn a_failing_disk_is_copied_as_far_as_it_can_be_read() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    filled(&array, &served, 71);
    served.stop();
    let before = fs::read(&array.members[1]).expect("a member");
    let Some(disks) = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten() else {
        return skip(Need::Fuse, "no FUSE can be mounted here");
    };
    let disk = disks.files()[1].clone();
    let bad = (5 << 20) + 8192..(5 << 20) + 20480;
    disks.fail(1, Fail { file_op: FileOp::Read, bytes: bad.clone(), errno: EIO });
    let copy = array.path("copy.img");
    let first = said(&image(&array, &[text(&disk), text(&copy)]), 3);
    assert_eq!(missing(&first["missing"]), std::slice::from_ref(&bad));
    assert_eq!(first["read_bytes"], (16 << 20) - 12288);
    let copied = fs::read(&copy).expect("a copy");
    let (start, end) = (small(bad.start), small(bad.end));
    assert_same(&copied[..start], &before[..start], "before the bad place");
    assert_same(&copied[end..], &before[end..], "behind the bad place");
    // ddrescue's tools read the map.
    if braid_test_needs::is_installed("ddrescuelog") {
        let listed = ok("ddrescuelog", ["-b", "4096", "-l-", &format!("{}.map", text(&copy))]);
        let blocks: Vec<u64> = listed.lines().map(|line| line.parse().expect("a block")).collect();
        assert_eq!(blocks, (bad.start / 4096..bad.end / 4096).collect::<Vec<_>>());
    }
    // In the first retry the sector is still bad, in the second it is good again.
    let again = ["--retries", "2", text(&disk), text(&copy)];
    assert_eq!(missing(&said(&image(&array, &again), 3)["missing"]), [bad]);
    disks.let_go();
    assert!(missing(&said(&image(&array, &again), 0)["missing"]).is_empty());
    assert_same(&fs::read(&copy).expect("a copy"), &before, "all of it");
    assert_same(&fs::read(&array.members[1]).expect("a member"), &before, "the disk");
}

#[test]
fn a_copy_that_was_killed_is_gone_on_with() {
    let array = Array::create(RAID_1);
    let (disk, copy) = (array.path("disk"), array.path("copy.img"));
    let map = format!("{}.map", text(&copy));
    let mut bytes = random_bytes(72, 48 << 20);
    bytes[7 << 20..23 << 20].fill(0);
    fs::write(&disk, &bytes).expect("a disk");
    let mut was_begun = false;
    for delay_ms in [0, 5, 10, 20, 40, 80, 160] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_braid"))
            .args(["image", text(&disk), text(&copy)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("braid");
        std::thread::sleep(Duration::from_millis(delay_ms));
        child.kill().and_then(|()| child.wait()).expect("our own child");
        let (Ok(words), true) = (fs::read_to_string(&map), copy.exists()) else { continue };
        was_begun = true;
        let found = braid_imaging::Map::parse(&words, bytes.len() as u64).expect("a map");
        let copied = fs::read(&copy).expect("a copy");
        for range in found.of(braid_imaging::State::Done) {
            let (start, end) = (small(range.start), small(range.end));
            assert_same(&copied[start..end], &bytes[start..end], "what the map calls read");
        }
    }
    assert!(was_begun, "no map was ever begun");
    let all = said(&image(&array, &[text(&disk), text(&copy)]), 0);
    assert_eq!(all["read_bytes"], bytes.len());
    assert_same(&fs::read(&copy).expect("a copy"), &bytes, "all of it");
    use std::os::unix::fs::MetadataExt;
    let taken = fs::metadata(&copy).expect("a copy").blocks() * 512;
    assert!(taken < 34 << 20, "zeroes take no space: {taken}");
}

#[test]
fn what_is_no_copy_of_the_disk_is_not_overwritten() {
    let array = Array::create(RAID_1);
    let disk = array.members[0].clone();
    let (other, short) = (array.path("other"), array.path("short"));
    fs::write(&other, "a diary").expect("a file");
    let words =
        |copy: &Path| vec!["image".to_owned(), text(&disk).to_owned(), text(copy).to_owned()];
    let refused = |copy: &Path| {
        let line = words(copy);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        array.refused(&line, &[])
    };
    let refusal = refused(&other);
    refusal.is("B107", 12);
    assert_eq!(fs::read(&other).expect("a file"), b"a diary");
    let ran = array.follow(&refusal.json, "Copy into another file");
    assert!(ran.status.success(), "{ran:?}");
    assert_same(
        &fs::read(array.path("other.2")).expect("a copy"),
        &fs::read(&disk).expect("a disk"),
        "the copy",
    );
    // `image` refuses a copy of another disk: disks may change names when they are attached again.
    let copied = array.path("copied");
    said(&image(&array, &[text(&array.members[1]), text(&copied)]), 0);
    let bytes = fs::read(&copied).expect("a copy");
    let map = fs::read_to_string(array.path("copied.map")).expect("a map");
    fs::write(array.path("copied.map"), map.replace("0x01000000  +", "0x00800000  +"))
        .expect("a map");
    refused(&copied).is("B107", 12);
    assert_same(&fs::read(&copied).expect("a copy"), &bytes, "the copy of another disk");
    // `image` refuses a copy that is shorter than its map says.
    fs::write(&short, [1; 2048]).expect("a file");
    fs::write(array.path("short.map"), "0 +\n0 4096 +\n").expect("a map");
    refused(&short).is("B107", 12);
    refused(Path::new("/dev/null")).is("B107", 12);
    // `image` refuses a map without its copy, and an invalid map.
    fs::remove_file(&short).expect("a file");
    refused(&short).is("B107", 12);
    fs::write(array.path("short.map"), "0 +\n0 40960000000 +\n").expect("a map");
    refused(&short).is("B106", 12);
    fs::write(array.path("short.map"), [0xff, 0xfe]).expect("a map");
    refused(&short).is("B106", 12);
    assert!(!short.exists(), "nothing was made");
}

#[test]
fn a_copy_is_filled_from_the_others() {
    // The copy's gaps are in data and in parity, inside sectors, across the end of a chunk, and at
    // the end of the disk.
    let holes = [
        (2 << 20) + 4096..(2 << 20) + 4608,
        (3 << 20) + 60000..(3 << 20) + 70000,
        5 << 20..(5 << 20) + (300 << 10),
    ];
    for (shape, also) in [(RAID_1, None), (RAID_5, None), (RAID_6, Some(3)), (RAID_10, None)] {
        let array = Array::create(shape);
        let served = array.serve();
        filled(&array, &served, 73);
        served.stop();
        let before: Vec<_> =
            array.members.iter().map(|path| fs::read(path).expect("a member")).collect();
        let copy = holed(&array, &array.members[1], "copy.img", &holes);
        let there = (0..array.members.len()).filter(|slot| *slot != 1 && Some(*slot) != also);
        let mut members: Vec<PathBuf> = there.map(|slot| array.members[slot].clone()).collect();
        members.push(copy.clone());
        let filled = array.braid(&["rescue", "--fill", text(&copy)], &members);
        let filled = said(&filled, 0);
        assert!(missing(&filled["missing"]).is_empty(), "{shape:?}: {filled}");
        assert_same(&fs::read(&copy).expect("a copy"), &before[1], "what the disk held");
        for (path, bytes) in array.members.iter().zip(&before) {
            assert_same(&fs::read(path).expect("a member"), bytes, "a member");
        }
        assert!(
            said(&array.braid(&["rescue"], &members), if also.is_some() { 3 } else { 0 })
                .is_object()
        );
    }
}

/// A copy ended early (with and without its map), or a bridge hides the end of the disk.
#[test]
fn a_copy_that_is_shorter_than_its_disk_lacks_the_rest_and_no_more() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    let content = filled(&array, &served, 77);
    served.stop();
    let before = fs::read(&array.members[1]).expect("a member");
    let kept = 6 << 20;
    let copy = array.path("copy.img");
    fs::write(&copy, &before[..kept]).expect("a copy");
    let mut members = array.without(&[1]);
    members.push(copy.clone());
    let map = format!("{}.map", text(&copy));
    for is_mapped in [true, false] {
        let text = format!("0 ?\n0 {kept} +\n{kept} {} ?\n", before.len() - kept);
        if is_mapped {
            fs::write(&map, text).expect("a map");
        }
        let found = said(&array.braid(&["rescue"], &members), 0);
        assert_eq!(found["arrays"][0]["members"][3]["lacks_bytes"], before.len() - kept);
        let served = ServerProcess::rescued(&array, &["--read-only"], &members);
        assert_same(&served.read_all(&array), &content, "all of it");
        served.stop();
        // With another member missing as well, reads fail only in the copy's missing part.
        let served = ServerProcess::rescued(&array, &["--read-only"], &members[1..]);
        let mut client = Client::connect(&served.socket, LIMIT);
        assert_same(&client.read(0, 1 << 20).expect("what is there"), &content[..1 << 20], "it");
        assert_eq!(client.try_read(content.len() as u64 - (1 << 20), 1 << 20), Err(5));
        drop(client);
        served.stop();
        if is_mapped {
            fs::remove_file(&map).expect("a map");
        }
    }
    let filled = said(&array.braid(&["rescue", "--fill", text(&copy)], &members), 0);
    assert!(missing(&filled["missing"]).is_empty(), "{filled}");
    assert_same(&fs::read(&copy).expect("a copy"), &before, "what the disk held");
}

/// A fill with content from the other members would be newer than the other bytes of the copy.
#[test]
fn a_copy_of_a_stale_member_is_not_filled() {
    let array = Array::create(RAID_5);
    array.serve().stop();
    let hole = 5 << 20..(5 << 20) + 4096;
    let copy = holed(&array, &array.members[0], "copy.img", std::slice::from_ref(&hole));
    let served = array.serve_with(&[], &array.without(&[0]));
    Client::connect(&served.socket, LIMIT).write(0, &random_bytes(78, 1 << 20));
    served.stop();
    let mut members = array.without(&[0]);
    members.push(copy.clone());
    let refusal = array.refused(&["rescue", "--fill", text(&copy)], &members);
    refusal.is("B107", 12);
    assert!(refusal.json.to_string().contains("is newer than the rest"), "{}", refusal.json);
}

#[test]
fn a_copy_of_an_interrupted_array_is_not_filled() {
    let array = Array::with_bitmap(RAID_5);
    let served = array.serve();
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(0, &random_bytes(74, 1 << 20));
    served.kill();
    let hole = 5 << 20..(5 << 20) + 4096;
    let copy = holed(&array, &array.members[1], "copy.img", std::slice::from_ref(&hole));
    let before = fs::read(&copy).expect("a copy");
    let mut members = array.without(&[1]);
    members.push(copy.clone());
    // The kernel releases a ring's files a while after its process has ended.
    wait_until("the members to be free", LIMIT, || {
        array.braid(&["rescue"], &members).status.code() != Some(11)
    });
    let refusal = array.refused(&["rescue", "--fill", text(&copy)], &members);
    refusal.is("B107", 12);
    assert!(refusal.json.to_string().contains("parity may not fit"), "{}", refusal.json);
    // `--fill` also refuses a file that is no copy and no member.
    array.refused(&["rescue", "--fill", "/dev/null"], &members).is("B001", 2);
    assert_same(&fs::read(&copy).expect("a copy"), &before, "the copy");
}

#[test]
fn what_two_copies_lack_is_an_error_and_its_files_are_named() {
    needs!("mke2fs", "debugfs", "nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let tree = array.path("tree");
    fs::create_dir(&tree).expect("a folder");
    for number in 0..10 {
        let bytes = random_bytes(80 + number, 3 << 20);
        fs::write(tree.join(format!("file-{number}")), bytes).expect("a file");
    }
    let system = array.path("fs.img");
    let words = ["-q", "-t", "ext4", "-d", text(&tree), text(&system), "40M"];
    ok("mke2fs", words);
    ok("nbdcopy", ["--flush", text(&system), &served.uri]);
    let content = served.read_all(&array);
    served.stop();
    // debugfs tells where a file begins.
    let blocks = ok("debugfs", ["-R", "blocks /file-4", text(&system)]);
    let block: u64 = blocks.split_whitespace().nth(100).expect("blocks").parse().expect("a number");
    let size = ok("dumpe2fs", ["-h", text(&system)]);
    let size = size.lines().find_map(|line| line.strip_prefix("Block size:")).expect("a size");
    let at = block * size.trim().parse::<u64>().expect("a number");
    // Two copies lack the same row; one of them has a second gap of its own.
    let row = at / (3 << 16);
    let data_start = data_start(&array);
    let chunk = data_start + row * (64 << 10)..data_start + (row + 1) * (64 << 10);
    let one = holed(&array, &array.members[0], "c0", &[2 << 20..(2 << 20) + 8192, chunk.clone()]);
    let two = holed(&array, &array.members[1], "c1", &[chunk]);
    let members = [one, two, array.members[2].clone(), array.members[3].clone()];
    let found = said(&array.braid(&["rescue"], &members), 0);
    let lost = missing(&found["arrays"][0]["lost"]);
    assert!(
        lost.iter().any(|range| range.contains(&at) || range.start / (3 << 16) == row),
        "{lost:?}"
    );
    let total: u64 = lost.iter().map(|range| range.end - range.start).sum();
    assert!((64 << 10..=128 << 10).contains(&total), "{lost:?}");
    let served = ServerProcess::rescued(&array, &["--read-only"], &members);
    let mut client = Client::connect(&served.socket, LIMIT);
    for (start, piece) in (0..).step_by(4096).zip(content.chunks(4096)) {
        let is_lost =
            lost.iter().any(|range| range.start < start as u64 + 4096 && range.end > start as u64);
        match client.try_read(start as u64, piece.len()) {
            Ok(bytes) => {
                assert!(!is_lost, "byte {start} is lost");
                assert_same(&bytes, piece, "what is given is right");
            }
            Err(_) => assert!(is_lost, "byte {start} is not lost"),
        }
    }
    drop(client);
    served.stop();
    if !Mount::is_possible() {
        return skip(Need::Fuse, "no FUSE can be mounted here");
    }
    let named = said(&array.braid(&["rescue", "--lost"], &members), 3);
    let files = named["volumes"][0]["files"].as_array().unwrap_or_else(|| panic!("{named}"));
    assert!(
        files.iter().any(|file| file.as_str().is_some_and(|file| file.starts_with("/file-"))),
        "{named}"
    );
    assert!(files.len() <= 2, "{named}");
    // `rescue` refuses a map for a file that is no member, and a missing map.
    array.refused(&["rescue", "--map", "elsewhere=map"], &members).is("B001", 2);
    let nowhere = format!("{}=nowhere", text(&members[0]));
    array.refused(&["rescue", "--map", &nowhere], &members).is("B001", 2);
}

/// The first byte of the members' data.
fn data_start(array: &Array) -> u64 {
    let bytes = fs::read(&array.members[0]).expect("a member");
    u64::from_le_bytes(bytes[4096 + 128..4096 + 136].try_into().expect("eight")) * 512
}

#[test]
fn who_lies_is_named() {
    let array = Array::create(RAID_6);
    let served = array.serve();
    filled(&array, &served, 75);
    served.stop();
    let all = said(&array.braid(&["rescue", "--check"], &array.members), 0);
    assert_eq!((&all["differing_sectors"], &all["completed"]), (&0.into(), &true.into()));
    // With an overlay, the members alone do not have the array's content, so `--check` is refused.
    ServerProcess::rescued(&array, &[], &array.members).stop();
    array.refused(&["rescue", "--check"], &array.members).is("B045", 12);
    assert!(array.braid(&["rescue", "--discard"], &array.members).status.success());
    // The wrong bytes of the member are in two places, in data and in parity.
    let liar = &array.members[2];
    let file = fs::File::options().write(true).open(liar).expect("a member");
    for at in [3 << 20, (3 << 20) + (64 << 10), (7 << 20) + 512] {
        file.write_all_at(&random_bytes(at, 512), at).expect("a lie");
    }
    let before = fs::read(liar).expect("a member");
    let found = said(&array.braid(&["rescue", "--check"], &array.members), 3);
    let wrong = found["wrong"].as_array().expect("a list");
    assert_eq!(wrong.len(), 1, "{found}");
    assert_eq!(wrong[0], serde_json::json!({ "member": text(liar), "sectors": 3 }), "{found}");
    assert_same(&fs::read(liar).expect("a member"), &before, "it is only named");
    // With one parity the check detects an error, but not which member is wrong.
    let fewer = array.without(&[1]);
    array.refused(&["rescue", "--check"], &fewer).is("B043", 12);
    let striped = Array::create(RAID_0);
    striped.refused(&["rescue", "--check"], &striped.members).is("B042", 12);
    // `--check` is refused while a resync is due: the resync would overwrite the differences.
    let served = array.serve_with(&["--jobs", "paused"], &array.members);
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(0, &random_bytes(78, 4096));
    served.kill();
    array.refused(&["rescue", "--check"], &array.members).is("B045", 12);
}

/// The copy lacks the member's bitmap: the loss is reported, and the member is used.
#[test]
fn a_copy_without_its_bitmap_is_a_member_all_the_same() {
    needs!("nbdcopy");
    let array = Array::with_bitmap(RAID_5);
    let served = array.serve();
    let content = filled(&array, &served, 76);
    served.stop();
    let holes = [8192..12288, (4 << 20)..(4 << 20) + 512];
    let copy = holed(&array, &array.members[2], "copy.img", &holes);
    let mut members = array.without(&[2]);
    members.push(copy);
    let without = ["--read-only", "--without", text(&members[0])];
    let served = ServerProcess::rescued(&array, &without, &members);
    let mut client = Client::connect(&served.socket, LIMIT);
    let (mut right, mut failed) = (0, 0);
    for (at, piece) in (0..).step_by(4096).zip(content.chunks(4096)) {
        match client.try_read(at, piece.len()) {
            Ok(bytes) => {
                right += 1;
                assert_same(&bytes, piece, "what is given is right");
            }
            Err(_) => failed += 1,
        }
    }
    assert!(right > 1000 && failed <= 2, "{right} right, {failed} failed");
    drop(client);
    served.stop();
}
