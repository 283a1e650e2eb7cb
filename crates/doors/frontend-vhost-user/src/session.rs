//! A client's messages: they give the positions of memory and rings, and start and stop rings.
//!
//! ```text
//!   features ──► memory ──► (table of requests in flight) ──► ring: entries, base, addresses
//!            ──► kick: it begins ──► enable
//!                GET_VRING_BASE: it ends, all answered
//! ```
//!
//! A message with an error ends the session; the client may connect again.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_ring::Workers;
use braid_virtio_proto::limits::{QUEUE_ENTRIES_MAX, QUEUES_MAX};
use braid_virtio_proto::wire::feature;
use braid_virtio_proto::{Device, Shape, configuration, offered};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};

use crate::bells;
use crate::inflight::{Table, file_for};
use crate::limits::REGIONS_MAX;
use crate::memory::{Memory, SharedRegion};
use crate::queue::{Event, Queue, ServedDisk};
use crate::ring::{Ring, Setup};

/// The bit among the device's features that stands for the vhost-user protocol features.
const WAY: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// The queues of a session; the door ends the queues through this value.
#[derive(Default)]
pub(crate) struct Queues(Mutex<Vec<Option<Arc<Queue>>>>);

impl Queues {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Arc<Queue>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Queue>> {
        self.lock().iter().flatten().map(Arc::clone).collect()
    }
}

pub(crate) struct Session {
    served: Arc<ServedDisk>,
    workers: Option<Arc<Workers>>,
    shape: Shape,
    queues: Arc<Queues>,
    features: u64,
    memory: Arc<Memory>,
    table: Option<Arc<Table>>,
    setups: Vec<Setup>,
}

impl Session {
    pub(crate) fn new(
        (served, shape): (&Arc<ServedDisk>, Shape),
        workers: Option<&Arc<Workers>>,
        queues: &Arc<Queues>,
    ) -> Self {
        Self {
            served: Arc::clone(served),
            workers: workers.map(Arc::clone),
            shape,
            queues: Arc::clone(queues),
            features: 0,
            memory: Arc::default(),
            table: None,
            setups: vec![Setup::default(); usize::from(QUEUES_MAX)],
        }
    }

    fn queue(&self, number: u32) -> Result<Arc<Queue>> {
        let number = u16::try_from(number).ok().filter(|number| *number < QUEUES_MAX);
        let number = number.ok_or(Error::InvalidParam)?;
        let place = usize::from(number);
        let mut queues = self.queues.lock();
        if queues.len() <= place {
            queues.resize(place + 1, None);
        }
        if let Some(queue) = &queues[place] {
            return Ok(Arc::clone(queue));
        }
        let made = Queue::new(&self.served, number, self.workers.as_ref());
        let queue = made.map_err(Error::ReqHandlerError)?;
        // If the client did not negotiate VHOST_USER_F_PROTOCOL_FEATURES, it cannot send
        // SET_VRING_ENABLE: the ring is enabled from the start.
        queue.enable(self.features & WAY == 0);
        queues[place] = Some(Arc::clone(&queue));
        Ok(queue)
    }

    fn setup(&mut self, number: u32) -> Result<&mut Setup> {
        if self.queue(number)?.has_ring() {
            return Err(Error::InvalidOperation("the ring is in use"));
        }
        self.setups.get_mut(number as usize).ok_or(Error::InvalidParam)
    }

    fn device(&self) -> Device {
        Device {
            size_bytes: self.shape.size_bytes,
            is_read_only: self.shape.is_read_only,
            is_written_through: self.features & feature::FLUSH == 0,
        }
    }

    fn start(&mut self, number: u8, queue: &Arc<Queue>) -> Result<()> {
        let setup = Setup {
            has_event_index: self.features & feature::EVENT_IDX != 0,
            ..*self.setup(number.into())?
        };
        let part = match &self.table {
            Some(table) => {
                let part = table.part(number.into(), setup.entries);
                Some(part.ok_or(Error::InvalidOperation("the table has no part for this ring"))?)
            }
            None => None,
        };
        let (ring, left) =
            Ring::start(&setup, Arc::clone(&self.memory), part).map_err(|why| refused(&why))?;
        if !left.is_empty() {
            let requests = left.len();
            tracing::info!(target: "braid_frontend_vhost_user", queue = number, requests, "what a server before has left is asked for again");
        }
        self.served.started.fetch_add(1, Ordering::Relaxed);
        queue.start((ring, left), self.device());
        Ok(())
    }

    fn stop(&self, queue: &Arc<Queue>) -> Option<u16> {
        if !queue.has_ring() {
            return None;
        }
        let base = queue.stop();
        self.served.started.fetch_sub(1, Ordering::Relaxed);
        base
    }

    fn set_memory(&mut self, memory: Memory) {
        self.memory = Arc::new(memory);
        for queue in self.queues.all() {
            queue.set_memory(&self.memory);
        }
    }

    fn set_event(&self, number: u8, (event, file): (Event, Option<File>)) -> Result<()> {
        let bell = match file {
            Some(file) => Some(bells::adopt(file).ok_or(Error::IncorrectFds)?),
            None => None,
        };
        self.queue(number.into())?.set_event(event, bell);
        Ok(())
    }
}

fn refused(why: &(dyn std::error::Error + 'static)) -> Error {
    tracing::warn!(target: "braid_frontend_vhost_user", error = %why, "what a client says makes no sense");
    Error::InvalidParam
}

/// The error for a client's message that needs a feature which was not agreed.
fn unknown<T>() -> Result<T> {
    Err(Error::InvalidOperation("it was not offered"))
}

fn shared_region(region: &VhostUserMemoryRegion) -> SharedRegion {
    SharedRegion {
        guest: region.guest_phys_addr,
        user: region.user_addr,
        bytes: region.memory_size,
        offset: region.mmap_offset,
    }
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        for queue in self.queues.all() {
            self.stop(&queue);
        }
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        unknown()
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(offered(&self.shape) | WAY)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !(offered(&self.shape) | WAY) != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        if features & WAY == 0 {
            self.queues.all().iter().for_each(|queue| queue.enable(true));
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let mut memory = Memory::default();
        for (region, file) in regions.iter().zip(files) {
            memory = memory.with(shared_region(region), file).map_err(|why| refused(&why))?;
        }
        self.set_memory(memory);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let entries = u16::try_from(num).ok().filter(|num| num.is_power_of_two());
        let entries = entries.filter(|num| *num <= QUEUE_ENTRIES_MAX);
        self.setup(index)?.entries = entries.ok_or(Error::InvalidParam)?;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        let setup = self.setup(index)?;
        *setup = Setup { descriptors, available, used, ..*setup };
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.setup(index)?.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let queue = self.queue(index)?;
        if queue.has_ring() {
            let base = self.stop(&queue).ok_or(Error::Disconnected)?;
            self.setup(index)?.base = base;
        }
        let base = self.setup(index)?.base;
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        if fd.is_none() {
            return Err(Error::InvalidOperation("rings are looked at when there is a kick"));
        }
        self.set_event(index, (Event::Kick, fd))?;
        let queue = self.queue(index.into())?;
        if queue.has_ring() {
            return Ok(());
        }
        self.start(index, &queue)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.set_event(index, (Event::Call, fd))
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.set_event(index, (Event::Error, fd))
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.queue(index)?.enable(enable);
        Ok(())
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Ok(configuration(&self.shape, offset as usize, size as usize))
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        unknown()
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        unknown()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        unknown()
    }

    fn get_inflight_fd(
        &mut self,
        inflight: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        let (queues, entries) = (inflight.num_queues, inflight.queue_size);
        let (file, bytes) = file_for(queues, entries).map_err(|why| refused(&why))?;
        Ok((VhostUserInflight::new(bytes, 0, queues, entries), file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        if self.queues.all().iter().any(|queue| queue.has_ring()) {
            return Err(Error::InvalidOperation("a ring is in use"));
        }
        let shape = (inflight.num_queues, inflight.queue_size);
        let table = Table::map(file, inflight.mmap_offset, shape).map_err(|why| refused(&why))?;
        self.table = Some(table);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        fd: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        let memory = self.memory.with(shared_region(region), fd).map_err(|why| refused(&why))?;
        self.set_memory(memory);
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let memory = self.memory.without(shared_region(region)).map_err(|why| refused(&why))?;
        self.set_memory(memory);
        Ok(())
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        unknown()
    }

    fn check_device_state(&mut self) -> Result<()> {
        unknown()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        unknown()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        unknown()
    }
}
