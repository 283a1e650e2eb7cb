//! Lines: read as they were written, and harmless whatever they are.

use braid_engine::array::MemberId;
use braid_engine::effect::{IoId, MemberFault, MemberIoDone, Pace, Report};
use braid_engine::job::JobId;
use braid_engine::request::{Operation, Piece, RequestId, ShardIndex};
use braid_engine::{CacheMode, Instant, SitOut, Tuning};
use braid_geometry::LogicalSector;
use braid_recording::{Ending, Input, Machine, Recording, Turn};

const HEADER: &str = "\
level 5 layout 2 chunk 8 sectors 64 64 64
events 7 resync 18446744073709551615 readonly 0 fastzero 1 delay 200 shards 2 tear 0
cache unit 8 room 8 tuned 4:back:1:64:500
slot 0 0 18446744073709551615 16+8 40+1
slot -
slot 1 2 18446744073709551615
spare 2 3
turns
";

fn header() -> String {
    format!("braid-recording 2 {}\n{HEADER}", env!("CARGO_PKG_VERSION"))
}

fn piece(operation: Operation) -> Input {
    Input::Piece(Piece {
        request: RequestId(u64::MAX),
        operation,
        start: LogicalSector(12),
        sectors: 3,
        payload_offset_sectors: u32::MAX,
    })
}

fn shard_inputs() -> Vec<Input> {
    let mut inputs = vec![piece(Operation::Read), piece(Operation::Trim)];
    for durable in [false, true] {
        inputs.push(piece(Operation::Write { durable }));
        for may_punch in [false, true] {
            inputs.push(piece(Operation::WriteZeroes { may_punch, durable }));
        }
    }
    for result in
        [Ok(()), Err(MemberFault::Media), Err(MemberFault::Gone), Err(MemberFault::NoSpace)]
    {
        inputs.push(Input::MemberIo(MemberIoDone { id: IoId(9), result }));
    }
    inputs.extend([Input::JobDone(JobId(4)), Input::View(5), Input::ActivityQuery]);
    inputs.extend([Input::WriteBack(3), Input::Timeout, Input::Tuning(Tuning::default())]);
    let mode = CacheMode::WriteThrough;
    inputs.push(Input::Attention(7));
    inputs.push(Input::Tuning(Tuning { mode, bypass_threshold: 0, ..Tuning::default() }));
    inputs
}

fn array_inputs() -> Vec<Input> {
    let member = MemberId(3);
    let reports = [
        Report::WantWrite,
        Report::MemberFailed { member },
        Report::OutOfSpace { member },
        Report::MemberWritten { member },
        Report::WrittenBack { round: 12 },
        Report::WriteLost { start: LogicalSector(5), sectors: 6 },
        Report::ViewInForce { epoch: 6 },
        Report::Activity { last_write: Instant(77), writing: true },
        Report::Pace { member, pace: Pace { completed: 2, mean_ns: 3, oldest_ns: 4 } },
    ];
    let reports = reports.into_iter().map(|report| Input::Report(ShardIndex(1), report));
    reports
        .chain([
            Input::SuperblockWritten(member, true),
            Input::Flushed(member, false),
            Input::FlushRequest(RequestId(8)),
            Input::MemberLost(member),
            Input::SitOut(SitOut::default()),
            Input::Timeout,
            Input::Stop,
        ])
        .collect()
}

fn text() -> (Vec<Turn>, String) {
    let turn = |machine, inputs| Turn {
        machine,
        sequence: 0,
        now: Instant(1_000_000),
        inputs,
        effects: 2,
        digest: 0xdead_beef,
    };
    let shard = turn(Machine::Shard(ShardIndex(1)), shard_inputs());
    let turns = vec![shard, turn(Machine::Array, array_inputs())];
    let lines: String = turns.iter().map(|turn| format!("{turn}\n")).collect();
    (turns, format!("{}{lines}end\n", header()))
}

#[test]
fn every_line_is_read_as_it_was_written() {
    let (turns, text) = text();
    let recording = Recording::parse(&text).expect("it is whole");
    let read: Vec<Turn> = recording.turns.iter().map(|(_, turn)| turn.clone()).collect();
    assert_eq!(read, turns);
    assert_eq!(recording.header.to_string(), header());
    assert_eq!(recording.ending, Ending::Ended);
}

#[test]
fn a_recording_without_its_last_lines_is_cut_off_and_no_error() {
    let (_, text) = text();
    let body = header().len();
    for length in body..text.len() {
        let recording = Recording::parse(&text[..length]).expect("it is whole");
        let whole_lines = text[body..length].matches('\n').count();
        assert_eq!(recording.turns.len(), whole_lines);
        assert_eq!(recording.ending, Ending::CutOff);
    }
    for length in 0..body {
        assert!(Recording::parse(&text[..length]).is_err(), "half a header at {length}");
    }
}

#[test]
fn nothing_that_is_cut_or_changed_makes_the_parser_panic() {
    let (_, text) = text();
    for at in 0..text.len() {
        for with in ["", "0", "9", "-", ":", " ", "=", "\n", "99999999999999999999", "\u{fffd}"] {
            let changed = format!("{}{with}{}", &text[..at], &text[at + 1..]);
            if let Ok(recording) = Recording::parse(&changed) {
                assert!(recording.header.setup().is_ok(), "what is read can be made");
            }
        }
    }
}

#[test]
fn what_cannot_be_an_array_is_refused() {
    let (_, text) = text();
    for (from, to) in [
        ("sectors 64 64 64", "sectors 64 64"),
        ("shards 2", "shards 0"),
        ("room 8", "room 0"),
        ("room 8", "room 4294967295"),
        ("unit 8", "unit 0"),
        ("unit 8", "unit 24"),
        ("unit 8", "unit 256"),
        ("4:back:1", "4:forth:1"),
        ("slot 1 2 18446744073709551615", "slot -"),
        ("braid-recording 2", "braid-recording 1"),
        ("s1 0", "s1 -1"),
        (" stop", " query"),
        ("end\n", "end\nend\n"),
    ] {
        assert!(text.contains(from), "{from}");
        assert!(Recording::parse(&text.replace(from, to)).is_err(), "{from} became {to}");
    }
}
