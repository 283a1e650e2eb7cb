//! The clients and their requests: the shape of blogbench, with a named constant for every number.
//! ```text
//!   reader      a file anywhere, block after block, then the next file
//!   writer      a new file, then fsync          rewriter    an existing file, anew, then fsync
//!   commenter   one block anywhere, then fsync  flooder     new files in a row, never fsync
//! ```
//! Every client waits for an answer before its next request, except a flooder, which has several
//! requests in flight.

use crate::random::Random;

/// Sectors of one request: 16 KiB.
pub(super) const BLOCK_SECTORS: u64 = 32;
/// Number of requests of one file of 64 KiB.
pub(super) const FILE_BLOCKS: u64 = 4;
const FILE_SECTORS: u64 = BLOCK_SECTORS * FILE_BLOCKS;
/// Time that a client spends by itself for each request.
pub(super) const THINK_NS: u64 = 100_000;
/// Number of requests that a flooder has in flight.
const FLOOD_DEPTH: u64 = 16;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shape {
    pub(super) readers: usize,
    pub(super) writers: usize,
    pub(super) rewriters: usize,
    pub(super) commenters: usize,
    pub(super) flooders: usize,
}

impl Shape {
    /// The numbers of clients that blogbench itself has.
    pub(super) const BLOGBENCH: Self =
        Self { readers: 100, writers: 3, rewriters: 1, commenters: 5, flooders: 0 };

    pub(super) fn clients(&self, capacity: u64) -> Vec<Client> {
        let Self { readers, writers, rewriters, commenters, flooders } = *self;
        let kinds = [
            (Kind::Reader, readers),
            (Kind::Writer, writers),
            (Kind::Rewriter, rewriters),
            (Kind::Commenter, commenters),
            (Kind::Flooder, flooders),
        ];
        let all = kinds.into_iter().flat_map(|(kind, count)| std::iter::repeat_n(kind, count));
        (1..).zip(all).map(|(seed, kind)| Client::new(seed, kind, capacity)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Reader,
    Writer,
    Rewriter,
    Commenter,
    Flooder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Read { start: u64, sectors: u64 },
    Write { start: u64, sectors: u64 },
    Fsync,
}

#[derive(Debug)]
pub(super) struct Client {
    kind: Kind,
    random: Random,
    capacity: u64,
    /// The client's current file.
    file: u64,
    /// Blocks of that file that the client has requested.
    blocks: u64,
    pub(super) ready_at: u64,
    pub(super) outstanding: u64,
    /// Files read to their end, or works made durable.
    pub(super) works: u64,
}

impl Client {
    fn new(seed: u64, kind: Kind, capacity: u64) -> Self {
        let mut client = Self {
            kind,
            random: Random::new(seed),
            capacity,
            file: 0,
            blocks: 0,
            ready_at: 0,
            outstanding: 0,
            works: 0,
        };
        client.turn_to_next_file();
        client
    }

    pub(super) fn is_reader(&self) -> bool {
        self.kind == Kind::Reader
    }

    pub(super) fn file(&self) -> u64 {
        self.file
    }

    /// Whether the client's next request is the first of a file.
    pub(super) fn begins(&self) -> bool {
        self.blocks == 0
    }

    pub(super) fn may_ask(&self) -> bool {
        let depth = if self.kind == Kind::Flooder { FLOOD_DEPTH } else { 1 };
        self.outstanding < depth
    }

    /// The client's next request. The caller must have checked [`Self::may_ask`].
    pub(super) fn ask(&mut self, now: u64) -> Wish {
        self.outstanding += 1;
        if self.kind == Kind::Flooder {
            self.ready_at = now + THINK_NS;
        }
        let (start, sectors) =
            (self.file * FILE_SECTORS + self.blocks * BLOCK_SECTORS, BLOCK_SECTORS);
        let blocks = if self.kind == Kind::Commenter { 1 } else { FILE_BLOCKS };
        self.blocks += 1;
        match self.kind {
            Kind::Reader | Kind::Flooder => {
                if self.blocks == FILE_BLOCKS {
                    self.turn_to_next_file();
                }
                match self.kind {
                    Kind::Reader => Wish::Read { start, sectors },
                    _ => Wish::Write { start, sectors },
                }
            }
            _ if self.blocks > blocks => {
                self.turn_to_next_file();
                Wish::Fsync
            }
            _ => Wish::Write { start, sectors },
        }
    }

    pub(super) fn answered(&mut self, now: u64, wish: Wish) {
        self.outstanding -= 1;
        if self.kind != Kind::Flooder {
            self.ready_at = now + THINK_NS;
        }
        self.works += match (self.kind, wish) {
            (Kind::Reader, _) => u64::from(self.blocks == 0),
            (_, Wish::Fsync) => 1,
            _ => 0,
        };
    }

    /// Begins the client's next file. Files that are read and rewritten are in the lower half of
    /// the array. New files are in the upper half, where each writer starts at its own place and
    /// continues after its last file.
    fn turn_to_next_file(&mut self) {
        let half = self.capacity / FILE_SECTORS / 2;
        self.blocks = 0;
        self.file = match self.kind {
            Kind::Writer | Kind::Flooder if self.file >= half => {
                half + (self.file + 1 - half) % half
            }
            Kind::Writer | Kind::Flooder => half + self.random.below(half),
            _ => self.random.below(half),
        };
    }
}
