//! Payloads: bytes between a client and the members, aligned so that no copy is needed.
//!
//! Place in the flow: a front end receives into a payload, the runtime writes members from it, and
//! vice versa. Unless the payload was cut, its address is a multiple of
//! [`PAYLOAD_ALIGNMENT_BYTES`], for direct I/O.
//! ```text
//!  capacity        from                          given back to
//!  8 KiB .. 2 MiB  the arena, while it has room  the list of its size, for ever
//!  up to 128 KiB   the allocator                 the list of its size, or the allocator
//!  from there on   a mapping of its own          the list of mappings, or the system
//! ```
//! Rings have the arena registered. The other lists take memory while little is kept.
//!
//! A mapping takes addresses at once, and memory only for written pages. It grows without a copy. A
//! client's number may decide the length, so each kind has a fallible constructor; if memory is
//! lacking, only that request fails. Two kinds:
//! - [`Payload::zeroed`]: an earlier payload's bytes are gone
//!   [check: a_zeroed_payload_forgets_the_last_one].
//! - [`Payload::for_overwriting`]: an earlier payload's bytes may still be there. The taker
//!   promises to write every byte before any client sees it. Debug builds fill it with a pattern,
//!   which a test that breaks the promise sees [check: an_unwritten_payload_shows_in_debug_builds].
//!
//! Either way every byte is initialised: new memory comes zeroed.
//!
//! [`set_payload_memory`] sets how much memory may lie idle: the arena has a third of it at most,
//! and nothing is kept while payloads use the rest [check: what_is_kept_is_bounded]
//! [check: nothing_is_kept_beyond_what_is_set].

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::arena::{self, Arena, NAMED_BYTES_MIN, PAYLOAD_MEMORY_BYTES, SLAB_BYTES};

/// Alignment of a payload's bytes.
pub const PAYLOAD_ALIGNMENT_BYTES: usize = 4096;

/// Size classes: 4 KiB and its doubles, up to a slab.
const CLASSES: usize = 10;

const _: () = assert!(PAYLOAD_ALIGNMENT_BYTES << (CLASSES - 1) == SLAB_BYTES);

/// Memory of at least this length is a mapping of its own, unless the arena has it.
const MAPPED_BYTES_MIN: usize = 256 << 10;

/// Mappings longer than the largest class have a length that is a multiple of this number, which
/// makes reuse likely.
const MAPPED_BYTES_STEP: usize = 64 << 10;

/// Maximum of kept memory outside the arena: two of the longest requests of common clients.
const POOL_BYTES_MAX: usize = 64 << 20;

/// The byte with which debug builds fill a recycled payload.
const UNWRITTEN: u8 = 0xa5;

/// There is no memory for a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for {bytes} bytes")]
pub struct NoMemory {
    /// The length requested, in bytes.
    pub bytes: usize,
}

/// Owned, aligned, recycled bytes.
pub struct Payload {
    /// The start of the payload's memory.
    start: NonNull<u8>,
    /// Where the payload's bytes begin in that memory.
    skip_bytes: usize,
    length_bytes: usize,
    capacity_bytes: usize,
}

// SAFETY: a payload owns its bytes through a unique pointer, as a `Box<[u8]>` does.
#[allow(unsafe_code)]
unsafe impl Send for Payload {}

// SAFETY: through a shared reference the payload's bytes are only read.
#[allow(unsafe_code)]
unsafe impl Sync for Payload {}

/// Memory that no payload uses, with initialised bytes.
struct SpareMemory {
    start: NonNull<u8>,
    capacity_bytes: usize,
}

// SAFETY: only one copy of the pointer exists, and its holder owns the memory.
#[allow(unsafe_code)]
unsafe impl Send for SpareMemory {}

/// The process's memory that is kept for later payloads.
struct PayloadPool {
    classes: [Mutex<Vec<SpareMemory>>; CLASSES],
    mappings: Mutex<Vec<SpareMemory>>,
    /// Bytes kept outside the arena.
    bytes: AtomicUsize,
    /// Bytes kept plus bytes of payloads, both outside the arena.
    taken_bytes: AtomicUsize,
    /// While `taken_bytes` exceeds this limit, no memory is kept.
    taken_bytes_max: AtomicUsize,
}

static POOL: PayloadPool = PayloadPool {
    classes: [const { Mutex::new(Vec::new()) }; CLASSES],
    mappings: Mutex::new(Vec::new()),
    bytes: AtomicUsize::new(0),
    taken_bytes: AtomicUsize::new(0),
    taken_bytes_max: AtomicUsize::new(PAYLOAD_MEMORY_BYTES - PAYLOAD_MEMORY_BYTES / 3),
};

/// Sets the process's memory for payloads. The arena has at most a third of this memory, and never
/// gives that third back. The rest is for all other payloads, idle memory included. Payloads beyond
/// that are not refused here (their granter counts them), but no idle memory is kept while any
/// exist. Best called before the first payload is taken, which reserves the arena's addresses.
pub fn set_payload_memory(bytes: usize) {
    arena::set_bytes_max(bytes / 3);
    POOL.taken_bytes_max.store(bytes - bytes / 3, Ordering::Relaxed);
    if POOL.taken_bytes.load(Ordering::Relaxed) > bytes - bytes / 3 {
        POOL.empty();
    }
}

/// The smallest class that holds this many bytes.
fn class_of(length_bytes: usize) -> Option<usize> {
    let pages = length_bytes.div_ceil(PAYLOAD_ALIGNMENT_BYTES).checked_next_power_of_two()?;
    let class = usize::try_from(pages.trailing_zeros()).ok()?;
    (class < CLASSES).then_some(class)
}

fn capacity_of(class: usize) -> usize {
    PAYLOAD_ALIGNMENT_BYTES << class
}

impl SpareMemory {
    /// Whether the memory is the arena's, which is never freed.
    fn is_carved(&self) -> bool {
        Arena::of_process().is_some_and(|arena| arena.holds(self.start.as_ptr()))
    }

    fn is_mapped(&self) -> bool {
        self.capacity_bytes >= MAPPED_BYTES_MIN && !self.is_carved()
    }

    /// Zeroed memory from the allocator or the system.
    #[allow(unsafe_code)]
    fn new(capacity_bytes: usize) -> Option<Self> {
        assert!(capacity_bytes > 0, "nothing needs no memory");
        let start = if capacity_bytes < MAPPED_BYTES_MIN {
            // SAFETY: the layout's size is not zero (checked above).
            unsafe { alloc_zeroed(layout(capacity_bytes)) }
        } else {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping at an address of the system's choice touches no memory in use.
            let start =
                unsafe { libc::mmap(std::ptr::null_mut(), capacity_bytes, access, flags, -1, 0) };
            if start == libc::MAP_FAILED { std::ptr::null_mut() } else { start.cast() }
        };
        let start = NonNull::new(start)?;
        POOL.taken_bytes.fetch_add(capacity_bytes, Ordering::Relaxed);
        Some(Self { start, capacity_bytes })
    }

    /// Returns the memory to the allocator or the system; not for the arena's memory.
    #[allow(unsafe_code)]
    fn free(self) {
        POOL.taken_bytes.fetch_sub(self.capacity_bytes, Ordering::Relaxed);
        if self.capacity_bytes < MAPPED_BYTES_MIN {
            // SAFETY: allocated by `new` with the layout of this very capacity, and owned by us.
            return unsafe { dealloc(self.start.as_ptr(), layout(self.capacity_bytes)) };
        }
        // SAFETY: mapped by `new` or `grow` with this very length, and owned by us.
        let unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), self.capacity_bytes) };
        assert_eq!(unmapped, 0, "a mapping of our own can be taken away");
    }

    /// The same memory, longer, perhaps at another address; the added bytes are zeroed. If memory
    /// is lacking, or this memory is no mapping, the error returns the memory unchanged.
    #[allow(unsafe_code)]
    fn grow(self, capacity_bytes: usize) -> Result<Self, Self> {
        if !self.is_mapped() {
            return Err(self);
        }
        let (before, flags) = (self.capacity_bytes, libc::MREMAP_MAYMOVE);
        assert!(capacity_bytes > before, "growing lengthens");
        // SAFETY: a whole mapping, owned by value here, so that no reference to it is alive.
        let start =
            unsafe { libc::mremap(self.start.as_ptr().cast(), before, capacity_bytes, flags) };
        if start == libc::MAP_FAILED {
            return Err(self);
        }
        POOL.taken_bytes.fetch_add(capacity_bytes - before, Ordering::Relaxed);
        let start = NonNull::new(start.cast()).expect("a mapping is never at address zero");
        Ok(Self { start, capacity_bytes })
    }
}

impl PayloadPool {
    fn class(&self, class: usize) -> MutexGuard<'_, Vec<SpareMemory>> {
        self.classes[class].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mappings(&self) -> MutexGuard<'_, Vec<SpareMemory>> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, capacity_bytes: usize) -> Option<SpareMemory> {
        let spare = match class_of(capacity_bytes) {
            Some(class) => self.class(class).pop()?,
            None => {
                let mut mappings = self.mappings();
                // A mapping that is up to an eighth longer will do: the same client's next request
                // fits it again.
                let most = capacity_bytes + capacity_bytes / 8;
                let fits =
                    |spare: &SpareMemory| (capacity_bytes..=most).contains(&spare.capacity_bytes);
                let found = mappings.iter().rposition(fits)?;
                mappings.swap_remove(found)
            }
        };
        if !spare.is_carved() {
            self.bytes.fetch_sub(spare.capacity_bytes, Ordering::Relaxed);
        }
        Some(spare)
    }

    /// Keeps `spare`, or frees it if enough is kept.
    fn give(&self, spare: SpareMemory) {
        if !spare.is_carved() {
            let (bytes, most) =
                (spare.capacity_bytes, self.taken_bytes_max.load(Ordering::Relaxed));
            let is_much = self.taken_bytes.load(Ordering::Relaxed) > most;
            if is_much || self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > POOL_BYTES_MAX {
                if !is_much {
                    self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                }
                return spare.free();
            }
        }
        match class_of(spare.capacity_bytes) {
            Some(class) => self.class(class).push(spare),
            None => self.mappings().push(spare),
        }
    }

    /// Takes new memory. If memory is short, frees kept memory and tries again.
    fn take_new(&self, capacity_bytes: usize) -> Option<SpareMemory> {
        let sum = self.taken_bytes.load(Ordering::Relaxed).saturating_add(capacity_bytes);
        if sum > self.taken_bytes_max.load(Ordering::Relaxed) {
            self.empty();
        }
        SpareMemory::new(capacity_bytes).or_else(|| {
            self.empty();
            SpareMemory::new(capacity_bytes)
        })
    }

    /// Frees all kept memory but the arena's.
    fn empty(&self) {
        let freed = |list: &mut Vec<SpareMemory>| {
            for spare in list.extract_if(.., |spare| !spare.is_carved()) {
                self.bytes.fetch_sub(spare.capacity_bytes, Ordering::Relaxed);
                spare.free();
            }
        };
        (0..CLASSES).for_each(|class| freed(&mut self.class(class)));
        freed(&mut self.mappings());
    }
}

fn layout(capacity_bytes: usize) -> Layout {
    Layout::from_size_align(capacity_bytes, PAYLOAD_ALIGNMENT_BYTES)
        .expect("no payload is as long as half of all addresses")
}

#[allow(unsafe_code)]
impl Payload {
    /// A payload of zeroes, for a length that no client decides.
    pub fn zeroed(length_bytes: usize) -> Self {
        Self::try_zeroed(length_bytes)
            .unwrap_or_else(|_| handle_alloc_error(layout(Self::capacity_for(length_bytes))))
    }

    /// A payload of zeroes.
    ///
    /// # Errors
    /// There is no memory for the payload.
    pub fn try_zeroed(length_bytes: usize) -> Result<Self, NoMemory> {
        let (mut payload, is_fresh) = Self::take(length_bytes)?;
        if !is_fresh {
            payload.fill(0);
        }
        Ok(payload)
    }

    /// A payload that may show an earlier payload's bytes, for a length that no client decides. The
    /// taker promises to write every byte before another process sees it.
    pub fn for_overwriting(length_bytes: usize) -> Self {
        Self::try_for_overwriting(length_bytes)
            .unwrap_or_else(|_| handle_alloc_error(layout(Self::capacity_for(length_bytes))))
    }

    /// A payload that may show an earlier payload's bytes. The taker promises to write every byte
    /// before another process sees it.
    ///
    /// # Errors
    /// There is no memory for the payload.
    pub fn try_for_overwriting(length_bytes: usize) -> Result<Self, NoMemory> {
        let (mut payload, _) = Self::take(length_bytes)?;
        if cfg!(debug_assertions) {
            payload.fill(UNWRITTEN);
        }
        Ok(payload)
    }

    /// The memory that a payload of this length takes, in bytes.
    #[must_use]
    pub fn capacity_for(length_bytes: usize) -> usize {
        match class_of(length_bytes) {
            _ if length_bytes == 0 => 0,
            Some(class) => capacity_of(class),
            None => length_bytes.checked_next_multiple_of(MAPPED_BYTES_STEP).unwrap_or(usize::MAX),
        }
    }

    /// The inverse of [`Self::capacity_for`]: the most memory, at most `bytes`, that a payload can
    /// take.
    #[must_use]
    pub fn capacity_before(bytes: usize) -> usize {
        if bytes > capacity_of(CLASSES - 1) {
            return bytes - bytes % MAPPED_BYTES_STEP;
        }
        let pages = bytes / PAYLOAD_ALIGNMENT_BYTES;
        pages.checked_ilog2().map_or(0, |class| capacity_of(class as usize))
    }

    /// A payload, and whether it is all zeroes.
    fn take(length_bytes: usize) -> Result<(Self, bool), NoMemory> {
        let capacity_bytes = Self::capacity_for(length_bytes);
        if capacity_bytes == 0 {
            return Ok((Self::of(NonNull::dangling(), 0, 0), true));
        }
        if capacity_bytes > isize::MAX.cast_unsigned() {
            return Err(NoMemory { bytes: length_bytes });
        }
        if let Some(SpareMemory { start, capacity_bytes }) = POOL.take(capacity_bytes) {
            return Ok((Self::of(start, length_bytes, capacity_bytes), false));
        }
        let is_carved = (NAMED_BYTES_MIN..=SLAB_BYTES).contains(&capacity_bytes);
        let arena = Arena::of_process().filter(|_| is_carved);
        if let Some(start) = arena.and_then(|arena| arena.carve(capacity_bytes)) {
            return Ok((Self::of(start, length_bytes, capacity_bytes), true));
        }
        let spare = POOL.take_new(capacity_bytes).ok_or(NoMemory { bytes: length_bytes })?;
        Ok((Self::of(spare.start, length_bytes, spare.capacity_bytes), true))
    }

    fn of(start: NonNull<u8>, length_bytes: usize, capacity_bytes: usize) -> Self {
        Self { start, skip_bytes: 0, length_bytes, capacity_bytes }
    }

    fn take_memory(&mut self) -> Option<SpareMemory> {
        let empty = Self::of(NonNull::dangling(), 0, 0);
        let Self { start, capacity_bytes, .. } =
            *std::mem::ManuallyDrop::new(std::mem::replace(self, empty));
        (capacity_bytes > 0).then_some(SpareMemory { start, capacity_bytes })
    }

    /// Makes the payload longer. Its first `used_bytes` bytes stay. The taker promises to write the
    /// others, as with [`Self::for_overwriting`].
    ///
    /// # Errors
    /// There is no memory for the longer payload; the payload is unchanged.
    ///
    /// # Panics
    /// If `length_bytes` is not longer, if the payload has fewer than `used_bytes`, or after
    /// [`Self::cut`].
    pub fn try_grow(&mut self, length_bytes: usize, used_bytes: usize) -> Result<(), NoMemory> {
        assert!(length_bytes >= self.length_bytes, "growing lengthens");
        assert!(
            used_bytes <= self.length_bytes && self.skip_bytes == 0,
            "what stays is its beginning"
        );
        let capacity_bytes = Self::capacity_for(length_bytes);
        let before = self.length_bytes;
        if capacity_bytes > self.capacity_bytes {
            let is_mapped = capacity_bytes >= MAPPED_BYTES_MIN;
            let memory = if is_mapped { self.take_memory() } else { None };
            match memory.map(|memory| memory.grow(capacity_bytes)) {
                Some(Ok(grown)) => *self = Self::of(grown.start, before, grown.capacity_bytes),
                Some(Err(same)) => *self = Self::of(same.start, before, same.capacity_bytes),
                None => {}
            }
        }
        if capacity_bytes > self.capacity_bytes {
            let mut longer = Self::try_for_overwriting(length_bytes)?;
            longer[..used_bytes].copy_from_slice(&self[..used_bytes]);
            *self = longer;
        }
        self.length_bytes = length_bytes;
        if cfg!(debug_assertions) {
            self[used_bytes..].fill(UNWRITTEN);
        }
        Ok(())
    }

    /// The address of the payload's bytes; valid until the payload is dropped, wherever it is
    /// moved.
    pub fn as_non_null(&self) -> NonNull<u8> {
        // SAFETY: the address is within the payload's memory; an empty payload has a dangling
        // pointer and skips no bytes.
        unsafe { self.start.add(self.skip_bytes) }
    }

    /// Drops all bytes but the first `length_bytes`.
    ///
    /// # Panics
    /// If the payload has fewer bytes.
    pub fn truncate(&mut self, length_bytes: usize) {
        assert!(length_bytes <= self.length_bytes, "truncating does not lengthen");
        self.length_bytes = length_bytes;
    }

    /// Drops all bytes but those in `range`. Afterwards the payload's address need not be a
    /// multiple of [`PAYLOAD_ALIGNMENT_BYTES`].
    ///
    /// # Panics
    /// If `range` exceeds the payload.
    pub fn cut(&mut self, range: Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.length_bytes,
            "cutting leaves a part"
        );
        self.skip_bytes += range.start;
        self.length_bytes = range.end - range.start;
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if self.capacity_bytes > 0 {
            POOL.give(SpareMemory { start: self.start, capacity_bytes: self.capacity_bytes });
        }
    }
}

#[allow(unsafe_code)]
impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the start points to one live allocation of at least this length after the skipped
        // bytes. It has been initialised since it was made, and is borrowed with `self`. An empty
        // payload has a dangling pointer, which a slice may have.
        unsafe { std::slice::from_raw_parts(self.as_non_null().as_ptr(), self.length_bytes) }
    }
}

#[allow(unsafe_code)]
impl DerefMut for Payload {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_non_null().as_ptr(), self.length_bytes) }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::of(NonNull::dangling(), 0, 0)
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        let mut payload = Self::for_overwriting(bytes.len());
        payload.copy_from_slice(bytes);
        payload
    }
}

impl From<Box<[u8]>> for Payload {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::from(&bytes[..])
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Payload({} bytes)", self.length_bytes)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
#[path = "payload_tests.rs"]
mod tests;
