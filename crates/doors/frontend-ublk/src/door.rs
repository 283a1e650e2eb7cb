//! The crate's interface: it opens an array as a block device, and closes it.
//!
//! The door makes a device, or takes over the device of a killed server that `device_claim` found.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use braid_runtime::Disk;
use braid_ublk_proto::limits::QUEUES_MAX;
use braid_ublk_proto::wire::DeviceInfo;
use braid_ublk_proto::{Shape, device as device_of, fits, parameters};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::control::{Control, is};
use crate::device_claim::{DeviceClaim, SearchResult};
use crate::kernel::Commands;
use crate::limits::{DEATH_DEADLINE, LOOK, NODE_DEADLINE, STACK_BYTES, UNDO_DEADLINE};
use crate::queue::{Queue, Server};
use crate::size::SizeWatch;

/// Why a door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has made a device with this number after the number was found free.
    #[error("/dev/ublkb{0} is there already")]
    Taken(u32),
    /// The device that a dead server left has another size, block size or access than the array.
    #[error("/dev/ublkb{0} was made with another size, another block, or for other access")]
    Differs(u32),
    /// The kernel forbids this user to make or start the device.
    #[error("the kernel does not let this user make block devices")]
    Denied,
    /// Another system call failed.
    #[error("{call} failed")]
    System {
        /// The system call that failed.
        call: &'static str,
        /// Why the call failed.
        source: io::Error,
    },
}

/// The result of a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseResult {
    /// Whether the device was mounted or opened exclusively; its users get errors from now on.
    pub was_in_use: bool,
    /// Whether the device is deleted; false if the deadline passed first.
    pub is_gone: bool,
}

type OnGone = Box<dyn FnOnce() + Send>;

struct Life {
    living: AtomicUsize,
    is_ending: AtomicBool,
    on_gone: Mutex<Option<OnGone>>,
}

impl Life {
    fn leave(&self) {
        let is_last = self.living.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && !self.is_ending.load(Ordering::SeqCst) {
            let gone = self.on_gone.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(gone) = gone {
                gone();
            }
        }
    }
}

#[derive(Default)]
struct Queues {
    queues: Vec<Arc<Queue>>,
    threads: Vec<JoinHandle<()>>,
}

impl Queues {
    fn start(
        &mut self,
        file: &Arc<File>,
        info: &DeviceInfo,
        (disk, life): (&Arc<dyn Disk>, &Arc<Life>),
    ) -> io::Result<()> {
        let (ready, answers) = channel();
        for number in 0..info.nr_hw_queues {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let queue = Arc::new(Queue::new(Arc::clone(disk), bell));
            self.queues.push(Arc::clone(&queue));
            let (file, ready, depth) = (Arc::clone(file), ready.clone(), info.queue_depth);
            let life = Arc::clone(life);
            let body = move || {
                serve((file, number, depth), queue, ready);
                life.leave();
            };
            let builder = Builder::new().name("braid-ublk".into()).stack_size(STACK_BYTES);
            self.threads.push(builder.spawn(body)?);
        }
        drop(ready);
        answers.iter().find_map(Result::err).map_or(Ok(()), Err)
    }

    fn end(&self) {
        self.queues.iter().for_each(|queue| queue.end());
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(target: "braid_frontend_ublk", "the thread of a queue has panicked");
            }
        }
    }
}

fn serve(
    (file, number, depth): (Arc<File>, u16, u16),
    queue: Arc<Queue>,
    ready: Sender<io::Result<()>>,
) {
    match Commands::new(file, number, depth) {
        Ok(commands) => {
            // The send cannot fail, since the thread that opens the door waits for all reports.
            let _ = ready.send(Ok(()));
            drop(ready);
            Server::new(queue, commands).run();
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    }
}

struct Device {
    control: Control,
    id: u32,
    queues: Queues,
    life: Arc<Life>,
    /// Whether the kernel can change the device's size while the device is live.
    can_resize: bool,
}

impl Device {
    fn node(&self) -> PathBuf {
        node(self.id)
    }

    /// Deletes the device; returns whether it was in use.
    fn end(mut self) -> bool {
        self.life.is_ending.store(true, Ordering::SeqCst);
        let was_in_use = self.write_back();
        let stopped = self.control.stop(self.id);
        if let Err(error) = &stopped {
            tracing::warn!(target: "braid_frontend_ublk", %error, "the device was not stopped");
            self.queues.end();
        }
        self.queues.join();
        match self.control.delete(self.id, !was_in_use) {
            Ok(()) => {}
            // Another process has deleted the device.
            Err(error) if is(&error, &[Errno::NODEV, Errno::INVAL]) => {}
            Err(error) => {
                tracing::warn!(target: "braid_frontend_ublk", %error, "the device was not deleted");
            }
        }
        was_in_use
    }

    /// Makes the kernel write back its cached pages of the device, which a stop would discard.
    /// Returns whether the device is mounted or opened exclusively.
    fn write_back(&self) -> bool {
        let exclusive = i32::try_from(rustix::fs::OFlags::EXCL.bits()).expect("a flag");
        let alone = OpenOptions::new().read(true).custom_flags(exclusive).open(self.node());
        let is_busy = alone.as_ref().is_err_and(|error| is(error, &[Errno::BUSY]));
        let file = if is_busy { File::open(self.node()) } else { alone };
        if let Err(error) = file.and_then(|file| file.sync_all())
            && !is(&error, &[Errno::NOENT, Errno::NXIO, Errno::NODEV])
        {
            tracing::warn!(target: "braid_frontend_ublk", %error, "not all was written back");
        }
        is_busy
    }
}

fn node(id: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{id}"))
}

/// An array as a block device. Drop deletes the device.
pub struct Door {
    path: PathBuf,
    /// The thread that follows the array's size, which ends before the device does. `None` if the
    /// kernel cannot resize the device.
    size: Option<SizeWatch>,
    device: Option<Device>,
    was_taken_over: bool,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Door").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Door {
    /// Makes a block device of `disk`, with these logical blocks. Calls `on_gone` if another
    /// process deletes the device.
    ///
    /// # Errors
    /// See [`OpenError`]; no new device is left after an error.
    pub fn open(
        claim: DeviceClaim,
        (disk, logical_block_bytes): (Arc<dyn Disk>, u32),
        on_gone: impl FnOnce() + Send + 'static,
    ) -> Result<Self, OpenError> {
        let DeviceClaim { control, found, array, can_resize } = claim;
        let shape = Shape {
            size_bytes: disk.size_bytes(),
            is_read_only: disk.is_read_only(),
            logical_block_bytes,
            unit_bytes: disk.unit_bytes(),
        };
        let on_gone: OnGone = Box::new(on_gone);
        let life = Life {
            living: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
            on_gone: Mutex::new(Some(on_gone)),
        };
        let queues = Queues::default();
        let (id, life) = (u32::MAX, Arc::new(life));
        let mut device = Device { control, id, queues, life, can_resize };
        let was_taken_over = match found {
            SearchResult::Nothing(id) => {
                device = made(device, (id, array), (&shape, &disk))?;
                false
            }
            SearchResult::Waiting(info) => {
                device = taken_over(device, &info, (&shape, &disk))?;
                true
            }
        };
        // A dead server's device may have the array's size from before a change of shape.
        let known_bytes = (!was_taken_over).then_some(shape.size_bytes);
        let watch = || SizeWatch::new((device.id, array), Arc::clone(&disk), known_bytes);
        let size = can_resize.then(watch).transpose();
        let size = size.unwrap_or_else(|error| {
            tracing::warn!(target: "braid_frontend_ublk", %error, "the device keeps its size");
            None
        });
        let (path, device) = (device.node(), Some(device));
        Ok(Self { path, size, device, was_taken_over })
    }

    /// The device's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the device was taken over from a dead server.
    #[must_use]
    pub fn was_taken_over(&self) -> bool {
        self.was_taken_over
    }

    /// Makes the kernel write back its cached pages, and deletes the device, within `deadline`.
    #[must_use]
    pub fn close(mut self, deadline: Duration) -> CloseResult {
        self.end(deadline)
    }

    fn end(&mut self, deadline: Duration) -> CloseResult {
        let Some(device) = self.device.take() else {
            return CloseResult { was_in_use: false, is_gone: true };
        };
        let size = self.size.take();
        // Deletes on another thread: deleting waits for other processes and for the array, and the
        // caller must not wait so long.
        let (sender, receiver) = channel();
        let body = move || {
            drop(size);
            // The send fails after the deadline, when the receiver is gone.
            let _ = sender.send(device.end());
        };
        match Builder::new().name("braid-ublk-end".into()).spawn(body) {
            Ok(_) => ended(&receiver, deadline),
            Err(error) => {
                tracing::error!(target: "braid_frontend_ublk", %error, "no thread to end a device");
                CloseResult { was_in_use: false, is_gone: false }
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.end(UNDO_DEADLINE);
    }
}

fn ended(receiver: &Receiver<bool>, deadline: Duration) -> CloseResult {
    match receiver.recv_timeout(deadline) {
        Ok(was_in_use) => CloseResult { was_in_use, is_gone: true },
        Err(_) => CloseResult { was_in_use: true, is_gone: false },
    }
}

fn made(
    mut device: Device,
    (id, array): (Option<u32>, u64),
    (shape, disk): (&Shape, &Arc<dyn Disk>),
) -> Result<Device, OpenError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let queues = u16::try_from(processors).unwrap_or(QUEUES_MAX).min(QUEUES_MAX);
    let added = device.control.add(device_of(id, queues, array));
    let info = added.map_err(|source| match id {
        Some(id) if is(&source, &[Errno::EXIST]) => OpenError::Taken(id),
        _ if is(&source, &[Errno::PERM, Errno::ACCESS]) => OpenError::Denied,
        _ => failed("making a ublk device", source),
    })?;
    device.id = info.dev_id;
    let started = start(&mut device, &info, (shape, disk));
    match started {
        Ok(()) => Ok(device),
        Err(error) => {
            let path = device.node();
            drop(Door { path, size: None, device: Some(device), was_taken_over: false });
            Err(error)
        }
    }
}

fn start(
    device: &mut Device,
    info: &DeviceInfo,
    (shape, disk): (&Shape, &Arc<dyn Disk>),
) -> Result<(), OpenError> {
    let said = device.control.set_parameters(info.dev_id, parameters(shape));
    said.map_err(|source| failed("describing a ublk device", source))?;
    fetch(device, info, disk)?;
    let started = device.control.start(info.dev_id);
    started.map_err(|source| failed("starting a ublk device", source))
}

fn taken_over(
    mut device: Device,
    info: &DeviceInfo,
    (shape, disk): (&Shape, &Arc<dyn Disk>),
) -> Result<Device, OpenError> {
    device.id = info.dev_id;
    let went_on = go_on(&mut device, info, (shape, disk));
    match went_on {
        Ok(()) => Ok(device),
        Err(error) => {
            // The device continues to wait for the next server.
            device.life.is_ending.store(true, Ordering::SeqCst);
            device.queues.end();
            device.queues.join();
            Err(error)
        }
    }
}

fn go_on(
    device: &mut Device,
    info: &DeviceInfo,
    (shape, disk): (&Shape, &Arc<dyn Disk>),
) -> Result<(), OpenError> {
    let id = info.dev_id;
    let told = device.control.parameters(id);
    let told = told.map_err(|source| failed("looking at a ublk device", source))?;
    if !fits(&told, &parameters(shape), device.can_resize) {
        return Err(OpenError::Differs(id));
    }
    let until = Instant::now() + DEATH_DEADLINE;
    // Tries again: the kernel closes the dead server's descriptors one after the other.
    while let Err(source) = device.control.begin_recovery(id) {
        if !is(&source, &[Errno::BUSY]) || Instant::now() > until {
            return Err(failed("taking a ublk device over", source));
        }
        std::thread::sleep(LOOK);
    }
    fetch(device, info, disk)?;
    let ended = device.control.end_recovery(id);
    ended.map_err(|source| failed("having a ublk device go on", source))
}

fn fetch(device: &mut Device, info: &DeviceInfo, disk: &Arc<dyn Disk>) -> Result<(), OpenError> {
    let path = format!("/dev/ublkc{}", info.dev_id);
    let until = Instant::now() + NODE_DEADLINE;
    let file = loop {
        match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => break Arc::new(file),
            Err(source) => {
                let comes = is(&source, &[Errno::NOENT, Errno::ACCESS, Errno::BUSY]);
                if !comes || Instant::now() > until {
                    return Err(failed("opening a ublk device's file", source));
                }
                std::thread::sleep(LOOK);
            }
        }
    };
    device.life.living.store(usize::from(info.nr_hw_queues), Ordering::SeqCst);
    let started = device.queues.start(&file, info, (disk, &device.life));
    started.map_err(|source| failed("starting a ublk device's queues", source))
}

fn failed(call: &'static str, source: io::Error) -> OpenError {
    OpenError::System { call, source }
}
