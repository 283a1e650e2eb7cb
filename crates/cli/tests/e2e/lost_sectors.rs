//! Sectors that no member holds, while an array grows: only these sectors are lost.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::control::{said, status};
use crate::grow::{PATIENCE, wait_for_the_end};
use crate::jobs::done;
use crate::kit::{
    Array, Client, Fail, FaultFs, FileOp, Mount, Need, RAID_5, ServerProcess, assert_same, needs,
    skip,
};
use crate::members::{MEMBER_BYTES, blank, filled, text};

const BLOCK: usize = 4096;
const EIO: i32 = 5;

/// The blocks of the array that cannot be read; checks that all other blocks have this content.
fn unreadable(served: &ServerProcess, content: &[u8]) -> BTreeSet<usize> {
    let mut client = Client::connect(&served.socket, PATIENCE);
    let mut unreadable = BTreeSet::new();
    for (number, wanted) in content.chunks(BLOCK).enumerate() {
        match client.try_read((number * BLOCK) as u64, wanted.len()) {
            Ok(found) => assert_same(&found, wanted, "beside lost sectors"),
            Err(_) => _ = unreadable.insert(number),
        }
    }
    unreadable
}

/// The array's sectors that the last reshape found on no member, and the first byte of each run.
fn lost(array: &Array) -> (u64, Vec<u64>) {
    let one = status(array, "tank");
    let jobs = one["last_jobs"].as_array().expect("a list");
    let job = jobs.iter().find(|job| job["kind"] == "reshape").expect("it grew");
    let runs = job["found"]["runs"].as_array().expect("a list");
    let start = |run: &Value| run["array_offset_bytes"].as_u64().expect("a place");
    (job["unmade_sectors"].as_u64().expect("a number"), runs.iter().map(start).collect())
}

#[test]
fn a_sector_that_no_member_holds_costs_itself_while_the_array_grows() {
    needs!("nbdcopy");
    let mut array = Array::create(RAID_5);
    let new = blank(&array, "n0", MEMBER_BYTES);
    let files = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten();
    let Some(files) = files else { return skip(Need::Fuse, "no FUSE can be mounted here") };
    let served = array.serve_with(&[], &files.files());
    let mut content = filled(&array, &served, 31);
    served.stop();
    // The new server has nothing in memory.
    let served = array.serve_with(&[], &files.files());
    let looked = array.braid(&["examine"], &array.members[..1]).stdout;
    let (_, data) = looked.split_once("\"data_offset_bytes\":").expect("it is printed");
    let data: String = data.chars().take_while(char::is_ascii_digit).collect();
    let data: u64 = data.parse().expect("a number");
    // Reads fail in one row, on two members.
    let bytes = data + (2 << 20)..data + (2 << 20) + BLOCK as u64;
    for member in 0..2 {
        files.fail(member, Fail { file_op: FileOp::Read, bytes: bytes.clone(), errno: EIO });
    }
    done(&array, &["grow", "tank", text(&new)]);
    wait_for_the_end(&array);
    let (sectors, starts) = lost(&array);
    let blocks: BTreeSet<usize> =
        starts.iter().map(|start| usize::try_from(*start).expect("small") / BLOCK).collect();
    assert!((8..=16).contains(&sectors) && !blocks.is_empty(), "{sectors} {starts:?}");
    let words = said(&array, &["status", "tank"]).stdout;
    assert!(words.contains("that no member held when the shape changed"), "{words}");
    assert_eq!(unreadable(&served, &content), blocks);
    served.stop();
    drop(files);
    // The members answer again, with other bytes in the new shape: bad-block logs list the sectors.
    array.members.push(new);
    let served = array.serve();
    assert_eq!(unreadable(&served, &content), blocks, "after a restart");
    let mut client = Client::connect(&served.socket, PATIENCE);
    for block in blocks {
        let place = block * BLOCK..(block + 1) * BLOCK;
        content[place.clone()].fill(0x5a);
        client.write(place.start as u64, &content[place]);
    }
    client.flush();
    assert_eq!(unreadable(&served, &content), BTreeSet::new(), "writes heal them");
    assert_eq!(done(&array, &["check", "tank"])["check"]["differing_sectors"], 0);
    served.stop();
}
