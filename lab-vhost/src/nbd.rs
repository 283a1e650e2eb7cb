//! A minimal client of NBD: simple replies, one connection, and no checks except for errors.

use std::error::Error;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::transport::{Shape, Transport};

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const OPT_EXPORT_NAME: u32 = 1;
/// Client flags: fixed newstyle, and no zeroes behind the answer to EXPORT_NAME.
const CLIENT_FLAGS: u32 = 3;
/// Bytes of the greeting: two magic numbers and the server's flags.
const GREETING_BYTES: usize = 18;
/// Bytes of the export's description: its size and its flags.
const EXPORT_BYTES: usize = 10;
const REPLY_BYTES: usize = 16;
const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;

pub(crate) struct Nbd {
    socket: BufReader<UnixStream>,
    /// Bytes that wait to be sent.
    outgoing: Vec<u8>,
    /// Memory for the payloads of writes and reads.
    payload: Vec<u8>,
    /// Length of the reads in flight, which all have the same length.
    read_bytes: usize,
}

impl Nbd {
    /// Connects to a server's first export.
    pub(crate) fn connect(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut stream = UnixStream::connect(path)?;
        stream.read_exact(&mut [0; GREETING_BYTES])?;
        let mut hello = CLIENT_FLAGS.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(OPT_EXPORT_NAME.to_be_bytes());
        hello.extend(0_u32.to_be_bytes());
        stream.write_all(&hello)?;
        stream.read_exact(&mut [0; EXPORT_BYTES])?;
        let payload = vec![0x5a; 1 << 20];
        let socket = BufReader::with_capacity(256 << 10, stream);
        Ok(Self { socket, outgoing: Vec::new(), payload, read_bytes: 0 })
    }

    fn reply(&mut self) -> Result<usize, Box<dyn Error>> {
        let mut header = [0; REPLY_BYTES];
        self.socket.read_exact(&mut header)?;
        let word = |at: usize| header[at..at + 4].try_into().map(u32::from_be_bytes);
        if (word(0)?, word(4)?) != (REPLY_MAGIC, 0) {
            return Err(format!("nbd: a request ended with {}", word(4)?).into());
        }
        self.socket.read_exact(&mut self.payload[..self.read_bytes])?;
        Ok(usize::try_from(word(12)?)?)
    }
}

impl Transport for Nbd {
    fn name(&self) -> &'static str {
        "NBD"
    }

    fn submit(&mut self, slot: usize, offset: u64, shape: Shape) {
        let command = if shape.is_write { COMMAND_WRITE } else { COMMAND_READ };
        let length = u32::try_from(shape.length).expect("requests are short");
        self.outgoing.extend(REQUEST_MAGIC.to_be_bytes());
        self.outgoing.extend(0_u16.to_be_bytes());
        self.outgoing.extend(command.to_be_bytes());
        self.outgoing.extend((slot as u64).to_be_bytes());
        self.outgoing.extend(offset.to_be_bytes());
        self.outgoing.extend(length.to_be_bytes());
        self.read_bytes = if shape.is_write { 0 } else { shape.length };
        if shape.is_write {
            self.outgoing.extend(&self.payload[..shape.length]);
        }
    }

    fn complete(&mut self) -> Result<Vec<usize>, Box<dyn Error>> {
        self.socket.get_mut().write_all(&self.outgoing)?;
        self.outgoing.clear();
        let mut slots = vec![self.reply()?];
        while self.socket.buffer().len() >= REPLY_BYTES + self.read_bytes {
            slots.push(self.reply()?);
        }
        Ok(slots)
    }
}
