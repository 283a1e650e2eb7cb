//! A client of NBD on the crate's own half of a session, with extended headers: one request at a time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use braid_nbd_proto::{
    ClientEvent, ClientPlan, ClientSession, Command, ErrorCode, ExportInfo, Extent, Goal,
};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection, and what it was told of its export.
pub(crate) struct SessionClient {
    stream: UnixStream,
    session: ClientSession,
    input: Vec<u8>,
    cookie: u64,
    pub(crate) info: ExportInfo,
}

impl SessionClient {
    pub(crate) fn connect(socket: &Path, export: &str) -> Self {
        let stream = UnixStream::connect(socket).expect("a server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
        let session = ClientSession::new(ClientPlan {
            export: export.to_owned(),
            goal: Goal::Transmit,
            structured_replies: false,
            extended_headers: true,
            allocation_context: true,
        });
        let info = ExportInfo::default();
        let mut client = Self { stream, session, input: Vec::new(), cookie: 0, info };
        loop {
            match client.next_event() {
                ClientEvent::Transmit(bytes) => client.send(&bytes),
                ClientEvent::Ready(info) => {
                    client.info = info;
                    return client;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server listens");
    }

    fn next_event(&mut self) -> ClientEvent {
        loop {
            if let Some(event) = self.session.poll_event() {
                return event;
            }
            if self.input.is_empty() {
                let mut buffer = [0; 4096];
                let received = self.stream.read(&mut buffer).expect("the server answers");
                assert!(received > 0, "the server hung up");
                self.input.extend_from_slice(&buffer[..received]);
            }
            let taken = self.session.handle_bytes(&self.input);
            self.input.drain(..taken);
        }
    }

    /// Asks for something without data, and says what extents came with the answer.
    pub(crate) fn call(&mut self, command: Command) -> Result<Vec<Extent>, ErrorCode> {
        self.cookie += 1;
        let header = self.session.submit(self.cookie, command).expect("it was negotiated");
        self.send(&header);
        let mut found = Vec::new();
        loop {
            match self.next_event() {
                ClientEvent::BlockStatus { extents, .. } => found = extents,
                ClientEvent::Completed { result, .. } => return result.map(|()| found),
                other => panic!("{other:?}"),
            }
        }
    }
}
