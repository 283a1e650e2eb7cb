//! The crate's interface: it opens an array as a file, and closes the file.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime};

use braid_fuse_proto::limits::REQUEST_BYTES_MAX;
use braid_fuse_proto::{File, Owner, Wishes};
use braid_runtime::Disk;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{getegid, geteuid};

use crate::device::{Device, Reader};
use crate::gate::Gate;
use crate::limits::{HELPER_DEADLINE, IN_FLIGHT_BYTES_MAX, STACK_BYTES};
use crate::mount::{self, MountError, UnmountMode};
use crate::mount_point::MountPoint;
use crate::rings::{self, Rings};
use crate::session::Session;

/// Why a door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Mounting the file failed.
    #[error("{} cannot be mounted", path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// Why mounting failed.
        source: MountError,
    },
    /// The kernel does not answer INIT, or speaks a protocol that this door does not understand.
    #[error("the kernel's FUSE is too old, or does not answer")]
    NotBegun,
    /// Another system call failed.
    #[error("{call} failed")]
    System {
        /// The system call that failed.
        call: &'static str,
        /// Why the call failed.
        source: std::io::Error,
    },
}

/// The result of a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseResult {
    /// Whether programs still had the file open; they get errors from now on.
    pub was_in_use: bool,
    /// Number of requests that had not ended at the deadline.
    pub unanswered: usize,
}

/// The values of a door's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that the kernel has sent.
    pub requests: u64,
    /// Bytes that programs have read.
    pub bytes_read: u64,
    /// Bytes that programs have written.
    pub bytes_written: u64,
    /// Bytes read and written that were copied between the kernel's memory and the array's.
    pub bytes_copied: u64,
    /// Requests that failed in the array.
    pub errors: u64,
    /// Payload bytes in flight at this moment.
    pub bytes_in_flight: u64,
}

/// An array as a file. Drop unmounts the file.
pub struct Door {
    device: Arc<Device>,
    mount_point: MountPoint,
    reader: Option<JoinHandle<()>>,
    over_rings: bool,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Door")
            .field("mount_point", &self.mount_point)
            .finish_non_exhaustive()
    }
}

/// A handle that reads a door's counters while the door exists.
#[derive(Clone)]
pub struct Meter(Weak<Device>);

impl std::fmt::Debug for Meter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Meter").field(&self.counts()).finish()
    }
}

impl Meter {
    /// The door's counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.upgrade().map(|device| counts(&device)).unwrap_or_default()
    }
}

fn counts(device: &Device) -> Counts {
    let counters = &device.session.counters;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    Counts {
        requests: read(&counters.requests),
        bytes_read: read(&counters.bytes_read),
        bytes_written: read(&counters.bytes_written),
        bytes_copied: read(&counters.bytes_copied),
        errors: read(&counters.errors),
        bytes_in_flight: device.gate.held_bytes() as u64,
    }
}

impl Door {
    /// Mounts `disk` as a file, and serves it. Calls `on_gone` if another process unmounts the
    /// file.
    ///
    /// # Errors
    /// See [`OpenError`]; after an error no file is mounted.
    pub fn open(
        mount_point: MountPoint,
        disk: Arc<dyn Disk>,
        on_gone: impl FnOnce() + Send + 'static,
    ) -> Result<Self, OpenError> {
        let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let read_only = disk.is_read_only();
        let file = File::new(disk.size_bytes(), read_only, owner, SystemTime::now());
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let end = end.map_err(|errno| failed("eventfd", errno.into()))?;
        let mounted = mount::mount(mount_point.path(), (file.mode(), read_only));
        let descriptor = mounted.map_err(|source| OpenError::Mount {
            path: mount_point.path().to_path_buf(),
            source,
        })?;
        let descriptor = Arc::new(descriptor);
        let (session, gate) =
            (Arc::new(Session::new(disk, file)), Arc::new(Gate::new(IN_FLIGHT_BYTES_MAX)));
        let mut wishes = Wishes { over_rings: true, request_bytes_max: REQUEST_BYTES_MAX };
        let rings = by_rings(&descriptor, (&session, &gate), wishes);
        wishes.over_rings = rings.is_some();
        let way = (wishes, gate, rings);
        let device = Arc::new(Device::new(session, (descriptor, end), way));
        // From here on, dropping `door` unmounts the file.
        let mut door = Self { device, mount_point, reader: None, over_rings: false };
        door.start(on_gone)?;
        let agreed = door.device.wait_for_begin(HELPER_DEADLINE).ok_or(OpenError::NotBegun)?;
        door.over_rings = agreed.over_rings;
        if !agreed.over_rings {
            door.device.end_rings();
        }
        Ok(door)
    }

    fn start(&mut self, on_gone: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
        let device = Arc::clone(&self.device);
        let reader = Reader::new(Arc::clone(&device))
            .map_err(|error| failed("taking memory", std::io::Error::other(error)))?;
        let builder = Builder::new().name("braid-fuse".into()).stack_size(STACK_BYTES);
        let spawned = builder.spawn(move || {
            reader.run();
            if device.is_gone() && !device.is_ending() {
                on_gone();
            }
        });
        self.reader = Some(spawned.map_err(|error| failed("starting a thread", error))?);
        Ok(())
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount_point.path()
    }

    /// Whether the kernel sends requests through io_uring.
    #[must_use]
    pub fn is_over_rings(&self) -> bool {
        self.over_rings
    }

    /// A handle that reads the door's counters.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter(Arc::downgrade(&self.device))
    }

    /// Unmounts the file, and waits for requests in flight, at most for `deadline`.
    ///
    /// Programs that have the file open get an error for every later request.
    #[must_use]
    pub fn close(mut self, deadline: Duration) -> CloseResult {
        self.end(deadline)
    }

    fn end(&mut self, deadline: Duration) -> CloseResult {
        self.device.note_ending();
        let was_in_use = !self.device.is_gone() && self.unmount();
        self.device.end();
        if let Some(reader) = self.reader.take()
            && reader.join().is_err()
        {
            tracing::error!(target: "braid_frontend_fuse", "the reader of messages has panicked");
        }
        let unanswered = self.device.gate.wait_for_none(deadline);
        self.device.end_rings();
        CloseResult { was_in_use, unanswered }
    }

    /// Unmounts the file while requests are still read; returns whether a program uses the file.
    fn unmount(&self) -> bool {
        let path = self.mount_point.path();
        let unused = mount::unmount(path, UnmountMode::Unused);
        let Err(error) = unused else { return false };
        if let Err(again) = mount::unmount(path, UnmountMode::Detached) {
            tracing::error!(target: "braid_frontend_fuse", %error, %again, "it cannot be unmounted");
        }
        true
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.reader.is_some() || !self.device.is_ending() {
            self.end(Duration::ZERO);
        }
    }
}

/// Prepares io_uring for requests, if the kernel supports it and memory for rings is free.
fn by_rings(
    device: &Arc<OwnedFd>,
    shared: (&Arc<Session>, &Arc<Gate>),
    wishes: Wishes,
) -> Option<Rings> {
    if !rings::are_allowed() {
        return None;
    }
    let prepared = Rings::prepare(device, shared, wishes);
    let unfit = |error: &std::io::Error| {
        tracing::warn!(target: "braid_frontend_fuse", %error, "no io_uring for FUSE; requests come by /dev/fuse");
    };
    prepared.inspect_err(unfit).ok()
}

fn failed(call: &'static str, source: std::io::Error) -> OpenError {
    OpenError::System { call, source }
}
