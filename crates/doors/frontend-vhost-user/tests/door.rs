//! Tests the door from outside: with clients that send random messages, and afterwards with a
//! correct client, which is served.

use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use braid_frontend_vhost_user::{CloseResult, Disk, Door};
use braid_runtime::{ClientRequest, Completion, Outcome};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vhost::VhostBackend;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};

const SIZE: u64 = 1 << 24;

/// A disk without content that counts its operations.
#[derive(Default)]
struct EmptyDisk {
    asked: AtomicUsize,
}

impl Disk for EmptyDisk {
    fn size_bytes(&self) -> u64 {
        SIZE
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn unit_bytes(&self) -> u64 {
        1 << 16
    }

    fn submit(&self, operation: ClientRequest, completion: Completion) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let payload = match operation {
            ClientRequest::Read { payload, .. } | ClientRequest::Write { payload, .. } => {
                Some(payload)
            }
            _ => None,
        };
        completion.complete(Outcome { result: Ok(()), payload });
    }
}

fn open(path: &Path) -> (Door, Arc<EmptyDisk>) {
    let listener = UnixListener::bind(path).expect("a socket");
    listener.set_nonblocking(true).expect("a socket");
    let disk = Arc::<EmptyDisk>::default();
    let served: Arc<dyn Disk> = Arc::<EmptyDisk>::clone(&disk);
    let door = Door::open(listener.into(), (served, 512, [b'x'; 20]), None).expect("a door");
    (door, disk)
}

/// Sends a message with files; returns false if the other end has closed the connection.
fn say(socket: &UnixStream, bytes: &[u8], files: &[OwnedFd]) -> bool {
    let descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).is_ok()
}

fn memory(random: &mut fastrand::Rng) -> OwnedFd {
    let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd"));
    file.set_len(4096 * random.u64(..64)).expect("a length");
    file.into()
}

fn length_of(body: &[u8]) -> u32 {
    u32::try_from(body.len()).expect("short")
}

fn number(random: &mut fastrand::Rng) -> u64 {
    match random.u8(..8) {
        0 => random.u64(..),
        1 => u64::MAX - random.u64(..8),
        2 => 1 << random.u32(..64),
        3 => 4096 * random.u64(..64),
        _ => random.u64(..4),
    }
}

/// A random message of a known kind, with about the right length and random files.
fn anything(random: &mut fastrand::Rng) -> (Vec<u8>, Vec<OwnedFd>) {
    let code = random.u32(..46);
    let flags = *random.choice(&[1_u32, 9, 9, 9, 0, 5, 0xffff_ffff]).expect("some");
    let words = *random.choice(&[0, 1, 1, 2, 3, 5, 5, 9]).expect("some");
    let mut body: Vec<u8> = (0..words).flat_map(|_| number(random).to_le_bytes()).collect();
    if random.u8(..4) == 0 {
        body.truncate(random.usize(..=body.len()));
    }
    // Makes the body of a SET_MEM_TABLE message: one region, or a wrong count.
    if code == 5 && random.bool() {
        body = [1_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat();
        body.extend(
            [0_u64, 4096 * random.u64(..70), 1 << 40, 4096 * random.u64(..3)]
                .map(u64::to_le_bytes)
                .concat(),
        );
    }
    let length = if random.u8(..20) == 0 { random.u32(..) } else { length_of(&body) };
    let mut bytes = [code, flags, length].map(u32::to_le_bytes).concat();
    bytes.extend(body);
    let files = (0..*random.choice(&[0, 0, 1, 1, 1, 2]).expect("some"))
        .map(|_| match random.bool() {
            true => memory(random),
            false => {
                eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
            }
        })
        .collect();
    (bytes, files)
}

#[test]
fn whatever_clients_say_the_next_one_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("machine.sock");
    let (door, _) = open(&path);
    let mut random = fastrand::Rng::with_seed(5);
    let mut heard = 0;
    for _ in 0..1500 {
        let mut socket = UnixStream::connect(&path).expect("it is listened at");
        // Begins with valid messages, so that the server accepts more of the random ones.
        let features = number(&mut random) | 1 << 30 | 1 << 32;
        let agreed = 1 | 8 | 0x200 | 0x1000 | 0x8000_u64;
        for (code, word) in
            [(1, None), (15, None), (16, Some(agreed)), (2, Some(features & 0x1_7000_6246))]
        {
            let body = word.map_or(Vec::new(), |word: u64| word.to_le_bytes().to_vec());
            let mut bytes = [code, 1_u32, length_of(&body)].map(u32::to_le_bytes).concat();
            bytes.extend(body);
            say(&socket, &bytes, &[]);
        }
        for _ in 0..random.usize(..12) {
            let (bytes, files) = anything(&mut random);
            if !say(&socket, &bytes, &files) {
                break;
            }
        }
        // Reads the door's answers, if it sends any.
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        heard += usize::from(socket.read(&mut [0; 20]).is_ok_and(|bytes| bytes > 0));
    }
    assert_eq!(heard, 1500, "each has heard which features there are");
    let mut client = Frontend::connect(&path, 1).expect("it is listened at");
    client.set_owner().expect("an owner");
    let features = client.get_features().expect("features");
    client.set_features(features).expect("features");
    let way = client.get_protocol_features().expect("features");
    client.set_protocol_features(way & !VhostUserProtocolFeatures::REPLY_ACK).expect("features");
    let told = client.get_config(0, 8, VhostUserConfigFlags::empty(), &[0; 8]);
    assert_eq!(told.expect("a configuration").1, (SIZE / 512).to_le_bytes());
    assert_eq!(
        door.close(Duration::from_secs(10)),
        CloseResult { was_in_use: true, unanswered: 0 }
    );
}

#[test]
fn a_client_that_is_silent_does_not_keep_the_door_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("machine.sock");
    let (door, disk) = open(&path);
    let silent = UnixStream::connect(&path).expect("it is listened at");
    // Sends half of a message's header.
    say(&silent, &[1, 0, 0, 0, 1, 0], &[]);
    let waits = UnixStream::connect(&path).expect("it is listened at");
    std::thread::sleep(Duration::from_millis(20));
    assert!(door.close(Duration::from_secs(10)).was_in_use);
    drop((silent, waits));
    assert_eq!(disk.asked.load(Ordering::Relaxed), 0);
    assert!(UnixStream::connect(&path).is_err(), "no server listens any more");
}
