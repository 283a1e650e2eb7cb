//! Tests the client's and the server's session against each other: a stream has the same meaning
//! however it is cut.

use crate::common::{
    DriverOutput, STYLES, catalog, converse, pattern, pieces, plan, trace_client, trace_server,
};
use braid_nbd_proto::{
    ClientEvent, ClientSession, Command, ErrorCode, Goal, ServerEvent, ServerSession, Style,
};
use proptest::prelude::*;

fn every_command() -> Vec<Command> {
    vec![
        Command::Write { offset: 777, length: 5000, fua: false },
        Command::Read { offset: 1000, length: 3000, dont_fragment: false },
        Command::Write { offset: 99_999, length: 1, fua: true },
        Command::Flush,
        Command::Trim { offset: 0, length: 512, fua: false },
        Command::WriteZeroes { offset: 2000, length: 9, fua: true, may_punch: false, fast: true },
        Command::Cache { offset: 0, length: 1 },
        Command::Read { offset: 1999, length: 11, dont_fragment: false },
    ]
}

fn completed(seen: &[DriverOutput<ClientEvent>]) -> Vec<(u64, Result<(), ErrorCode>)> {
    seen.iter()
        .filter_map(|seen| match seen {
            DriverOutput::Event(ClientEvent::Completed { cookie, result }) => {
                Some((*cookie, *result))
            }
            _ => None,
        })
        .collect()
}

fn payloads(seen: &[DriverOutput<ClientEvent>]) -> Vec<Vec<u8>> {
    seen.iter()
        .filter_map(|seen| match seen {
            DriverOutput::Payload(bytes) => Some(bytes.clone()),
            DriverOutput::Event(_) => None,
        })
        .collect()
}

#[test]
fn both_halves_understand_each_other_in_every_mode() {
    let by_name =
        [Style::Simple, Style::Structured].map(|style| (Goal::TransmitByExportName, style));
    let ways = STYLES.map(|style| (Goal::Transmit, style)).into_iter().chain(by_name);
    for (goal, style) in ways {
        let mut commands = every_command();
        if style.has_chunks() {
            commands.push(Command::Read { offset: 0, length: 4, dont_fragment: true });
            commands.push(Command::BlockStatus { offset: 0, length: 4096, one: true });
        }
        let talk = converse(plan(goal, style), &commands);
        let done = completed(&talk.seen);
        assert_eq!(done.len(), commands.len(), "{goal:?} {style:?}");
        assert!(done.iter().all(|(_, result)| result.is_ok()));
        let read = payloads(&talk.seen);
        assert_eq!(read[0], pattern(1000, 3000));
        let mut zeroed = pattern(1999, 11);
        zeroed[1..10].fill(0);
        assert_eq!(read[1], zeroed);
    }
}

#[test]
fn info_and_list_answer_and_leave() {
    let talk = converse(plan(Goal::List, Style::Simple), &[]);
    let names: Vec<_> = talk
        .seen
        .iter()
        .filter(|s| matches!(s, DriverOutput::Event(ClientEvent::Listed(_))))
        .collect();
    assert_eq!(names.len(), 2);
    let talk = converse(plan(Goal::Info, Style::Structured), &[]);
    let described = talk.seen.iter().find_map(|seen| match seen {
        DriverOutput::Event(ClientEvent::Described(info)) => Some(info.clone()),
        _ => None,
    });
    let info = described.expect("INFO is answered");
    assert_eq!(info.size_bytes, crate::common::DISK_BYTES as u64);
    assert_eq!(info.name.as_deref(), Some("array"));
    assert_eq!(info.description.as_deref(), Some("RAID-1 of 2 members"));
    assert_eq!(info.block_sizes, Some(braid_nbd_proto::BlockSizes::BYTE_GRANULAR));
    assert!(info.context_id.is_some());
    assert_eq!(info.transmission_flags, 0b1101_1110_1101);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_split_gives_the_server_the_same_events(
        style in prop::sample::select(STYLES.to_vec()),
        lengths in prop::collection::vec(1_usize..200, 1..40),
    ) {
        let talk = converse(plan(Goal::Transmit, style), &every_command());
        let whole = trace_server(&mut ServerSession::new(catalog()), &[&talk.to_server]);
        let cut = pieces(&talk.to_server, &lengths);
        let split = trace_server(&mut ServerSession::new(catalog()), &cut);
        let requests = |seen: &[DriverOutput<ServerEvent>]| {
            seen.iter().filter(|s| matches!(s, DriverOutput::Event(ServerEvent::Request(_)))).count()
        };
        prop_assert_eq!(requests(&whole), every_command().len());
        prop_assert_eq!(whole, split);
    }

    #[test]
    fn any_split_gives_the_client_the_same_events(
        style in prop::sample::select(STYLES.to_vec()), by_name in any::<bool>(),
        lengths in prop::collection::vec(1_usize..200, 1..40),
    ) {
        let by_name = by_name && !style.is_extended();
        let goal = if by_name { Goal::TransmitByExportName } else { Goal::Transmit };
        let plan = plan(goal, style);
        let talk = converse(plan.clone(), &every_command());
        let mut client = ClientSession::new(plan);
        let split = trace_client(&mut client, &every_command(), &pieces(&talk.to_client, &lengths));
        prop_assert_eq!(&talk.seen, &split);
        prop_assert_eq!(client.in_flight_count(), 0);
    }
}

#[test]
fn one_byte_at_a_time_is_no_different() {
    let talk = converse(plan(Goal::Transmit, Style::Structured), &every_command());
    let whole = trace_server(&mut ServerSession::new(catalog()), &[&talk.to_server]);
    let single = pieces(&talk.to_server, &[1]);
    assert_eq!(whole, trace_server(&mut ServerSession::new(catalog()), &single));
}
