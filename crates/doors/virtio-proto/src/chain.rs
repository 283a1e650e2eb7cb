//! Follows a chain of descriptors, which is untrusted, and returns the runs of memory that the
//! descriptors name.
//!
//! A chain lies in the ring's own table, or in another table that its only descriptor names; a mix
//! of both is refused, since no driver needs it. The runs that the device reads come first; the
//! runs that the device writes follow. The caller checks that the runs lie in the guest's memory.

use smallvec::SmallVec;
use zerocopy::FromBytes;

use crate::limits::DESCRIPTORS_MAX;
use crate::wire::{DESCRIPTOR_BYTES, Descriptor, descriptor_flag};

/// Runs stored without an allocation: as many as a request with one run of payload has.
const INLINE: usize = 4;

/// A run of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The run's address in the guest's physical memory.
    pub address: u64,
    /// Length of the run in bytes; not 0.
    pub length: u32,
}

/// A table of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The table's address in the guest's physical memory.
    pub address: u64,
    /// Number of descriptors in the table.
    pub entries: u16,
}

/// Why a chain cannot be followed. No content of such a chain is trusted, not even the position of
/// its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The table does not lie in the guest's memory.
    #[error("a descriptor lies outside the guest's memory")]
    Unreadable,
    /// A descriptor's link leads outside its table.
    #[error("descriptor {0} is outside its table")]
    Outside(u16),
    /// The chain runs in a circle, or is longer than any chain may be.
    #[error("the chain has no end")]
    Endless,
    /// A descriptor names a table within a table, a table whose length is no multiple of a
    /// descriptor, or a table and a link.
    #[error("a table of descriptors is malformed")]
    Table,
    /// A run that the device reads follows a run that it writes.
    #[error("what the device reads comes behind what it writes")]
    Order,
    /// All runs together are longer than a chain may be, or a run ends beyond the last address.
    #[error("the chain's memory is longer than 4 GiB")]
    TooLong,
}

/// The runs of memory of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    readable: SmallVec<[Run; INLINE]>,
    writable: SmallVec<[Run; INLINE]>,
    readable_bytes: u32,
    writable_bytes: u32,
}

impl Chain {
    /// Follows a chain from its head. `read` returns the bytes of a descriptor at an address.
    ///
    /// # Errors
    /// See [`ChainError`].
    pub fn walk(
        table: Table,
        head: u16,
        mut read: impl FnMut(u64) -> Option<[u8; DESCRIPTOR_BYTES as usize]>,
    ) -> Result<Self, ChainError> {
        let mut chain = Self::default();
        let (mut table, mut index, mut is_indirect) = (table, head, false);
        for _ in 0..=DESCRIPTORS_MAX {
            if index >= table.entries {
                return Err(ChainError::Outside(index));
            }
            let offset = u64::from(index).saturating_mul(u64::from(DESCRIPTOR_BYTES));
            let address = table.address.checked_add(offset).ok_or(ChainError::Unreadable)?;
            let bytes = read(address).ok_or(ChainError::Unreadable)?;
            let descriptor = Descriptor::read_from_bytes(&bytes).expect("so many bytes");
            let flags = descriptor.flags.get();
            if flags & descriptor_flag::INDIRECT != 0 {
                // An indirect descriptor must be the only one of its chain.
                if is_indirect || index != head || flags & descriptor_flag::NEXT != 0 {
                    return Err(ChainError::Table);
                }
                (table, index, is_indirect) = (indirect(&descriptor)?, 0, true);
                continue;
            }
            chain.add(&descriptor)?;
            if flags & descriptor_flag::NEXT == 0 {
                return Ok(chain);
            }
            index = descriptor.next.get();
        }
        Err(ChainError::Endless)
    }

    fn add(&mut self, descriptor: &Descriptor) -> Result<(), ChainError> {
        let run = Run { address: descriptor.address.get(), length: descriptor.length.get() };
        run.address.checked_add(u64::from(run.length)).ok_or(ChainError::TooLong)?;
        let is_writable = descriptor.flags.get() & descriptor_flag::WRITE != 0;
        if !is_writable && !self.writable.is_empty() {
            return Err(ChainError::Order);
        }
        let both = self.readable_bytes.checked_add(self.writable_bytes);
        both.and_then(|both| both.checked_add(run.length)).ok_or(ChainError::TooLong)?;
        if run.length == 0 {
            return Ok(());
        }
        let (runs, bytes) = if is_writable {
            (&mut self.writable, &mut self.writable_bytes)
        } else {
            (&mut self.readable, &mut self.readable_bytes)
        };
        runs.push(run);
        *bytes = bytes.saturating_add(run.length);
        Ok(())
    }

    /// Number of bytes of the request that the device reads: head and payload.
    #[must_use]
    pub fn readable_bytes(&self) -> u32 {
        self.readable_bytes
    }

    /// Number of bytes of the request that the device writes: payload and status.
    #[must_use]
    pub fn writable_bytes(&self) -> u32 {
        self.writable_bytes
    }

    /// The runs that the device reads, without the first `skip` bytes.
    pub fn readable(&self, skip: u32) -> impl Iterator<Item = Run> + '_ {
        behind(&self.readable, skip)
    }

    /// The runs that the device writes.
    pub fn writable(&self) -> impl Iterator<Item = Run> + '_ {
        behind(&self.writable, 0)
    }

    /// The address of the status, the last byte that the device writes, if it writes any bytes.
    #[must_use]
    pub fn status(&self) -> Option<u64> {
        let last = self.writable.last()?;
        last.address.checked_add(u64::from(last.length.checked_sub(1)?))
    }
}

/// The runs without their first `skip` bytes.
fn behind(runs: &[Run], skip: u32) -> impl Iterator<Item = Run> + '_ {
    let mut skip = skip;
    runs.iter().filter_map(move |run| {
        let skipped = skip.min(run.length);
        skip = skip.saturating_sub(skipped);
        let length = run.length.saturating_sub(skipped);
        let address = run.address.saturating_add(u64::from(skipped));
        (length > 0).then_some(Run { address, length })
    })
}

fn indirect(descriptor: &Descriptor) -> Result<Table, ChainError> {
    let (bytes, each) = (descriptor.length.get(), DESCRIPTOR_BYTES);
    let entries = bytes.checked_div(each).unwrap_or_default();
    if bytes == 0 || !bytes.is_multiple_of(each) {
        return Err(ChainError::Table);
    }
    let entries = u16::try_from(entries).map_err(|_| ChainError::Table)?;
    Ok(Table { address: descriptor.address.get(), entries })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::wire::descriptor_flag::{INDIRECT, NEXT, WRITE};

    fn descriptor(address: u64, length: u32, flags: u16, next: u16) -> Descriptor {
        Descriptor {
            address: address.into(),
            length: length.into(),
            flags: flags.into(),
            next: next.into(),
        }
    }

    /// Follows a chain in memory that has the tables `own` at `0x1000` and `other` at `0x8000`.
    fn walk(own: &[Descriptor], other: &[Descriptor], head: u16) -> Result<Chain, ChainError> {
        let entries = u16::try_from(own.len()).expect("few");
        Chain::walk(Table { address: 0x1000, entries }, head, |address| {
            let (table, at) = match address {
                0x1000..0x8000 => (own, address - 0x1000),
                _ => (other, address.checked_sub(0x8000)?),
            };
            let found = table.get(usize::try_from(at / 16).ok()?)?;
            found.as_bytes().try_into().ok()
        })
    }

    #[test]
    fn runs_are_told_apart_and_the_status_is_the_last_byte() {
        let chain = walk(
            &[
                descriptor(0x10, 16, NEXT, 2),
                descriptor(0x900, 1, WRITE, 9),
                descriptor(0x200, 512, NEXT | WRITE, 3),
                descriptor(0x500, 512, NEXT | WRITE, 1),
            ],
            &[],
            0,
        )
        .expect("a chain");
        assert_eq!((chain.readable_bytes(), chain.writable_bytes()), (16, 1025));
        assert_eq!(chain.status(), Some(0x900));
        let runs: Vec<Run> = chain.writable().collect();
        assert_eq!(runs[1], Run { address: 0x500, length: 512 });
        let rest: Vec<Run> = chain.readable(10).collect();
        assert_eq!(rest, [Run { address: 0x1a, length: 6 }]);
        assert_eq!(chain.readable(16).count(), 0);
    }

    #[test]
    fn a_table_elsewhere_is_followed_once() {
        let own = [descriptor(0x8000, 32, INDIRECT, 0), descriptor(0, 1, 0, 0)];
        let two = [descriptor(0x10, 16, NEXT, 1), descriptor(0x20, 1, WRITE, 0)];
        assert_eq!(walk(&own, &two, 0).expect("a chain").status(), Some(0x20));
        let nested = [descriptor(0x8000, 32, INDIRECT, 0)];
        assert_eq!(walk(&own, &nested, 0), Err(ChainError::Table));
        for (length, flags) in [(0, INDIRECT), (17, INDIRECT), (32, INDIRECT | NEXT)] {
            let own = [descriptor(0x8000, length, flags, 0)];
            assert_eq!(walk(&own, &two, 0), Err(ChainError::Table), "{length} {flags}");
        }
        let late = [descriptor(0x10, 16, NEXT, 1), descriptor(0x8000, 32, INDIRECT, 0)];
        assert_eq!(walk(&late, &two, 0), Err(ChainError::Table));
    }

    #[test]
    fn what_makes_no_sense_is_no_chain() {
        let circle = [descriptor(0x10, 16, NEXT, 1), descriptor(0x20, 16, NEXT, 0)];
        assert_eq!(walk(&circle, &[], 0), Err(ChainError::Endless));
        assert_eq!(walk(&circle, &[], 2), Err(ChainError::Outside(2)));
        let out = [descriptor(0x10, 16, NEXT, 7)];
        assert_eq!(walk(&out, &[], 0), Err(ChainError::Outside(7)));
        let order = [descriptor(0x10, 16, NEXT | WRITE, 1), descriptor(0x20, 16, 0, 0)];
        assert_eq!(walk(&order, &[], 0), Err(ChainError::Order));
        let long = [descriptor(0, u32::MAX, NEXT, 1), descriptor(0, 1, 0, 0)];
        assert_eq!(walk(&long, &[], 0), Err(ChainError::TooLong));
        let beyond = [descriptor(u64::MAX, 2, 0, 0)];
        assert_eq!(walk(&beyond, &[], 0), Err(ChainError::TooLong));
        let gone = [descriptor(0xffff_0000, 32, INDIRECT, 0)];
        assert_eq!(walk(&gone, &[], 0), Err(ChainError::Unreadable));
        let nothing = walk(&[descriptor(0x10, 0, WRITE, 0)], &[], 0).expect("a chain");
        assert_eq!((nothing.status(), nothing.writable_bytes()), (None, 0));
    }

    proptest! {
        #[test]
        fn a_chain_is_walked_in_bounded_steps(
            own in proptest::collection::vec((any::<u64>(), any::<u32>(), 0_u16..8, 0_u16..20), 1..16),
            head in 0_u16..20,
        ) {
            let own: Vec<_> =
                own.into_iter().map(|(at, length, flags, next)| descriptor(at, length, flags, next)).collect();
            let entries = u16::try_from(own.len()).expect("few");
            let mut steps = 0;
            let walked = Chain::walk(Table { address: 0, entries }, head, |address| {
                steps += 1;
                own[usize::try_from(address / 16).expect("small") % own.len()].as_bytes().try_into().ok()
            });
            prop_assert!(steps <= u32::from(DESCRIPTORS_MAX) + 1);
            if let Ok(chain) = walked {
                let sum = |runs: Vec<Run>| runs.iter().map(|run| u64::from(run.length)).sum::<u64>();
                prop_assert_eq!(sum(chain.readable(0).collect()), u64::from(chain.readable_bytes()));
                prop_assert_eq!(sum(chain.writable().collect()), u64::from(chain.writable_bytes()));
                prop_assert_eq!(chain.status().is_some(), chain.writable_bytes() > 0);
            }
        }
    }
}
