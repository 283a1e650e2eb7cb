//! Tests of the intake alone: any split of the stream gives the same requests; where payloads land.

#![allow(clippy::cast_possible_truncation)] // small numbers of our own

use braid_nbd_proto::{BlockSizes, Style, wire};

use super::*;
use crate::limits::{AHEAD_BYTES_MAX, AHEAD_WRITES_MAX};

const READ: Command = Command::Read { offset: 8, length: 512, dont_fragment: false };

fn write(length: u32) -> Command {
    Command::Write { offset: 8, length, fua: false }
}

fn intake() -> Intake {
    intake_as(Style::Simple)
}

fn intake_as(style: Style) -> Intake {
    let export = ExportDescription {
        name: "a".into(),
        is_withdrawn: false,
        description: String::new(),
        size_bytes: 1 << 30,
        read_only: false,
        multi_conn: true,
        block_sizes: BlockSizes::BYTE_GRANULAR,
    };
    let mut intake = Intake::new(Arc::new([export]), None, false);
    let mut hello = 3_u32.to_be_bytes().to_vec();
    if style.is_extended() {
        hello.extend(wire::encode_option(wire::OPT_EXTENDED_HEADERS, &[]));
    }
    hello.extend(wire::encode_option(wire::OPT_GO, &[0; 6]));
    let mut said = Client::saying(&hello);
    said.talk(&mut intake, &mut || usize::MAX);
    assert!(said.bytes.is_empty() && intake.is_negotiated());
    intake
}

fn message(command: Command, cookie: u64, payload: &[u8]) -> Vec<u8> {
    message_as(Style::Simple, command, cookie, payload)
}

fn message_as(style: Style, command: Command, cookie: u64, payload: &[u8]) -> Vec<u8> {
    [&command.bytes(cookie, style)[..], payload].concat()
}

const STYLES: [Style; 2] = [Style::Simple, Style::Extended];

/// A client's stream of bytes, and the requests that the intake made of it.
struct Client<'a> {
    bytes: &'a [u8],
    served: Vec<(Command, Vec<u8>)>,
    copied: usize,
    /// Memory that a payload has at first, and at most.
    memory: usize,
    memory_max: usize,
}

impl<'a> Client<'a> {
    fn saying(bytes: &'a [u8]) -> Self {
        Self { bytes, served: Vec::new(), copied: 0, memory: usize::MAX, memory_max: usize::MAX }
    }

    /// Feeds the client's whole stream to the intake, at most `piece()` bytes at a time.
    fn talk(&mut self, intake: &mut Intake, piece: &mut dyn FnMut() -> usize) {
        loop {
            while let Some(event) = intake.poll() {
                match event {
                    Event::Request(request) => {
                        if let Command::Write { .. } = request.command {
                            intake.open(0, request.command, self.memory);
                        }
                        self.served.push((request.command, Vec::new()));
                    }
                    Event::Written(write) => {
                        self.copied += write.copied_bytes;
                        self.served.last_mut().expect("its header came before").1 =
                            write.payload.to_vec();
                    }
                    Event::Skipped { .. } => {
                        self.served.last_mut().expect("its header came before").1 = vec![0xff];
                    }
                    Event::Transmit(_) | Event::Negotiated(_) | Event::Refused { .. } => {}
                    Event::Claim { .. } => unreachable!("the export takes no claims"),
                    Event::Close => return,
                }
            }
            if self.bytes.is_empty() {
                return;
            }
            if intake.wants_memory().is_some() {
                self.memory *= 2;
                if self.memory > self.memory_max {
                    intake.give_up_memory();
                } else {
                    intake.grow(self.memory).expect("so much memory");
                }
                continue;
            }
            let mut receive = intake.receive().expect("nothing is out");
            let (most, mut received) = (piece().clamp(1, self.bytes.len()), 0);
            for part in receive.parts() {
                let moved = part.len().min(most - received);
                part[..moved].copy_from_slice(&self.bytes[received..received + moved]);
                received += moved;
            }
            assert!(received > 0, "there is always room for the next byte");
            self.bytes = &self.bytes[received..];
            intake.received(receive, received);
        }
    }
}

#[test]
fn any_split_gives_the_same_requests() {
    let payloads = [vec![1; 1], vec![2; 5000], vec![3; 100]];
    let mut commands: Vec<(Command, Vec<u8>)> = vec![(READ, Vec::new()); 9];
    for payload in payloads {
        commands.push((write(payload.len() as u32), payload));
        commands.extend([(READ, Vec::new()), (Command::Flush, Vec::new())]);
    }
    let mut state = 1_u64;
    for (style, round) in STYLES.into_iter().flat_map(|style| (0..250).map(move |at| (style, at))) {
        let message =
            |(command, payload): &(Command, Vec<u8>)| message_as(style, *command, 1, payload);
        let bytes: Vec<u8> = commands.iter().flat_map(message).collect();
        let mut piece = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if round == 0 { 1 } else { (state >> 33) as usize % (4 * round) + 1 }
        };
        let mut client = Client::saying(&bytes);
        client.talk(&mut intake_as(style), &mut piece);
        assert_eq!(client.served, commands, "{style:?}");
    }
}

#[test]
fn writes_in_a_row_are_not_copied() {
    for length in [1, 27, 512, 4096, 40_000, 65_536, 1 << 20] {
        for style in STYLES {
            let payload = vec![7; length as usize];
            let bytes = message_as(style, write(length), 1, &payload).repeat(20);
            for piece in [usize::MAX, 1000, 33] {
                let mut client = Client::saying(&bytes);
                client.talk(&mut intake_as(style), &mut || piece);
                let found = (client.served.len(), client.copied);
                assert_eq!(found, (20, 0), "{style:?} {length} {piece}");
            }
        }
    }
}

#[test]
fn reads_are_taken_many_at_once_and_a_write_after_them_is_hardly_copied() {
    let mut intake = intake();
    let reads = message(READ, 1, &[]).repeat(1000);
    let mut receives = 0;
    let mut client = Client::saying(&reads);
    client.talk(&mut intake, &mut || {
        receives += 1;
        usize::MAX
    });
    assert_eq!(client.served.len(), 1000);
    assert!(receives <= 7 + 1000 / AHEAD_HEADERS_MAX + 1, "{receives}");
    let writes = message(write(1 << 20), 1, &vec![7; 1 << 20]).repeat(3);
    let mut client = Client::saying(&writes);
    client.talk(&mut intake, &mut || usize::MAX);
    assert!(client.served.iter().all(|(_, payload)| payload.len() == 1 << 20));
    assert!(client.copied > 0 && client.copied < INPUT_BYTES, "{} were copied", client.copied);
}

#[test]
fn small_writes_of_one_length_come_many_at_once() {
    for style in STYLES {
        let writes = message_as(style, write(4096), 1, &[7; 4096]).repeat(200);
        let mut receives = 0;
        let mut client = Client::saying(&writes);
        client.talk(&mut intake_as(style), &mut || {
            receives += 1;
            usize::MAX
        });
        assert_eq!((client.served.len(), client.copied), (200, 0), "{style:?}");
        assert!(receives < 8 + 200 / AHEAD_WRITES_MAX, "{receives}");
    }
}

#[test]
fn a_wrong_guess_costs_copies_and_nothing_else() {
    let alike = message(write(4096), 1, &[7; 4096]).repeat(8);
    let others = [
        message(READ, 1, &[]).repeat(3),
        message(write(100), 1, &[8; 100]),
        message(write(4096), 1, &[9; 4096]),
        message(write(30_000), 1, &[10; 30_000]),
    ];
    let bytes = [&alike, &others.concat()[..]].concat().repeat(5);
    let mut served = Vec::new();
    for piece in [usize::MAX, 1, 4096, 5000, 70_000] {
        let mut client = Client::saying(&bytes);
        client.talk(&mut intake(), &mut || piece);
        assert!(client.copied <= 5 * AHEAD_BYTES_MAX, "{} were copied", client.copied);
        served.push(client.served);
    }
    assert_eq!(served[0].len(), 5 * (8 + 6));
    assert!(served.iter().all(|one| *one == served[0]), "the same in any pieces");
}

#[test]
fn a_write_that_is_given_up_names_its_slot() {
    let mut intake = intake();
    let bytes = [&message(write(100), 1, &[])[..], &[1; 40]].concat();
    let mut client = Client::saying(&bytes);
    client.talk(&mut intake, &mut || usize::MAX);
    let receive = intake.receive().expect("the rest is wanted");
    assert_eq!(intake.abandon(), None, "it is out");
    assert_eq!(intake.waste(receive), Some(0));
    assert_eq!(intake.abandon(), None, "once");
}

#[test]
fn a_payload_that_grows_is_the_same_in_any_pieces_and_not_copied() {
    let long: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let bytes = [message(write(300_000), 1, &long), message(READ, 2, &[])].concat();
    for piece in [usize::MAX, 100_000, 4096, 977] {
        let mut client = Client { memory: 4096, ..Client::saying(&bytes) };
        client.talk(&mut intake(), &mut || piece);
        assert!(client.served == [(write(300_000), long.clone()), (READ, Vec::new())], "{piece}");
        assert_eq!(client.copied, 0);
    }
}

#[test]
fn a_payload_without_memory_is_past_and_what_follows_is_served() {
    let long = vec![7; 300_000];
    let bytes = [
        message(write(300_000), 1, &long),
        message(write(100), 2, &[8; 100]),
        message(READ, 3, &[]),
    ]
    .concat();
    for (memory, piece) in [(4096, usize::MAX), (4096, 977), (64 << 10, 1000)] {
        let memory_max = 64 << 10;
        let mut client = Client { memory, memory_max, ..Client::saying(&bytes) };
        client.talk(&mut intake(), &mut || piece);
        let expected =
            [(write(300_000), vec![0xff]), (write(100), vec![8; 100]), (READ, Vec::new())];
        assert!(client.served == expected, "{memory} {piece}");
    }
}
