//! A device that is served as it stands: no array of its own, and so no jobs, no history and nothing to be looked at or set.
//!
//! ```text
//!   a client's request ─▶ queue ─▶ one of a few threads ─▶ the device, by calls that block ─▶ completion
//! ```
//!
//! Rescue serves an array in the middle of a reshape like this: to its clients it is one device, whatever is read where.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use braid_console::error::CliError;
use braid_console::error::system::system;
use braid_frontend_nbd::{ClientRequest, Completion, Export, Outcome, RequestError};
use braid_member::{Member, MemberError};
use braid_runtime::Disk;

use super::export::DiskExport;

/// Threads that ask a device: an array below it serves as many requests at a time.
const THREADS: usize = 4;

/// A device that is to be served. It is read and written at any byte.
pub struct Device {
    /// The name of its export.
    pub name: String,
    /// The UUID of the array that it stands for, as it is printed.
    pub uuid: String,
    /// What it is, in words.
    pub kind: String,
    /// The device.
    pub device: Arc<dyn Member>,
    /// Writes are refused.
    pub read_only: bool,
    /// The smallest block that its users may write, if it says so.
    pub logical_block_bytes: Option<u32>,
}

impl Device {
    /// The device as an export.
    pub(super) fn export(&self) -> Result<(Arc<DeviceDisk>, Arc<dyn Export>), CliError> {
        let disk = DeviceDisk::start(Arc::clone(&self.device), self.read_only);
        let disk = disk.map_err(|error| system("a device cannot be served", &error))?;
        let (served, kind) = (Arc::clone(&disk), self.kind.clone());
        let block_bytes = self.logical_block_bytes;
        let export = DiskExport::new(self.name.clone(), served, block_bytes, move || kind.clone());
        Ok((disk, Arc::new(export)))
    }
}

/// A device behind a queue.
pub(super) struct DeviceDisk {
    device: Arc<dyn Member>,
    read_only: bool,
    queue: Sender<(ClientRequest, Completion)>,
}

impl DeviceDisk {
    fn start(device: Arc<dyn Member>, read_only: bool) -> std::io::Result<Arc<Self>> {
        let (queue, requests) = channel();
        let requests = Arc::new(Mutex::new(requests));
        for _ in 0..THREADS {
            let (device, requests) = (Arc::clone(&device), Arc::clone(&requests));
            let work = move || while serve_one(&*device, read_only, &requests).is_continue() {};
            // It ends with the queue.
            thread::Builder::new().name("braid-device".into()).spawn(work)?;
        }
        Ok(Arc::new(Self { device, read_only, queue }))
    }

    /// Makes all that was written durable.
    pub(super) fn flush(&self) -> Result<(), MemberError> {
        if self.read_only { Ok(()) } else { self.device.flush() }
    }
}

fn serve_one(
    device: &dyn Member,
    read_only: bool,
    requests: &Mutex<Receiver<(ClientRequest, Completion)>>,
) -> ControlFlow<()> {
    let next = requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
    let Ok((request, completion)) = next else { return ControlFlow::Break(()) };
    completion.complete(carry_out(device, read_only, request));
    ControlFlow::Continue(())
}

fn carry_out(device: &dyn Member, read_only: bool, request: ClientRequest) -> Outcome {
    let denied = |payload| Outcome { result: Err(RequestError::ReadOnly), payload };
    let (result, payload) = match request {
        ClientRequest::Read { offset, mut payload } => {
            (device.read_at(&mut payload, offset), Some(payload))
        }
        ClientRequest::Write { payload, .. } if read_only => return denied(Some(payload)),
        ClientRequest::WriteZeroes { .. } | ClientRequest::Trim { .. } if read_only => {
            return denied(None);
        }
        ClientRequest::Write { offset, payload, durable } => {
            (device.write_at(&payload, offset, durable), Some(payload))
        }
        ClientRequest::WriteZeroes { fast: true, .. } if !device.can_zero_fast() => {
            return Outcome { result: Err(RequestError::NotFast), payload: None };
        }
        ClientRequest::WriteZeroes { offset, length, may_punch, durable, .. } => {
            let zeroed = device.zero(offset, length, may_punch);
            (zeroed.and_then(|()| if durable { device.flush() } else { Ok(()) }), None)
        }
        ClientRequest::Flush if !read_only => (device.flush(), None),
        // Nothing was written, or nothing need be done.
        ClientRequest::Flush | ClientRequest::Trim { .. } => (Ok(()), None),
    };
    Outcome { result: result.map_err(error), payload }
}

fn error(error: MemberError) -> RequestError {
    match error {
        MemberError::OutOfSpace { .. } | MemberError::FileTooLong => RequestError::NoSpace,
        MemberError::OutOfBounds { .. } => RequestError::OutOfRange,
        MemberError::ReadOnly | MemberError::Protected { .. } => RequestError::ReadOnly,
        _ => RequestError::Io("the device cannot be read or written there"),
    }
}

impl Disk for DeviceDisk {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn unit_bytes(&self) -> u64 {
        512
    }

    fn zeroes_fast(&self, _: u64, _: u64) -> bool {
        self.device.can_zero_fast()
    }

    fn submit(&self, request: ClientRequest, completion: Completion) {
        // Without any thread the request is dropped, and its completion says so.
        let _ = self.queue.send((request, completion));
    }
}

#[cfg(test)]
mod tests {
    use braid_member::MemoryMember;
    use braid_runtime::Payload;

    use super::*;

    fn asked(disk: &DeviceDisk, request: ClientRequest) -> Outcome {
        let (sender, told) = channel();
        let tell = move |outcome| sender.send(outcome).expect("heard");
        disk.submit(request, Completion::from_fn(tell));
        told.recv().expect("each request is answered")
    }

    #[test]
    fn a_device_is_read_and_written_at_any_byte() {
        let device: Arc<dyn Member> = Arc::new(MemoryMember::new(1 << 16));
        let disk = DeviceDisk::start(Arc::clone(&device), false).expect("threads");
        let (offset, payload) = (777, Payload::from(vec![7; 1000]));
        let write = ClientRequest::Write { offset, payload, durable: true };
        assert_eq!(asked(&disk, write).result, Ok(()));
        let zero = ClientRequest::WriteZeroes {
            offset: 1000,
            length: 100,
            may_punch: true,
            fast: false,
            durable: false,
        };
        assert_eq!(asked(&disk, zero).result, Ok(()));
        let read = |disk: &DeviceDisk, offset| {
            asked(disk, ClientRequest::Read { offset, payload: Payload::zeroed(400) })
        };
        let found = read(&disk, 700).payload.expect("a read has its payload back");
        let expected = (700..1100).map(|at| u8::from((777..1000).contains(&at)) * 7);
        assert!(found.iter().copied().eq(expected), "{:?}", &found[..]);
        assert_eq!(read(&disk, (1 << 16) - 1).result, Err(RequestError::OutOfRange));
        let disk = DeviceDisk::start(device, true).expect("threads");
        assert_eq!(read(&disk, 700).payload.as_deref(), Some(&found[..]));
        let trim = ClientRequest::Trim { offset: 0, length: 512, durable: false };
        assert_eq!(asked(&disk, trim).result, Err(RequestError::ReadOnly));
        assert_eq!(asked(&disk, ClientRequest::Flush).result, Ok(()));
    }
}
