//! A connection by hand: no socket, no thread, and the clock is an argument.

use std::time::Duration;

use braid_nbd_proto::{Command, wire};

use super::*;
use crate::budget::Budget;
use crate::counters::{Counters, Counts};
use crate::export::IoError;
use crate::memory::MemoryExport;
use crate::registry::{Admission, Registry};
use crate::server::Settings;
use crate::socket::Socket;

struct Table {
    shared: Arc<Shared>,
    connection: Connection,
    now: Instant,
    tasks: Vec<Task>,
    _peer: std::os::unix::net::UnixStream,
}

impl Table {
    fn new(settings: Settings) -> Self {
        let shared = Arc::new(Shared {
            exports: vec![Arc::new(MemoryExport::new("a", 1 << 20))],
            settings,
            counters: Counters::default(),
            budget: Budget::new(settings.payload_bytes_max),
            registry: Registry::default(),
            stopping: false.into(),
        });
        let (ours, peer) = std::os::unix::net::UnixStream::pair().expect("two descriptors");
        let socket = Arc::new(Socket::new(ours.into(), false).expect("nothing is set on it"));
        let Admission::Admitted { id, .. } = shared.registry.admit(&socket, 1, 1) else {
            panic!("there is room for one");
        };
        let now = Instant::now();
        let connection = Connection::new(&shared, id, now);
        Self { shared, connection, now, tasks: Vec::new(), _peer: peer }
    }

    /// One whose client has been let in, and has read everything.
    fn negotiated() -> Self {
        let mut table = Self::new(Settings::default());
        table.send();
        table.say(&3_u32.to_be_bytes());
        table.say(&wire::encode_option(wire::OPT_GO, &[0; 6]));
        table.send();
        assert_eq!(table.counts().negotiated, 1);
        table
    }

    fn counts(&self) -> Counts {
        self.shared.counters.read(0, self.shared.budget.held_bytes())
    }

    /// Says `bytes`, as many as are asked for; whether all were.
    fn say(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            self.connection.advance(self.now);
            let Some(mut receive) = self.connection.receive() else { return false };
            let mut received = 0;
            for part in receive.parts() {
                let moved = part.len().min(bytes.len());
                part[..moved].copy_from_slice(&bytes[..moved]);
                bytes = &bytes[moved..];
                received += moved;
            }
            self.connection.received(receive, Ok(received));
        }
        self.connection.advance(self.now);
        true
    }

    fn ask(&mut self, command: Command, payload: &[u8]) -> bool {
        self.say(&[&command.header(7).encode()[..], payload].concat())
    }

    fn hang_up(&mut self) {
        let receive = self.connection.receive().expect("it is listened to");
        self.connection.received(receive, Ok(0));
        self.connection.advance(self.now);
    }

    fn send(&mut self) -> usize {
        self.connection.advance(self.now);
        let Some(batch) = self.connection.batch() else { return 0 };
        let bytes = batch.parts().map(<[u8]>::len).sum();
        self.connection.sent(batch, Ok(()));
        self.connection.advance(self.now);
        bytes
    }

    fn take(&mut self) -> Vec<(u32, Operation)> {
        self.connection.take_tasks(&mut self.tasks);
        let submit = |task| match task {
            Task::Submit { slot, operation } => (slot, operation),
            Task::Describe { .. } => panic!("nobody asked for extents"),
        };
        self.tasks.drain(..).map(submit).collect()
    }
}

#[test]
fn a_request_goes_in_and_its_reply_out() {
    let mut table = Table::negotiated();
    assert!(table.ask(Command::Write { offset: 5, length: 9, fua: true }, &[8; 9]));
    let mut tasks = table.take();
    let Some((slot, Operation::Write { offset: 5, payload, fua: true })) = tasks.pop() else {
        panic!("{tasks:?}");
    };
    assert_eq!(&payload[..], [8; 9]);
    assert_eq!(table.send(), 0);
    table.connection.finished(slot, Some(Outcome { status: Ok(()), payload: None }));
    assert_eq!(table.send(), 16);
    let counts = table.counts();
    assert_eq!((counts.requests, counts.bytes_written, counts.bytes_in_flight), (1, 9, 0));
}

#[test]
fn nothing_is_listened_to_while_there_is_no_room() {
    let mut table = Table::negotiated();
    let most = crate::limits::IN_FLIGHT_REQUESTS_MAX;
    for _ in 0..most {
        assert!(table.ask(Command::Flush, &[]));
    }
    assert!(table.ask(Command::Flush, &[]), "its header had been asked for");
    let tasks = table.take();
    assert_eq!(tasks.len(), most);
    assert!(table.connection.receive().is_none(), "and no more");
    table.connection.finished(tasks[0].0, Some(Outcome { status: Ok(()), payload: None }));
    assert!(table.connection.receive().is_none(), "a reply that is not out is in flight");
    table.send();
    assert_eq!(table.take().len(), 1);
    assert!(table.connection.receive().is_some());
}

#[test]
fn the_end_of_the_stream_waits_for_replies_and_then_for_the_client() {
    let mut table = Table::negotiated();
    table.ask(Command::Flush, &[]);
    let tasks = table.take();
    table.hang_up();
    assert!(table.connection.receive().is_none() && !table.connection.takes_end_of_sending());
    table.connection.finished(tasks[0].0, None);
    assert_eq!(table.send(), 16, "an error is a reply, too");
    assert!(table.connection.takes_end_of_sending() && !table.connection.takes_end_of_sending());
    let receive = table.connection.receive().expect("until the client closes");
    table.connection.received(receive, Ok(100));
    assert!(!table.connection.is_closed());
    table.hang_up();
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().contract_breaches, 1);
}

#[test]
fn deadlines_end_negotiation_and_the_wait_for_the_client_only() {
    let mut table = Table::new(Settings::default());
    let deadline = table.connection.deadline().expect("negotiation has one");
    table.connection.handle_time(deadline - Duration::from_millis(1));
    assert!(!table.connection.is_closed());
    table.connection.handle_time(deadline);
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().negotiations_failed, 1);

    let mut table = Table::negotiated();
    assert_eq!(table.connection.deadline(), None);
    table.connection.handle_time(deadline + Duration::from_secs(1000));
    assert!(!table.connection.is_closed());
    table.hang_up();
    assert!(table.connection.deadline().is_some());
    table.connection.handle_time(table.now + CLOSE_TIMEOUT);
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().negotiations_failed, 0);
}

#[test]
fn a_client_that_does_not_read_its_answers_is_not_asked_for_more_options() {
    let mut table = Table::new(Settings::default());
    assert!(!table.say(&[0]), "the greeting comes first");
    table.send();
    assert!(table.say(&3_u32.to_be_bytes()));
    assert!(table.say(&wire::encode_option(wire::OPT_LIST, &[])));
    assert!(table.connection.receive().is_none());
    table.send();
    assert!(table.connection.receive().is_some());
}

#[test]
fn half_a_write_is_forgotten_with_its_memory() {
    for broken in [false, true] {
        let mut table = Table::negotiated();
        table.ask(Command::Write { offset: 0, length: 4096, fua: false }, &[1; 100]);
        assert_eq!(table.counts().bytes_in_flight, 4096);
        if broken {
            table.connection.close();
        } else {
            table.hang_up();
        }
        assert!(table.take().is_empty(), "half a write is no write");
        let counts = table.counts();
        assert_eq!((counts.bytes_in_flight, counts.bytes_written), (0, 0));
        assert_eq!(counts.errors, [0; 8]);
    }
}

#[test]
fn a_receive_that_is_out_when_the_end_comes_is_taken_back() {
    let mut table = Table::negotiated();
    table.ask(Command::Write { offset: 0, length: 4096, fua: false }, &[1; 100]);
    let receive = table.connection.receive().expect("the rest is wanted");
    table.connection.close();
    assert!(!table.connection.is_gone(), "its memory is away");
    table.connection.received(receive, Ok(50));
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().bytes_in_flight, 0);
}

#[test]
fn what_was_not_carried_out_when_the_connection_broke_never_is() {
    let mut table = Table::negotiated();
    let read = Command::Read { offset: 0, length: 4096, dont_fragment: false };
    table.ask(read, &[]);
    let with_export = table.take();
    table.ask(read, &[]);
    table.connection.close();
    assert!(table.take().is_empty());
    assert_eq!(table.counts().bytes_in_flight, 4096, "one is with the export");
    let outcome = Outcome { status: Err(IoError::Io), payload: None };
    table.connection.finished(with_export[0].0, Some(outcome));
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().bytes_in_flight, 0);
}

#[test]
fn a_stop_is_seen_before_the_next_request() {
    let mut table = Table::negotiated();
    table.ask(Command::Flush, &[]);
    table.shared.stopping.store(true, Ordering::Release);
    assert!(!table.ask(Command::Flush, &[]));
    assert_eq!(table.take().len(), 1);
    assert_eq!(table.counts().requests, 1);
}
