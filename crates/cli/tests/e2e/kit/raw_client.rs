//! An NBD client for malformed traffic: it negotiates, then the test sends and reads raw bytes.
//!
//! `cargo xtask hostile-memory` includes this file to attack other servers. It uses std only.

use std::io::{Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A client in the transmission phase, with simple replies.
pub(crate) struct RawClient(pub(crate) UnixStream);

impl RawClient {
    /// Connects and negotiates. `patience` is the timeout of each call on the socket.
    pub(crate) fn connect(socket: &Path, patience: Duration) -> Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.read_exact(&mut [0; 18])?;
        Self::greeted(stream)
    }

    /// Negotiates after the server's greeting has been read.
    pub(crate) fn greeted(mut stream: UnixStream) -> Result<Self> {
        // The client's flags: fixed newstyle without zeroes; then EXPORT_NAME of the empty name.
        stream.write_all(&3_u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        stream.read_exact(&mut [0; 10])?;
        Ok(Self(stream))
    }

    /// A request's header; kind 0 reads, 1 writes.
    pub(crate) fn header(kind: u16, offset: u64, bytes: u32) -> Vec<u8> {
        let mut header = 0x2560_9513_u32.to_be_bytes().to_vec();
        header.extend([0, 0]);
        header.extend(kind.to_be_bytes());
        header.extend(7_u64.to_be_bytes());
        header.extend(offset.to_be_bytes());
        header.extend(bytes.to_be_bytes());
        header
    }

    /// Announces a large write, or requests a large read, and sends no data and reads no answer.
    pub(crate) fn attack(&mut self, kind: usize, offset: u64, bytes: u32) -> Result<()> {
        let (read, write) = (Self::header(0, offset, bytes), Self::header(1, offset, bytes));
        self.0.write_all(&match kind % 4 {
            0 => [&write[..], &[1]].concat(),
            1 => [&write[..], &[1; 4096]].concat(),
            2 => read,
            _ => read.repeat(20),
        })
    }
}
