//! A client of NBD with nothing but what a test needs: many requests in flight on one connection, and the time of each.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const EXPORT_NAME: u32 = 1;
/// Fixed newstyle, and no zeroes behind the export's data.
const CLIENT_FLAGS: u32 = 3;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;

/// A connection to the export of the empty name, with a limit for each answer.
pub(crate) struct Client {
    stream: UnixStream,
}

impl Client {
    pub(crate) fn connect(socket: &Path, limit: Duration) -> Self {
        let mut stream = UnixStream::connect(socket).expect("a server");
        stream.set_read_timeout(Some(limit)).expect("a socket has timeouts");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        let mut words = CLIENT_FLAGS.to_be_bytes().to_vec();
        words.extend(OPTION_MAGIC.to_be_bytes());
        words.extend(EXPORT_NAME.to_be_bytes());
        words.extend(0_u32.to_be_bytes());
        stream.write_all(&words).expect("an option");
        let mut export = [0; 10];
        stream.read_exact(&mut export).expect("an export");
        Self { stream }
    }

    fn ask(&mut self, kind: u16, cookie: u64, (offset, length): (u64, usize), payload: &[u8]) {
        let mut words = REQUEST_MAGIC.to_be_bytes().to_vec();
        words.extend(0_u16.to_be_bytes());
        words.extend(kind.to_be_bytes());
        words.extend(cookie.to_be_bytes());
        words.extend(offset.to_be_bytes());
        words.extend(u32::try_from(length).expect("short").to_be_bytes());
        words.extend(payload);
        self.stream.write_all(&words).expect("a request");
    }

    pub(crate) fn ask_read(&mut self, cookie: u64, offset: u64, length: usize) {
        self.ask(READ, cookie, (offset, length), &[]);
    }

    pub(crate) fn ask_write(&mut self, cookie: u64, offset: u64, bytes: &[u8]) {
        self.ask(WRITE, cookie, (offset, bytes.len()), bytes);
    }

    /// The cookie of the next answer, which must be a good one; none if there is none in time.
    pub(crate) fn hear(&mut self) -> Option<u64> {
        let mut words = [0; 16];
        match self.stream.read_exact(&mut words) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
            Err(error) => panic!("an answer: {error}"),
        }
        let four = |at: usize| <[u8; 4]>::try_from(&words[at..at + 4]).expect("four bytes");
        assert_eq!(u32::from_be_bytes(four(0)), REPLY_MAGIC);
        assert_eq!(u32::from_be_bytes(four(4)), 0, "an error");
        Some(u64::from_be_bytes(words[8..].try_into().expect("eight bytes")))
    }

    /// One write by itself, that may fail: the error's number, 0 if it is well.
    pub(crate) fn try_write(&mut self, offset: u64, bytes: &[u8]) -> u32 {
        self.ask_write(0, offset, bytes);
        let mut words = [0; 16];
        self.stream.read_exact(&mut words).expect("an answer in time");
        u32::from_be_bytes(words[4..8].try_into().expect("four bytes"))
    }

    /// What follows the answer to a read.
    pub(crate) fn payload(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("a payload");
        bytes
    }

    /// One read by itself; none if there is no answer in time, and then nothing can be asked any more.
    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Option<Vec<u8>> {
        self.ask_read(0, offset, length);
        self.hear()?;
        Some(self.payload(length))
    }

    /// One read by itself, that may fail: the error's number.
    pub(crate) fn try_read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        self.ask_read(0, offset, length);
        let mut words = [0; 16];
        self.stream.read_exact(&mut words).expect("an answer in time");
        match u32::from_be_bytes(words[4..8].try_into().expect("four bytes")) {
            0 => Ok(self.payload(length)),
            error => Err(error),
        }
    }

    /// One write by itself.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.ask_write(0, offset, bytes);
        self.hear().expect("an answer in time");
    }

    pub(crate) fn flush(&mut self) {
        self.ask(FLUSH, 0, (0, 0), &[]);
        self.hear().expect("an answer in time");
    }
}
