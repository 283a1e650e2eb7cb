//! Payloads: bytes on their way between a client and the members, aligned so that no copy is needed.
//!
//! Where it stands: a front end receives into one, the runtime writes members from it, and the other
//! way round. Its address is a multiple of [`PAYLOAD_ALIGNMENT_BYTES`], so that direct I/O takes it.
//!
//! Memory that a payload gave back is kept for the next one, by size: that of the arena ([`crate::arena`]),
//! which holds those of 8 KiB to 2 MiB, always, other memory up to [`KEPT_BYTES_MAX`] in all.
//! Two ways to take one:
//!
//! - [`Payload::zeroed`]: what an earlier one held is gone [check: a_zeroed_payload_forgets_the_last_one].
//! - [`Payload::for_overwriting`]: it may be there still, and the taker promises that every byte is
//!   written before anybody outside sees it. Debug builds fill it with a pattern, so that a test that
//!   breaks the promise sees that pattern [check: an_unwritten_payload_shows_in_debug_builds].
//!
//! Either way every byte is initialised: memory comes zeroed from the allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::arena::{Arena, NAMED_BYTES_MIN, SLAB_BYTES};

/// Where a payload's bytes begin: at a multiple of this.
pub const PAYLOAD_ALIGNMENT_BYTES: usize = 4096;

/// Sizes that are kept: 4 KiB and its doubles, to 32 MiB, the longest request of NBD clients.
const CLASSES: usize = 14;

/// Memory kept for later payloads beside the arena's, altogether: two of the longest requests.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// What a recycled payload is filled with in debug builds.
const UNWRITTEN: u8 = 0xa5;

/// Bytes that are owned, aligned and recycled.
pub struct Payload {
    start: NonNull<u8>,
    length_bytes: usize,
    capacity_bytes: usize,
}

// SAFETY: a payload owns its bytes through a unique pointer, as a `Box<[u8]>` does.
#[allow(unsafe_code)]
unsafe impl Send for Payload {}

// SAFETY: through a shared reference the bytes are only read.
#[allow(unsafe_code)]
unsafe impl Sync for Payload {}

/// Memory without an owner. Its bytes are initialised.
struct Spare(NonNull<u8>);

// SAFETY: nobody else has the pointer; whoever has it owns the memory.
#[allow(unsafe_code)]
unsafe impl Send for Spare {}

impl Spare {
    /// Whether it is the arena's, which nobody frees.
    fn is_carved(&self) -> bool {
        Arena::of_process().is_some_and(|arena| arena.holds(self.0.as_ptr()))
    }
}

/// Memory that payloads gave back.
struct Kept {
    classes: [Mutex<Vec<Spare>>; CLASSES],
    bytes: AtomicUsize,
}

static KEPT: Kept =
    Kept { classes: [const { Mutex::new(Vec::new()) }; CLASSES], bytes: AtomicUsize::new(0) };

/// The smallest kept size that holds so many bytes.
fn class_of(length_bytes: usize) -> Option<usize> {
    let pages = length_bytes.div_ceil(PAYLOAD_ALIGNMENT_BYTES).checked_next_power_of_two()?;
    let class = usize::try_from(pages.trailing_zeros()).ok()?;
    (class < CLASSES).then_some(class)
}

fn capacity_of(class: usize) -> usize {
    PAYLOAD_ALIGNMENT_BYTES << class
}

impl Kept {
    fn take(&self, class: usize) -> Option<Spare> {
        let spare = self.classes[class].lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        if !spare.is_carved() {
            self.bytes.fetch_sub(capacity_of(class), Ordering::Relaxed);
        }
        Some(spare)
    }

    /// Keeps `spare`, or gives it back when enough is kept.
    fn give(&self, class: usize, spare: Spare) -> Option<Spare> {
        let bytes = capacity_of(class);
        if spare.is_carved() {
            self.classes[class].lock().unwrap_or_else(PoisonError::into_inner).push(spare);
            return None;
        }
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > KEPT_BYTES_MAX {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Some(spare);
        }
        self.classes[class].lock().unwrap_or_else(PoisonError::into_inner).push(spare);
        None
    }
}

fn layout(capacity_bytes: usize) -> Layout {
    Layout::from_size_align(capacity_bytes, PAYLOAD_ALIGNMENT_BYTES)
        .expect("no payload is as long as half of all addresses")
}

#[allow(unsafe_code)]
impl Payload {
    /// A payload of zeroes.
    pub fn zeroed(length_bytes: usize) -> Self {
        let (mut payload, is_fresh) = Self::take(length_bytes);
        if !is_fresh {
            payload.fill(0);
        }
        payload
    }

    /// A payload whose bytes may be those of an earlier one. The taker promises to write every byte
    /// before anybody outside of this process sees it.
    pub fn for_overwriting(length_bytes: usize) -> Self {
        let (mut payload, _) = Self::take(length_bytes);
        if cfg!(debug_assertions) {
            payload.fill(UNWRITTEN);
        }
        payload
    }

    /// Memory, and whether it is all zeroes.
    fn take(length_bytes: usize) -> (Self, bool) {
        if length_bytes == 0 {
            return (Self { start: NonNull::dangling(), length_bytes: 0, capacity_bytes: 0 }, true);
        }
        let class = class_of(length_bytes);
        let capacity_bytes = match class {
            Some(class) => capacity_of(class),
            None => length_bytes.next_multiple_of(PAYLOAD_ALIGNMENT_BYTES),
        };
        if let Some(Spare(start)) = class.and_then(|class| KEPT.take(class)) {
            return (Self { start, length_bytes, capacity_bytes }, false);
        }
        let is_carved = (NAMED_BYTES_MIN..=SLAB_BYTES).contains(&capacity_bytes);
        let arena = Arena::of_process().filter(|_| is_carved);
        if let Some(start) = arena.and_then(|arena| arena.carve(capacity_bytes)) {
            return (Self { start, length_bytes, capacity_bytes }, true);
        }
        let layout = layout(capacity_bytes);
        // SAFETY: the layout's size is not zero, since the length is not.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        (Self { start, length_bytes, capacity_bytes }, true)
    }

    /// Where the bytes begin; good for as long as the payload is not dropped, wherever it is moved.
    pub fn as_non_null(&self) -> NonNull<u8> {
        self.start
    }

    /// Lets go of all bytes but the first ones.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn truncate(&mut self, length_bytes: usize) {
        assert!(length_bytes <= self.length_bytes, "truncating does not lengthen");
        self.length_bytes = length_bytes;
    }
}

#[allow(unsafe_code)]
impl Drop for Payload {
    fn drop(&mut self) {
        if self.capacity_bytes == 0 {
            return;
        }
        let mut rest = Some(Spare(self.start));
        if let Some(class) = class_of(self.capacity_bytes) {
            rest = KEPT.give(class, Spare(self.start));
        }
        if let Some(Spare(start)) = rest {
            // SAFETY: allocated by `take` with the layout of this very capacity, and owned by us: what was
            // carved is always kept.
            unsafe { dealloc(start.as_ptr(), layout(self.capacity_bytes)) }
        }
    }
}

#[allow(unsafe_code)]
impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: one live allocation of at least this length, initialised since it was made, and
        // borrowed with `self`; an empty one has a dangling pointer, which a slice may have.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length_bytes) }
    }
}

#[allow(unsafe_code)]
impl DerefMut for Payload {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length_bytes) }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        let (mut payload, _) = Self::take(bytes.len());
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
mod tests {
    use super::*;

    /// What is kept belongs to the process, so tests that look at it take turns.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn payloads_are_aligned_and_of_their_length() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        for length_bytes in [0, 1, 511, 4096, 4097, 65536, (32 << 20) + 1] {
            let payload = Payload::zeroed(length_bytes);
            assert_eq!(payload.len(), length_bytes);
            assert!(length_bytes == 0 || payload.as_ptr().addr().is_multiple_of(4096));
            assert!(payload.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_zeroed_payload_forgets_the_last_one() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // A size that no other test takes, so that the very memory comes back.
        let bytes = (4 << 20) - 100;
        let mut first = Payload::zeroed(bytes);
        first.fill(7);
        let was_at = first.as_ptr();
        drop(first);
        let second = Payload::zeroed(bytes + 50);
        assert_eq!(second.as_ptr(), was_at, "it is recycled");
        assert!(second.iter().all(|byte| *byte == 0));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn an_unwritten_payload_shows_in_debug_builds() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        drop(Payload::from(vec![7; 9000]));
        assert!(Payload::for_overwriting(9000).iter().all(|byte| *byte == UNWRITTEN));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let many: Vec<Payload> = (0..6).map(|_| Payload::zeroed(32 << 20)).collect();
        drop(many);
        assert!(KEPT.bytes.load(Ordering::Relaxed) <= KEPT_BYTES_MAX);
    }

    #[test]
    fn a_shorter_payload_goes_back_to_where_it_came_from() {
        let mut payload = Payload::from(vec![1; 1 << 21]);
        payload.truncate(3);
        assert_eq!(&payload[..], [1, 1, 1]);
        drop(payload);
        assert_eq!(Payload::zeroed(1 << 21).len(), 1 << 21);
    }
}
