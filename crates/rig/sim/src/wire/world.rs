//! The world's connections: it opens them, delivers their bytes, and ends them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use braid_nbd_proto::{
    BlockSizes, ClientPlan, ClientSession, ExportDescription, Goal, ServerSession, Style,
};

use super::{ClientEnd, Connection, Ending, Fragments, Pipe, ServerEnd, State};
use crate::content::SECTOR;
use crate::random::Random;
use crate::world::World;

impl World {
    /// A client connects. `random` draws its negotiation and the fragments of its bytes.
    pub(crate) fn connect(&mut self, random: &mut Random) -> usize {
        self.tally.count("nbd-connections");
        let structured_replies = random.chance(75);
        let is_read_only = random.chance(8);
        let index = self.engine.clients.connections.len();
        let plan = ClientPlan {
            export: if is_read_only { "look" } else { *random.pick(&["", "array"]) }.to_owned(),
            goal: *random.pick(&[Goal::Transmit, Goal::Transmit, Goal::TransmitByExportName]),
            start_tls: false,
            structured_replies,
            // `extended_headers` is not drawn from `random`, so that old seeds keep their worlds.
            extended_headers: structured_replies && index % 2 == 1,
            allocation_context: structured_replies && random.chance(70),
        };
        let fragments = *random.pick(&[Fragments::Whole, Fragments::Short, Fragments::Any]);
        let is_at_once = random.chance(75);
        let size_bytes = self.geometry.capacity_sectors() * SECTOR as u64;
        self.note("connect", [index as u64, u64::from(structured_replies), 0]);
        self.engine.clients.connections.push(Connection {
            server: ServerEnd {
                session: ServerSession::new(catalog(size_bytes)),
                negotiated: None,
                receiving: None,
                serving: 0,
            },
            client: ClientEnd {
                session: ClientSession::new(plan),
                is_ready: false,
                style: Style::Simple,
                is_read_only,
                backlog: VecDeque::new(),
                pending: BTreeMap::new(),
                next_cookie: random.next() | 1,
                filling: None,
            },
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            fragments,
            state: State::Open,
            ending: Ending::No,
        });
        self.hear_server(index);
        while is_at_once && !self.connection(index).client.is_ready {
            let (to_server, _) = self.connection(index).has_bytes();
            self.deliver((index, to_server), random);
        }
        index
    }

    /// Whether the client of a connection may send more requests.
    pub(crate) fn is_open(&self, index: usize) -> bool {
        self.engine.clients.connections[index].is_open()
    }

    pub(super) fn connection(&mut self, index: usize) -> &mut Connection {
        &mut self.engine.clients.connections[index]
    }

    pub(crate) fn has_bytes_on_wires(&self) -> bool {
        let mut connections = self.engine.clients.connections.iter();
        connections.any(|connection| connection.has_bytes() != (false, false))
    }

    /// Delivers some bytes in one direction of one connection.
    pub(crate) fn deliver_some(&mut self) {
        let mut open = Vec::new();
        for (index, connection) in self.engine.clients.connections.iter().enumerate() {
            let (to_server, to_client) = connection.has_bytes();
            open.extend(to_server.then_some((index, true)));
            open.extend(to_client.then_some((index, false)));
        }
        let mut random = self.chances.schedule.clone();
        let which = *random.pick(&open);
        self.deliver(which, &mut random);
        self.chances.schedule = random;
    }

    pub(super) fn deliver(&mut self, (index, to_server): (usize, bool), random: &mut Random) {
        let connection = self.connection(index);
        let fragments = connection.fragments;
        let pipe = if to_server { &mut connection.to_server } else { &mut connection.to_client };
        let count = fragments.next(pipe.left(), random);
        let bytes = pipe.take(count);
        self.note("deliver", [index as u64, u64::from(to_server), count as u64]);
        if to_server {
            self.server_takes(index, &bytes);
        } else {
            self.client_takes(index, &bytes);
        }
        self.end_if_over(index);
    }

    /// Closes a connection if no more bytes can arrive on it.
    fn end_if_over(&mut self, index: usize) {
        let connection = self.connection(index);
        let (to_server, to_client) = connection.has_bytes();
        if connection.ending == Ending::Breaks && !to_server {
            self.cut(index);
        } else if connection.state == State::Leaving && connection.server.serving == 0 && !to_client
        {
            let left = connection.close();
            assert!(left.is_empty(), "the server leaves without an answer to {left:?}");
        }
    }
}

fn catalog(size_bytes: u64) -> Arc<[ExportDescription]> {
    let export = |name: &str, read_only| ExportDescription {
        name: name.to_owned(),
        is_withdrawn: false,
        description: String::new(),
        size_bytes,
        read_only,
        multi_conn: true,
        block_sizes: BlockSizes::BYTE_GRANULAR,
    };
    [export("array", false), export("look", true)].into()
}
