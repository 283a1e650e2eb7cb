//! An NBD client for tests: with the test's cookies, a deadline for answers, and error numbers.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use braid_nbd_client::{ClientError, ClientPlan, Command, ErrorCode, ServerMessage, plan_for};

/// A connection to the export of the empty name, with a time limit for each answer.
pub(crate) struct Client {
    client: braid_nbd_client::Client,
    /// The test's cookie of each request in flight.
    asked: HashMap<u64, u64>,
    /// Data of the read that was answered last, and of the reads in flight so far.
    data: HashMap<u64, Vec<u8>>,
    last: u64,
}

impl Client {
    pub(crate) fn connect(socket: &Path, limit: Duration) -> Self {
        let simple =
            ClientPlan { structured_replies: false, extended_headers: false, ..plan_for("") };
        let client = braid_nbd_client::Client::connect(socket, simple, limit).expect("a server");
        Self { client, asked: HashMap::new(), data: HashMap::new(), last: 0 }
    }

    fn ask(&mut self, cookie: u64, command: Command, payload: &[u8]) {
        let sent = self.client.send(command, payload).expect("a request");
        self.asked.insert(sent, cookie);
    }

    pub(crate) fn ask_read(&mut self, cookie: u64, offset: u64, length: usize) {
        let length = u32::try_from(length).expect("short");
        self.ask(cookie, Command::Read { offset, length, dont_fragment: false }, &[]);
    }

    pub(crate) fn ask_write(&mut self, cookie: u64, offset: u64, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("short");
        self.ask(cookie, Command::Write { offset, length, fua: false }, bytes);
    }

    /// The next answer: the test's cookie and the result; `None` after the time limit.
    fn answer(&mut self) -> Option<(u64, Result<(), ErrorCode>)> {
        loop {
            match self.client.hear() {
                Ok(ServerMessage::Data { cookie, bytes, .. }) => {
                    self.data.entry(cookie).or_default().extend(bytes);
                }
                Ok(ServerMessage::Answer { cookie, result }) => {
                    self.last = cookie;
                    return Some((self.asked.remove(&cookie).expect("it was asked"), result));
                }
                Err(ClientError::Connection(error)) if error.kind() == ErrorKind::WouldBlock => {
                    return None;
                }
                other => panic!("an answer: {other:?}"),
            }
        }
    }

    /// The cookie of the next answer, which must be a success; `None` after the time limit.
    pub(crate) fn hear(&mut self) -> Option<u64> {
        let (cookie, result) = self.answer()?;
        result.expect("an error");
        Some(cookie)
    }

    /// Whether the server ends the connection before it answers any request.
    pub(crate) fn is_hung_up_on(&mut self) -> bool {
        self.client.hear().is_err_and(|error| match error {
            ClientError::HungUp => true,
            ClientError::Connection(error) => error.kind() != ErrorKind::WouldBlock,
            _ => false,
        })
    }

    /// The data of the last answer, which must be a read's.
    pub(crate) fn payload(&mut self, length: usize) -> Vec<u8> {
        let bytes = self.data.remove(&self.last).unwrap_or_default();
        assert_eq!(bytes.len(), length);
        bytes
    }

    /// A single write that may fail; returns the error's number, or 0.
    pub(crate) fn try_write(&mut self, offset: u64, bytes: &[u8]) -> u32 {
        self.ask_write(0, offset, bytes);
        let (_, result) = self.answer().expect("an answer in time");
        result.err().map_or(0, ErrorCode::to_wire)
    }

    /// A single read; `None` after the time limit, and then the client is unusable.
    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Option<Vec<u8>> {
        self.ask_read(0, offset, length);
        self.hear()?;
        Some(self.payload(length))
    }

    /// A single read that may fail with the error's number.
    pub(crate) fn try_read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        self.ask_read(0, offset, length);
        let (_, result) = self.answer().expect("an answer in time");
        result.map(|()| self.payload(length)).map_err(ErrorCode::to_wire)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.ask_write(0, offset, bytes);
        self.hear().expect("an answer in time");
    }

    pub(crate) fn flush(&mut self) {
        self.ask(0, Command::Flush, &[]);
        self.hear().expect("an answer in time");
    }
}
