//! Braid as a library: member images opened, assembled, read and written in this process.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use braid_assembly::{Assembly, Options, ProbedMember, assemble};
use braid_geometry::Slot;
use braid_member::{Access, Member};
use braid_runtime::{
    BitmapHome, ClientRequest, JobProgress, JobRequest, LogKind, Newcomer, Notice, OpenMember,
    Payload, Volume, WantedBitmap, Wish,
};

use super::super::content;
use super::super::look::{Device, look};

/// Bytes read and written at a time: no multiple of any row of chunks, so that requests cross the
/// rows' borders.
const PIECE: usize = (1 << 20) + 4096;

pub(super) struct Array {
    volume: Volume,
}

/// Opened and probed members, and the decision of assembly.
pub(super) struct AssemblyResult {
    devices: Vec<Box<dyn Member>>,
    pub(super) probed: Vec<ProbedMember>,
    pub(super) assembly: Assembly,
}

/// Probes member images and assembles them.
pub(super) fn judge(images: &[PathBuf], read_only: bool) -> Result<AssemblyResult> {
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let mut devices = Vec::new();
    let mut probed = Vec::new();
    for image in images {
        let device = braid_member::open(image, access)?;
        let read = |offset: u64, length: usize| {
            let mut bytes = vec![0; length];
            device.read_at(&mut bytes, offset).expect("an image reads");
            bytes
        };
        let label = image.display().to_string();
        let bytes = device.size_bytes();
        probed.push(look(&Device { label: &label, bytes, read: &read }));
        devices.push(device);
    }
    let assembly = assemble(&probed, &Options { read_only, ..Options::default() });
    Ok(AssemblyResult { devices, probed, assembly })
}

impl Array {
    /// Opens the array of these member images, in any order.
    pub(super) fn open(images: &[PathBuf], read_only: bool) -> Result<Self> {
        let defaults = braid_runtime::Options::default();
        Self::open_with(images, &braid_runtime::Options { read_only, ..defaults })
    }

    /// Opens an array with unfinished work: dirty, recovering, or without a member that the test
    /// adds later.
    pub(super) fn open_unfinished(
        images: &[PathBuf],
        options: &braid_runtime::Options,
        tell: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::open_as(judge(images, false)?, options, tell)
    }

    /// Opens the array for writing; its superblocks stay dirty from the first write on.
    pub(super) fn open_to_stay_dirty(images: &[PathBuf]) -> Result<Self> {
        let defaults = braid_runtime::Options::default();
        Self::open_with(images, &braid_runtime::Options { clean_delay_ms: 600_000, ..defaults })
    }

    fn open_with(images: &[PathBuf], options: &braid_runtime::Options) -> Result<Self> {
        let judged = judge(images, options.read_only)?;
        let is_dirty = judged.assembly.array.as_ref().is_ok_and(|array| array.dirty);
        ensure!(!is_dirty, "braid calls it dirty");
        Self::open_as(judged, options, |_| {})
    }

    fn open_as(
        judged: AssemblyResult,
        options: &braid_runtime::Options,
        tell: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Self> {
        let AssemblyResult { devices, probed, assembly } = judged;
        let array = match assembly.array {
            Ok(array) => array,
            Err(refusal) => bail!("braid refuses it ({}): {refusal}", refusal.code()),
        };
        let members = devices.into_iter().zip(&probed).map(|(device, probed)| {
            let superblock = probed.probe.newest()?.clone();
            Some(OpenMember { device, superblock })
        });
        let options = braid_runtime::Options {
            shards: 2,
            // The cache is small: a thousand volumes are opened, and each clears its memory.
            cache: braid_runtime::Cache { memory_bytes: 8 << 20, ..Default::default() },
            threads_per_member: 2,
            ..options.clone()
        };
        let volume = Volume::open(&array, members.collect(), &options, tell)?;
        Ok(Self { volume })
    }

    pub(super) fn sectors(&self) -> u64 {
        self.volume.size_bytes() / 512
    }

    pub(super) fn missing(&self) -> usize {
        self.volume.missing_count()
    }

    /// Reads the whole array; an error names the first byte that differs from `expected`.
    pub(super) fn holds(&self, expected: &[u8]) -> Result<()> {
        let bytes = self.volume.size_bytes();
        ensure!(bytes == expected.len() as u64, "braid makes it {bytes} bytes large");
        let mut buffer = Payload::zeroed(PIECE);
        for (piece, offset) in expected.chunks(PIECE).zip((0..).step_by(PIECE)) {
            if piece.len() < buffer.len() {
                buffer = Payload::zeroed(piece.len());
            }
            let outcome = self.volume.call(ClientRequest::Read { offset, payload: buffer });
            outcome.result.with_context(|| format!("reading at byte {offset}"))?;
            buffer = outcome.payload.context("a read gives its payload back")?;
            if buffer[..] != *piece {
                let same = buffer.iter().zip(piece).take_while(|(read, meant)| read == meant);
                bail!("braid reads something else from byte {} on", offset + same.count() as u64);
            }
        }
        Ok(())
    }

    pub(super) fn content(&self) -> Result<Vec<u8>> {
        let bytes = usize::try_from(self.volume.size_bytes())?;
        let mut content = Vec::with_capacity(bytes);
        for offset in (0..bytes).step_by(PIECE) {
            let payload = Payload::zeroed(PIECE.min(bytes - offset));
            let outcome = self.volume.call(ClientRequest::Read { offset: offset as u64, payload });
            outcome.result.with_context(|| format!("reading at byte {offset}"))?;
            content.extend_from_slice(&outcome.payload.context("a read gives its payload back")?);
        }
        Ok(content)
    }

    /// Fills the array with the stream of this seed.
    pub(super) fn fill(&self, seed: u64) -> Result<()> {
        let bytes = self.volume.size_bytes();
        for offset in (0..bytes).step_by(PIECE) {
            self.write(seed, offset, (bytes - offset).min(PIECE as u64))?;
        }
        Ok(())
    }

    /// Writes the stream of this seed to some scattered places of the array.
    pub(super) fn scribble(&self, seed: u64) -> Result<()> {
        for (offset, length) in content::scribbles(seed, self.volume.size_bytes()) {
            self.write(seed, offset, length)?;
        }
        Ok(())
    }

    /// Flushes acknowledged data to the members.
    pub(super) fn flush(&self) -> Result<()> {
        self.volume.call(ClientRequest::Flush).result.context("flushing")
    }

    fn write(&self, seed: u64, offset: u64, length: u64) -> Result<()> {
        let payload = content::stream(seed, offset, length)?.into();
        let durable = offset.is_multiple_of(7);
        let outcome = self.volume.call(ClientRequest::Write { offset, payload, durable });
        outcome.result.with_context(|| format!("writing {length} bytes at byte {offset}"))
    }

    /// Adds a device, and waits until it is recovered.
    pub(super) fn add(&self, image: &Path) -> Result<()> {
        let device = braid_member::open(image, Access::ReadWrite)?;
        let newcomer = Newcomer { uuid: [0xad; 16], ..Newcomer::default() };
        self.volume.add_member(device, &newcomer, |_| {})?;
        Ok(())
    }

    /// Adds a device that replaces the member in this slot.
    pub(super) fn replace(&self, slot: u16, image: &Path) -> Result<()> {
        let device = braid_member::open(image, Access::ReadWrite)?;
        let wish = Wish { slot: Slot(slot), replaces: true };
        let (uuid, wanted) = ([0xad; 16], Some(wish));
        let newcomer = Newcomer { uuid, wanted, ..Newcomer::default() };
        self.volume.add_member(device, &newcomer, |_| {})?;
        Ok(())
    }

    /// Creates a bitmap with this many bytes for each bit, or removes it, while the array runs.
    pub(super) fn change_bitmap(&self, chunk_bytes: Option<u32>) -> Result<()> {
        let planned = chunk_bytes.map(|bytes| self.volume.plan_bitmap(Some(bytes))).transpose()?;
        let wanted = planned.map(|planned| WantedBitmap {
            chunk_bytes: planned.chunk_bytes,
            home: BitmapHome::Members,
        });
        Ok(self.volume.change_bitmap(wanted)?)
    }

    /// Creates or removes md's partial parity logs while the array runs.
    pub(super) fn change_ppl(&self, is_to_be_there: bool) -> Result<()> {
        Ok(self.volume.change_logs(is_to_be_there.then_some(LogKind::Ppl))?)
    }

    /// Creates braid's own parity logs while the array runs.
    pub(super) fn make_own_logs(&self) -> Result<()> {
        Ok(self.volume.change_logs(Some(LogKind::Own))?)
    }

    pub(super) fn job(&self) -> Option<JobProgress> {
        self.volume.job()
    }

    /// Stops the array in the middle of a job, whose progress is saved in the superblocks.
    pub(super) fn stop_job(self) {
        self.volume.request_job(JobRequest::Pause);
        self.volume.stop();
    }

    /// Stops the array, whose superblocks must be clean afterwards.
    pub(super) fn stop(self) -> Result<()> {
        ensure!(self.volume.stop().clean, "braid does not leave it clean");
        Ok(())
    }
}

/// Copies images into a folder, for braid to write.
pub(super) fn copy(images: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::remove_dir_all(folder).ok();
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let copy = |(slot, image): (usize, &PathBuf)| {
        let path = folder.join(format!("{slot}.img"));
        std::fs::copy(image, &path).with_context(|| format!("copying {}", image.display()))?;
        Ok(path)
    };
    images.iter().enumerate().map(copy).collect()
}
