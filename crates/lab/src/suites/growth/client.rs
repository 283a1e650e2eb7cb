//! A client of NBD that is as little as one can be: it is greeted, reads, and says nothing else.
//!
//! fio and the kernel's client do not have ten thousand connections; this one has a socket, and no thread.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Fixed newstyle, and no zeroes behind the answer.
const FLAGS: u32 = 3;
const EXPORT_NAME: u32 = 1;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
/// Longer than any answer takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection, past its negotiation.
#[derive(Debug)]
pub(in crate::suites) struct Client {
    socket: UnixStream,
    pub(super) size_bytes: u64,
    asked: u64,
}

impl Client {
    /// Asks for the export without a name.
    pub(in crate::suites) fn open(path: &Path) -> Result<Self, String> {
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut socket = UnixStream::connect(path).map_err(said)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(said)?;
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).map_err(said)?;
        let word = |at: usize| {
            let bytes: [u8; 8] = greeting[at..at + 8].try_into().expect("eight bytes");
            u64::from_be_bytes(bytes)
        };
        if word(0) != GREETING || word(8) != OPTION {
            return Err(format!("{} is no NBD server", path.display()));
        }
        let mut hello = FLAGS.to_be_bytes().to_vec();
        hello.extend(OPTION.to_be_bytes());
        hello.extend(EXPORT_NAME.to_be_bytes());
        hello.extend(0_u32.to_be_bytes());
        socket.write_all(&hello).map_err(said)?;
        let mut export = [0; 10];
        socket.read_exact(&mut export).map_err(said)?;
        let size: [u8; 8] = export[..8].try_into().expect("eight bytes");
        Ok(Self { socket, size_bytes: u64::from_be_bytes(size), asked: 0 })
    }

    /// Sends a read.
    pub(super) fn ask(&mut self, offset: u64, length: u32) -> Result<(), String> {
        self.asked += 1;
        let mut request = [0; 28];
        request[..4].copy_from_slice(&REQUEST.to_be_bytes());
        request[6..8].copy_from_slice(&READ.to_be_bytes());
        request[8..16].copy_from_slice(&self.asked.to_be_bytes());
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&length.to_be_bytes());
        self.socket.write_all(&request).map_err(|error| error.to_string())
    }

    /// Takes the answer, which is as long as the buffer.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> Result<(), String> {
        let mut head = [0; 16];
        self.socket.read_exact(&mut head).map_err(|error| error.to_string())?;
        let mut wanted = [0; 16];
        wanted[..4].copy_from_slice(&REPLY.to_be_bytes());
        wanted[8..].copy_from_slice(&self.asked.to_be_bytes());
        if head != wanted {
            return Err(format!("the server answered {head:02x?}"));
        }
        self.socket.read_exact(buffer).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn it_is_greeted_reads_and_tells_what_is_no_answer() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let server = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().expect("a client");
            peer.write_all(b"NBDMAGICIHAVEOPT\0\x03").expect("greeted");
            let mut hello = [0; 20];
            peer.read_exact(&mut hello).expect("an option");
            peer.write_all(&[0, 0, 0, 0, 0, 0, 16, 0, 0, 1]).expect("an export");
            for error in [0, 5] {
                let mut request = [0; 28];
                peer.read_exact(&mut request).expect("a request");
                let mut reply = REPLY.to_be_bytes().to_vec();
                reply.extend([0, 0, 0, error]);
                reply.extend(&request[8..16]);
                reply.extend([7; 4]);
                peer.write_all(&reply).expect("answered");
            }
            let (mut peer, _) = listener.accept().expect("a client");
            peer.write_all(b"SSH-2.0-OpenSSH_10").expect("greeted otherwise");
        });
        let mut client = Client::open(&path).expect("it is greeted");
        assert_eq!(client.size_bytes, 4096);
        let mut bytes = [0; 4];
        client.ask(512, 4).expect("asked");
        client.take(&mut bytes).expect("answered");
        assert_eq!(bytes, [7; 4]);
        client.ask(0, 4).expect("asked");
        assert!(client.take(&mut bytes).is_err(), "an error is no data");
        assert!(Client::open(&path).is_err_and(|why| why.contains("no NBD server")));
        server.join().expect("it ends");
    }
}
