//! Transports through libblkio's drivers: vhost-user-blk, and a file by io_uring.

use std::error::Error;
use std::mem::MaybeUninit;
use std::path::Path;

use blkio::{Blkio, Blkioq, Completion, ReqFlags};

use crate::transport::{Shape, Transport};

/// Memory of each request in flight.
const SLOT_BYTES: usize = 1 << 20;
const SLOTS: usize = 32;

/// An open device, its queue and its memory.
pub(crate) struct Block {
    name: &'static str,
    queue: Blkioq,
    memory: usize,
    // Owns the queue's resources, so it is dropped after the queue.
    _device: Blkio,
}

impl Block {
    /// Opens an array by vhost-user-blk, over a socket.
    pub(crate) fn vhost_user(name: &'static str, socket: &Path) -> Result<Self, Box<dyn Error>> {
        Self::open(name, "virtio-blk-vhost-user", socket)
    }

    /// Opens an array as a file, by io_uring.
    pub(crate) fn file(name: &'static str, path: &Path) -> Result<Self, Box<dyn Error>> {
        Self::open(name, "io_uring", path)
    }

    fn open(name: &'static str, driver: &str, path: &Path) -> Result<Self, Box<dyn Error>> {
        let said = |error: blkio::Error| format!("{name}: {error}");
        let mut device = Blkio::new(driver).map_err(said)?;
        device.set_str("path", path.to_str().ok_or("a path of text")?).map_err(said)?;
        device.connect().map_err(said)?;
        let queue = device.start().map_err(said)?.queues.pop().ok_or("no queue")?;
        let region = device.alloc_mem_region(SLOT_BYTES * SLOTS).map_err(said)?;
        device.map_mem_region(&region).map_err(said)?;
        Ok(Self { name, queue, memory: region.addr, _device: device })
    }
}

impl Transport for Block {
    fn name(&self) -> &'static str {
        self.name
    }

    fn submit(&mut self, slot: usize, offset: u64, shape: Shape) {
        assert!(slot < SLOTS && shape.length <= SLOT_BYTES, "a request fits its slot");
        let memory = std::ptr::with_exposed_provenance_mut(self.memory + slot * SLOT_BYTES);
        if shape.is_write {
            self.queue.write(offset, memory, shape.length, slot, ReqFlags::empty());
        } else {
            self.queue.read(offset, memory, shape.length, slot, ReqFlags::empty());
        }
    }

    fn complete(&mut self) -> Result<Vec<usize>, Box<dyn Error>> {
        let mut ends = [const { MaybeUninit::<Completion>::uninit() }; SLOTS];
        let count = self.queue.do_io(&mut ends, 1, None, None)?;
        let mut slots = Vec::with_capacity(count);
        for end in &ends[..count] {
            // SAFETY: `do_io` has written as many completions as it says, from the first on.
            let end = unsafe { end.assume_init_ref() };
            if end.ret != 0 {
                return Err(format!("{}: a request ended with {}", self.name, end.ret).into());
            }
            slots.push(end.user_data);
        }
        Ok(slots)
    }
}
