//! A device served without an array of braid's around it, and so without jobs, history, status or
//! settings.
//!
//! ```text
//!   client's request ─▶ queue ─▶ one of few threads ─▶ the device, by blocking calls ─▶ completion
//! ```
//!
//! Rescue serves an array in the middle of a reshape as such a device: clients see one device,
//! whichever layout each read uses.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use braid_console::error::CliError;
use braid_console::error::system::system;
use braid_frontend_nbd::{ClientRequest, Completion, Export, Outcome, RequestError};
use braid_member::{Member, MemberError};
use braid_runtime::Disk;

use super::export::DiskExport;

/// Threads that call a device, and so the most requests in flight to an array below the device.
const THREADS: usize = 4;

/// A device to serve, readable and writable at any byte.
pub struct Device {
    /// Name of the device's export.
    pub name: String,
    /// UUID of the array that the device stands for.
    pub uuid: [u8; 16],
    /// The kind of device, in words.
    pub kind: String,
    /// The device itself.
    pub device: Arc<dyn Member>,
    /// Writes are refused.
    pub read_only: bool,
    /// Smallest block that clients may write, if the device declares one.
    pub logical_block_bytes: Option<u32>,
}

impl Device {
    /// The device as an export. Calls `tell` with the device's first error; the log has all.
    pub(super) fn export(
        &self,
        tell: impl Fn(&MemberError) + Send + Sync + 'static,
    ) -> Result<(Arc<DeviceDisk>, Arc<dyn Export>), CliError> {
        let disk = DeviceDisk::start(Arc::clone(&self.device), self.read_only, Box::new(tell));
        let disk = disk.map_err(|error| system("a device cannot be served", &error))?;
        let (served, kind) = (Arc::clone(&disk), self.kind.clone());
        let block_bytes = self.logical_block_bytes;
        let export = DiskExport::new(self.name.clone(), served, block_bytes, move || kind.clone());
        Ok((disk, Arc::new(export)))
    }
}

pub(super) struct DeviceDisk {
    queue: Sender<(ClientRequest, Completion)>,
    below: Arc<Below>,
}

/// The state that the threads that call a device share.
struct Below {
    device: Arc<dyn Member>,
    read_only: bool,
    under_way: Mutex<usize>,
    ended: Condvar,
    was_told: AtomicBool,
    tell: Box<dyn Fn(&MemberError) + Send + Sync>,
}

impl DeviceDisk {
    fn start(
        device: Arc<dyn Member>,
        read_only: bool,
        tell: Box<dyn Fn(&MemberError) + Send + Sync>,
    ) -> std::io::Result<Arc<Self>> {
        let (queue, requests) = channel();
        let requests = Arc::new(Mutex::new(requests));
        let (under_way, ended, was_told) = Default::default();
        let below = Arc::new(Below { device, read_only, under_way, ended, was_told, tell });
        for _ in 0..THREADS {
            let (below, requests) = (Arc::clone(&below), Arc::clone(&requests));
            let work = move || while below.serve_one(&requests).is_continue() {};
            // The thread ends when the queue is gone.
            thread::Builder::new().name("braid-device".into()).spawn(work)?;
        }
        Ok(Arc::new(Self { queue, below }))
    }

    /// Waits for requests in flight, then makes all writes durable; fails after `patience`.
    pub(super) fn end(&self, patience: Duration) -> Result<(), EndError> {
        let (below, (done, ended)) = (Arc::clone(&self.below), channel());
        let flush = move || {
            let none = below.ended.wait_while(below.count(), |count| *count > 0);
            drop(none);
            let flushed = if below.read_only { Ok(()) } else { below.device.flush() };
            // If the caller gave up waiting, the send fails and is ignored.
            let _ = done.send(flushed);
        };
        let thread = thread::Builder::new().name("braid-stop".into()).spawn(flush);
        thread.map_err(EndError::Thread)?;
        ended.recv_timeout(patience).map_err(|_| EndError::Silent)?.map_err(EndError::Device)
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum EndError {
    /// The thread that waits for requests in flight could not start.
    #[error("it could not be waited for: {0}")]
    Thread(std::io::Error),
    #[error("it has answered nothing")]
    Silent,
    #[error("{0}")]
    Device(MemberError),
}

impl Below {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve_one(
        &self,
        requests: &Mutex<Receiver<(ClientRequest, Completion)>>,
    ) -> ControlFlow<()> {
        let next = requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((request, completion)) = next else { return ControlFlow::Break(()) };
        completion.complete(self.carry_out(request));
        *self.count() -= 1;
        self.ended.notify_all();
        ControlFlow::Continue(())
    }

    fn carry_out(&self, request: ClientRequest) -> Outcome {
        let device = &self.device;
        let lies_within = |offset: u64, length: u64| {
            offset.checked_add(length).is_some_and(|end| end <= device.size_bytes())
        };
        let refused = |error, payload| Outcome { result: Err(error), payload };
        let (result, payload) = match request {
            ClientRequest::Read { offset, mut payload } => {
                (device.read_at(&mut payload, offset), Some(payload))
            }
            ClientRequest::Write { payload, .. } if self.read_only => {
                return refused(RequestError::ReadOnly, Some(payload));
            }
            ClientRequest::WriteZeroes { .. } | ClientRequest::Trim { .. } if self.read_only => {
                return refused(RequestError::ReadOnly, None);
            }
            ClientRequest::Write { offset, payload, durable } => {
                (device.write_at(&payload, offset, durable), Some(payload))
            }
            ClientRequest::WriteZeroes { fast: true, .. } if !device.can_zero_fast() => {
                return refused(RequestError::NotFast, None);
            }
            ClientRequest::WriteZeroes { offset, length, may_punch, durable, .. } => {
                let zeroed = device.zero(offset, length, may_punch);
                (zeroed.and_then(|()| if durable { device.flush() } else { Ok(()) }), None)
            }
            ClientRequest::Trim { offset, length, .. } if !lies_within(offset, length) => {
                return refused(RequestError::OutOfRange, None);
            }
            ClientRequest::Flush | ClientRequest::Trim { durable: true, .. } if !self.read_only => {
                (device.flush(), None)
            }
            // A read-only device has nothing to flush, and a trim need not do anything.
            ClientRequest::Flush | ClientRequest::Trim { .. } => (Ok(()), None),
        };
        Outcome { result: result.map_err(|error| self.told(&error)), payload }
    }

    /// Records an error of the device: the log gets each error, the operator only the first.
    fn told(&self, error: &MemberError) -> RequestError {
        tracing::warn!(target: "braid::device", error = %error, "a request failed at the device");
        let word = match error {
            MemberError::OutOfBounds { .. } => return RequestError::OutOfRange,
            MemberError::OutOfSpace { .. } | MemberError::FileTooLong => RequestError::NoSpace,
            MemberError::ReadOnly | MemberError::Protected { .. } => RequestError::ReadOnly,
            _ => RequestError::Io("the device cannot be read or written there"),
        };
        if !self.was_told.swap(true, Ordering::Relaxed) {
            (self.tell)(error);
        }
        word
    }
}

impl Disk for DeviceDisk {
    fn size_bytes(&self) -> u64 {
        self.below.device.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.below.read_only
    }

    fn unit_bytes(&self) -> u64 {
        512
    }

    fn zeroes_fast(&self, _: u64, _: u64) -> bool {
        self.below.device.can_zero_fast()
    }

    fn submit(&self, request: ClientRequest, completion: Completion) {
        *self.below.count() += 1;
        if self.queue.send((request, completion)).is_err() {
            // If no thread is left, the queue dropped the request, whose completion has then
            // reported the failure.
            *self.below.count() -= 1;
        }
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
        let disk =
            DeviceDisk::start(Arc::clone(&device), false, Box::new(|_| {})).expect("threads");
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
        disk.end(Duration::from_secs(20)).expect("all is durable");
        let disk = DeviceDisk::start(device, true, Box::new(|_| {})).expect("threads");
        assert_eq!(read(&disk, 700).payload.as_deref(), Some(&found[..]));
        let trim = ClientRequest::Trim { offset: 0, length: 512, durable: false };
        assert_eq!(asked(&disk, trim).result, Err(RequestError::ReadOnly));
        assert_eq!(asked(&disk, ClientRequest::Flush).result, Ok(()));
    }
}
