//! Writes a record's bytes: forward to the end of the command, or back to the content before it.
//!
//! ```text
//!   forward   every device: all but its last writes ─▶ flush ─▶ each device's last writes, durable
//!   back      one device after the other: sectors that differ from the saved ones ─▶ flush
//! ```
//!
//! Both directions may stop at any sector, and may begin again: each sector then has its old
//! content, or the content of one of the writes
//! `[check: a_command_that_stops_at_any_sector_is_finished_or_taken_back]`.

use braid_member::{Member, MemberError};
use braid_ondisk::Snippet;

use super::record::{Device, cut, differing};

/// The index of a device whose write failed, and the error.
pub type WriteFailure = (usize, MemberError);

/// Repeats the command's writes. Superblocks follow when all other writes are durable on every
/// device.
///
/// # Errors
/// A device cannot be written; earlier writes are done.
pub fn forward(devices: &[(&Device, &dyn Member)]) -> Result<(), WriteFailure> {
    for (index, (device, member)) in devices.iter().enumerate() {
        let (first, _) = device.waves();
        first
            .iter()
            .try_for_each(|write| member.write_at(&write.bytes, write.offset, false))
            .map_err(|error| (index, error))?;
    }
    flush(devices)?;
    for (index, (device, member)) in devices.iter().enumerate() {
        let (_, last) = device.waves();
        last.iter()
            .try_for_each(|write| member.write_at(&write.bytes, write.offset, true))
            .map_err(|error| (index, error))?;
    }
    flush(devices)
}

/// Restores the bytes that the command overwrote; `now` are the devices' present bytes.
///
/// # Errors
/// A device cannot be written; earlier writes are done.
pub fn back(devices: &[(&Device, &dyn Member)], now: &[&[Snippet]]) -> Result<(), WriteFailure> {
    for (index, ((device, member), now)) in devices.iter().zip(now).enumerate() {
        // Writes only differences, so that a hole that was never written needs no space in the file
        // system below a member.
        let differing = |old: Snippet| differing(old.offset, &old.bytes, &cut(now, &old).bytes);
        let mut runs = device.back().into_iter().flat_map(differing);
        runs.try_for_each(|run| member.write_at(&run.bytes, run.offset, false))
            .and_then(|()| member.flush())
            .map_err(|error| (index, error))?;
    }
    Ok(())
}

fn flush(devices: &[(&Device, &dyn Member)]) -> Result<(), WriteFailure> {
    devices
        .iter()
        .enumerate()
        .try_for_each(|(index, (_, member))| member.flush().map_err(|error| (index, error)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use braid_member::{Identity, MemoryMember};

    use super::super::judge::{Content, content, is_between};
    use super::*;

    /// A member that stops for good after this many written sectors, as when the process is killed.
    struct Mortal {
        inner: MemoryMember,
        left: Arc<AtomicUsize>,
    }

    impl Member for Mortal {
        fn size_bytes(&self) -> u64 {
            self.inner.size_bytes()
        }

        fn identity(&self) -> &Identity {
            self.inner.identity()
        }

        fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
            self.inner.read_at(buffer, offset_bytes)
        }

        fn write_at(
            &self,
            buffer: &[u8],
            offset_bytes: u64,
            durable: bool,
        ) -> Result<(), MemberError> {
            for (index, sector) in buffer.chunks(512).enumerate() {
                let left = self.left.load(Ordering::Relaxed);
                self.left
                    .store(left.checked_sub(1).ok_or(MemberError::Injected)?, Ordering::Relaxed);
                self.inner.write_at(sector, offset_bytes + index as u64 * 512, durable)?;
            }
            Ok(())
        }

        fn flush(&self) -> Result<(), MemberError> {
            self.inner.flush()
        }

        fn zero(
            &self,
            offset_bytes: u64,
            length_bytes: u64,
            durable: bool,
        ) -> Result<(), MemberError> {
            self.inner.zero(offset_bytes, length_bytes, durable)
        }

        fn can_zero_fast(&self) -> bool {
            false
        }
    }

    /// Two members of 16 KiB with data and a superblock each, and the record of writes to them.
    fn devices() -> Vec<Device> {
        let of = |seed: u8| {
            let bytes = |seed: u8, length: usize| {
                (0..length)
                    .map(|at| seed ^ u8::try_from(at / 512).expect("few"))
                    .collect::<Vec<u8>>()
            };
            let mut device = super::super::record::tests::device("a");
            device.size_bytes = 16 << 10;
            device.before = vec![Snippet { offset: 0, bytes: bytes(seed, 16 << 10) }];
            device.writes = vec![
                Snippet { offset: 8192, bytes: bytes(seed ^ 0x80, 2048) },
                Snippet { offset: 512, bytes: bytes(seed ^ 0x40, 512) },
                Snippet { offset: 4096, bytes: bytes(seed ^ 0x20, 1024) },
            ];
            device.last_writes = 1;
            device
        };
        vec![of(1), of(2)]
    }

    fn pairs<'a>(
        devices: &'a [Device],
        members: &'a [Mortal],
    ) -> Vec<(&'a Device, &'a dyn Member)> {
        devices
            .iter()
            .zip(members)
            .map(|(device, member)| (device, member as &dyn Member))
            .collect()
    }

    fn now(members: &[Mortal]) -> Vec<Vec<Snippet>> {
        let read = |member: &Mortal| {
            let mut bytes = vec![0; 16 << 10];
            member.read_at(&mut bytes, 0).expect("memory");
            vec![Snippet { offset: 0, bytes }]
        };
        members.iter().map(read).collect()
    }

    fn contents(devices: &[Device], now: &[Vec<Snippet>]) -> Vec<Content> {
        devices.iter().zip(now).map(|(device, now)| content(device, now)).collect()
    }

    #[test]
    fn a_command_that_stops_at_any_sector_is_finished_or_taken_back() {
        let devices = devices();
        let left = Arc::new(AtomicUsize::new(0));
        let fresh = || -> Vec<Mortal> {
            let member = |device: &Device| Mortal {
                inner: MemoryMember::from_bytes(&device.before[0].bytes),
                left: Arc::clone(&left),
            };
            devices.iter().map(member).collect()
        };
        let before: Vec<Vec<Snippet>> =
            devices.iter().map(|device| device.before.clone()).collect();
        let after: Vec<Vec<Snippet>> = devices.iter().map(Device::after).collect();
        let all: usize = devices
            .iter()
            .flat_map(|device| &device.writes)
            .map(|write| write.bytes.len() / 512)
            .sum();
        let take_back = |members: &[Mortal], sectors: usize| {
            left.store(sectors, Ordering::Relaxed);
            let now = now(members);
            let now: Vec<&[Snippet]> = now.iter().map(Vec::as_slice).collect();
            back(&pairs(&devices, members), &now)
        };
        for first in 0..=all {
            let stopped = || {
                let members = fresh();
                left.store(first, Ordering::Relaxed);
                assert_eq!(forward(&pairs(&devices, &members)).is_ok(), first == all, "{first}");
                members
            };
            let members = stopped();
            let is_halfway = 0 < first && first < all;
            assert_eq!(
                is_between(&contents(&devices, &now(&members))),
                is_halfway,
                "{first} of {all}"
            );
            // While data is missing, no superblock is written that declares the data valid.
            if first < all - 4 {
                let stands = now(&members);
                let superblock = |which: usize| {
                    stands[which][0].bytes[4096..5120] == before[which][0].bytes[4096..5120]
                };
                assert!(superblock(0) && superblock(1), "{first}");
            }
            left.store(usize::MAX, Ordering::Relaxed);
            forward(&pairs(&devices, &members)).expect("nothing stops it");
            assert_eq!(now(&members), after, "stopped after {first}, and finished");
            for second in 0..=first {
                let members = stopped();
                assert_eq!(
                    take_back(&members, second).is_ok(),
                    second == first,
                    "{first}, {second}"
                );
                assert!(
                    !contents(&devices, &now(&members)).contains(&Content::Changed),
                    "{first}, {second}"
                );
                take_back(&members, usize::MAX).expect("nothing stops it");
                assert_eq!(now(&members), before, "stopped after {first}, its undo after {second}");
            }
        }
    }
}
