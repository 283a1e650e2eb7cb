//! The clients' requests: their shapes, and how they reach the array.
//!
//! A run has one to three clients, each with a shape of its own. A client either submits to the
//! array itself or speaks NBD on a connection, which it may share with another client
//! ([`crate::wire`]). Requests are in bytes. Most begin and end at sectors; some shapes rarely do.
//! Every request has a number and draws from its own stream. A run that leaves a request out gives
//! no other request its number.
//!
//! | Shape | Requests |
//! |---|---|
//! | anything | anything anywhere, half of it near the start, so that requests overlap |
//! | bytes | short runs of bytes of any alignment in a few sectors, together with aligned ones |
//! | journal | small writes one after another, half of them durable, and a flush now and then |
//! | copy | long writes one after another |
//! | files | journal blocks, a flush, a durable commit block; later the same blocks in place |
//! | hot spot | 4 KiB overwrites and reads of one short run |
//! | free | trims and zeroes of runs, and writes to them soon after |

use braid_engine::request::ByteOperation;
use braid_nbd_proto::Command;

use crate::chances::Purpose;
use crate::content::SECTOR;
use crate::cut::Kind;
use crate::random::Random;
use crate::wire::{ClientAction, InvalidRequest};
use crate::world::World;

/// A client's pattern of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Anything,
    Bytes,
    Journal { next: u64 },
    Copy { next: u64 },
    Files { next: u64, stage: u64 },
    HotSpot { start: u64 },
    Free { start: u64 },
}

/// A request before it has a `RequestId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestDraft {
    Flush,
    Bytes {
        operation: ByteOperation,
        offset: u64,
        length: u64,
    },
    /// Any other NBD message; only clients on a connection send it.
    Say(ClientAction),
}

#[derive(Clone, Copy, Debug)]
struct Client {
    shape: Shape,
    /// The index of the client's connection in [`Workload::connections`]; `None` if the client
    /// submits to the array itself.
    line: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Workload {
    clients: Vec<Client>,
    /// Connections by the clients' `line`; `None` until the first request opens the connection.
    connections: [Option<usize>; 3],
    pub(crate) requests: u64,
    pub(crate) in_flight_max: usize,
    /// How many requests were drawn, including those that the run leaves out.
    drawn: u64,
    /// The next request: its number in this cycle, its client, and the request itself.
    ready: Option<(u64, usize, RequestDraft)>,
}

impl Workload {
    pub(crate) fn any(world: &World) -> Self {
        let capacity = world.geometry.capacity_sectors();
        let mut random = world.chances.of(Purpose::Workload, 0);
        let is_wired = random.chance(50);
        let count = *random.pick(&[1, 1, 2, 3]);
        let clients = (0..count).map(|_| {
            let line = (is_wired && random.chance(75)).then(|| random.below(3) as usize);
            // A patch of a sector would write wrongly read bytes back. So where disks lie, clients
            // write whole sectors.
            let shape = match shape(capacity, &mut random) {
                Shape::Bytes if world.taint.may_lie => Shape::Anything,
                shape => shape,
            };
            Client { shape, line }
        });
        Self {
            clients: clients.collect(),
            connections: [None; 3],
            in_flight_max: *random.pick(&[1, 2, 4, 8]),
            requests: 1 + random.below(10),
            drawn: 0,
            ready: None,
        }
    }

    /// Whether a request is ready. Draws the next request if none is ready.
    pub(crate) fn is_ready(&mut self, world: &World) -> bool {
        while self.ready.is_none() && self.drawn < self.requests {
            let ordinal = self.drawn;
            self.drawn += 1;
            let mut random = world.chances.of(Purpose::Workload, 1 + ordinal);
            let index = random.below(self.clients.len() as u64) as usize;
            let client = &mut self.clients[index];
            let ask = client.shape.draw(world.geometry.capacity_sectors(), &mut random);
            let other = client.line.and_then(|_| else_on_a_wire(ask, &mut random));
            if !world.chances.leaves_out(Kind::Request, ordinal) {
                self.ready = Some((ordinal, index, other.map_or(ask, RequestDraft::Say)));
            }
        }
        self.ready.is_some()
    }

    /// All requests of a run, with their numbers.
    #[cfg(test)]
    pub(crate) fn all(mut self, world: &World) -> Vec<(u64, RequestDraft)> {
        let next = || {
            self.is_ready(world);
            self.ready.take().map(|(ordinal, _, ask)| (ordinal, ask))
        };
        std::iter::from_fn(next).collect()
    }

    pub(crate) fn issue(&mut self, world: &mut World) {
        let Some((ordinal, client, ask)) = self.ready.take() else { return };
        world.trace.label(world.chances.number(Kind::Request, ordinal));
        let ask = match ask {
            RequestDraft::Bytes { operation, offset, length } => {
                let length = world.chances.length(length);
                RequestDraft::Bytes { operation, offset, length }
            }
            other => other,
        };
        match self.clients[client].line {
            None => match ask {
                RequestDraft::Flush => _ = world.flush(),
                RequestDraft::Bytes { operation, offset, length } => {
                    world.ask(operation, offset, length);
                }
                RequestDraft::Say(say) => unreachable!("{say:?} without a connection"),
            },
            Some(line) => {
                let index = self.connections[line].filter(|index| world.is_open(*index));
                let index = index.unwrap_or_else(|| {
                    world.connect(&mut world.chances.of(Purpose::Wires, 1 + ordinal))
                });
                self.connections[line] = Some(index);
                world.say(index, on_a_wire(ask));
            }
        }
    }
}

/// The message by which an NBD client makes this request.
fn on_a_wire(ask: RequestDraft) -> ClientAction {
    let (operation, offset, length) = match ask {
        RequestDraft::Say(say) => return say,
        RequestDraft::Flush => return ClientAction::Ask(Command::Flush),
        RequestDraft::Bytes { operation, offset, length } => (operation, offset, length as u32),
    };
    ClientAction::Ask(match operation {
        ByteOperation::Read => Command::Read { offset, length, dont_fragment: false },
        ByteOperation::Write { durable } => Command::Write { offset, length, fua: durable },
        ByteOperation::Trim { durable } => {
            Command::Trim { offset, length: length.into(), fua: durable }
        }
        ByteOperation::WriteZeroes { may_punch, fast, durable } => {
            let length = length.into();
            Command::WriteZeroes { offset, length, fua: durable, may_punch, fast }
        }
    })
}

/// Sometimes, another message that a client on a connection sends instead of this request.
fn else_on_a_wire(ask: RequestDraft, random: &mut Random) -> Option<ClientAction> {
    let RequestDraft::Bytes { offset, length, .. } = ask else { return None };
    let length = length as u32;
    let one = random.chance(30);
    Some(match random.below(100) {
        0..4 => ClientAction::Invalid(*random.pick(&InvalidRequest::ALL)),
        4 => ClientAction::Garbage,
        5..8 => {
            let sent = random.below(u64::from(length).min(1000) + 28) as usize;
            ClientAction::Part { offset, length, sent: sent.max(1) }
        }
        8..10 => ClientAction::Cut,
        10 => ClientAction::Disconnect,
        11..15 => ClientAction::Ask(Command::BlockStatus { offset, length: length.into(), one }),
        15..17 => ClientAction::Ask(Command::Cache { offset, length: length.into() }),
        17..20 => ClientAction::Ask(Command::Read { offset, length, dont_fragment: true }),
        _ => return None,
    })
}

fn shape(capacity: u64, random: &mut Random) -> Shape {
    let next = random.below(capacity);
    match random.below(10) {
        0 => Shape::Journal { next },
        1 => Shape::Copy { next },
        2 | 3 => Shape::Bytes,
        4 | 5 => Shape::Files { next: next / 4, stage: 0 },
        6 => Shape::HotSpot { start: next },
        7 => Shape::Free { start: next },
        _ => Shape::Anything,
    }
}

impl Shape {
    fn draw(&mut self, capacity: u64, random: &mut Random) -> RequestDraft {
        let durable = random.chance(50);
        match self {
            Self::Anything => anything(capacity, random),
            Self::Bytes => bytes(capacity, random),
            Self::Journal { next } => {
                if random.chance(25) {
                    return RequestDraft::Flush;
                }
                let sectors = (1 + random.below(4)).min(capacity);
                write(follow(next, sectors, capacity), sectors, durable)
            }
            Self::Copy { next } => {
                let sectors = (8 + random.below(56)).min(capacity);
                write(follow(next, sectors, capacity), sectors, false)
            }
            Self::Files { next, stage } => files(next, stage, capacity, random),
            Self::HotSpot { start } => {
                let sectors = 8.min(capacity);
                let start = (*start / 8 * 8 + 8 * random.below(3)).min(capacity - sectors);
                if random.chance(20) {
                    return ask(ByteOperation::Read, start, sectors);
                }
                write(start, sectors, random.chance(20))
            }
            Self::Free { start } => {
                let sectors = (1 + random.below(40)).min(capacity);
                let start = (*start + random.below(16)).min(capacity - sectors);
                let may_punch = random.chance(70);
                let operation = match random.below(4) {
                    0 => ByteOperation::WriteZeroes { may_punch, fast: durable, durable },
                    1 | 2 => ByteOperation::Trim { durable },
                    _ => ByteOperation::Write { durable },
                };
                ask(operation, start, sectors)
            }
        }
    }
}

fn ask(operation: ByteOperation, start: u64, sectors: u64) -> RequestDraft {
    let (offset, length) = (start * SECTOR as u64, sectors * SECTOR as u64);
    RequestDraft::Bytes { operation, offset, length }
}

fn write(start: u64, sectors: u64, durable: bool) -> RequestDraft {
    ask(ByteOperation::Write { durable }, start, sectors)
}

/// The start of the next request of a sequence; 0 if the array has no room after the last one.
fn follow(next: &mut u64, sectors: u64, capacity: u64) -> u64 {
    let start = if *next + sectors > capacity { 0 } else { *next };
    *next = start + sectors;
    start
}

/// Requests of a file system: the first quarter of the array is its journal, the rest holds the
/// blocks in their places.
fn files(next: &mut u64, stage: &mut u64, capacity: u64, random: &mut Random) -> RequestDraft {
    let block = if capacity >= 64 { 8 } else { 1 };
    let journal = (capacity / 4).max(block);
    *stage += 1;
    match *stage % 5 {
        1 | 2 => write(follow(next, block, journal), block, false),
        3 => RequestDraft::Flush,
        4 => write(follow(next, block, journal), block, true),
        _ => {
            let place = journal + random.below((capacity - journal) / block) * block;
            write(place.min(capacity - block), block, false)
        }
    }
}

fn anything(capacity: u64, random: &mut Random) -> RequestDraft {
    let durable = random.chance(25);
    let (may_punch, fast) = (random.chance(50), random.chance(10));
    let operation = match random.below(100) {
        0..25 => ByteOperation::Read,
        25..80 => ByteOperation::Write { durable },
        80..86 => ByteOperation::WriteZeroes { may_punch, fast, durable },
        86..90 => ByteOperation::Trim { durable },
        _ => return RequestDraft::Flush,
    };
    let longest = *random.pick(&[1, 4, 16, 64, 200]);
    let sectors = (1 + random.below(longest)).min(capacity);
    let room = capacity - sectors + 1;
    let room = if random.chance(50) { room.min(24) } else { room };
    ask(operation, random.below(room), sectors)
}

/// Requests of any alignment within a few sectors, so that they overlap.
fn bytes(capacity: u64, random: &mut Random) -> RequestDraft {
    let size = capacity * SECTOR as u64;
    let durable = random.chance(25);
    let may_punch = random.chance(50);
    let operation = match random.below(20) {
        0..5 => ByteOperation::Read,
        5..15 => ByteOperation::Write { durable },
        15..18 => ByteOperation::WriteZeroes { may_punch, fast: false, durable },
        18 => ByteOperation::Trim { durable },
        _ => return RequestDraft::Flush,
    };
    let spot = (12 * SECTOR as u64).min(size);
    let longest = *random.pick(&[16, 600, 3000]);
    let (mut offset, mut length) = (random.below(spot), 1 + random.below(longest));
    if random.chance(25) {
        offset -= offset % SECTOR as u64;
        length = length.next_multiple_of(SECTOR as u64);
    }
    length = length.min(size - offset);
    RequestDraft::Bytes { operation, offset, length }
}
