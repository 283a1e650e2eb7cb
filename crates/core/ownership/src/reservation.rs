//! The fence of a device that the kernel attached (SAN, iSCSI, NVMe over fabrics): a persistent
//! reservation, whose key names array, epoch and owner.
//!
//! ```text
//!   read the reservation ─┬─ this owner's ──────────────────────────────────── claimed
//!         ▲               ├─ none ─────── register, reserve ────┐
//!         │               ├─ an older ─── register, preempt ────┤ done, or another was faster
//!         │               ├─ a later owner's, or of another program ───────── refused
//!         └───────────────┴─────────────────────────────────────┘
//! ```
//!
//! Only a registered host writes, and an owner writes only after its claim. A claim ends with this
//! owner as the holder, so every older holder has been preempted: its key is gone, and its requests
//! are aborted. An heir that registers and does not become the holder writes nothing.
//!
//! Reads are not fenced. As with a member's server, the older owner's lease ends its reads: the
//! owner asks for the reservation ten times a second.

use crate::claim::OwnerId;
use crate::fence::Mark;

/// The first byte of all keys of braid.
const MAGIC: u64 = b'b' as u64;
/// The lowest of a key's bits for the array, below the magic byte; the epoch and the owner follow.
const ARRAY_SHIFT: u32 = 40;
const EPOCH_SHIFT: u32 = 16;
/// The largest epoch that a key names: 16 million take-overs.
const EPOCH_MAX: u64 = (1 << (ARRAY_SHIFT - EPOCH_SHIFT)) - 1;
/// The most tries of a claim. Each failed try means that another heir has become the holder
/// meanwhile.
pub const CLAIM_TRIES: u32 = 16;

/// The key by which an owner registers: `b`, the first two bytes of the array's UUID, the epoch (24
/// bits), and the first two bytes of the owner. `None` if the epoch needs more bits.
#[must_use]
pub fn reservation_key(array: &[u8; 16], mark: &Mark) -> Option<u64> {
    let start = |bytes: &[u8; 16]| u64::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let epoch = Some(mark.epoch).filter(|epoch| *epoch <= EPOCH_MAX)?;
    let (array, owner) = (start(array), start(&mark.owner.0));
    Some(MAGIC << 56 | array << ARRAY_SHIFT | epoch << EPOCH_SHIFT | owner)
}

/// The owner that a key names, as far as the key holds it. `None` if another program made the key.
#[must_use]
pub fn mark_of_key(key: u64) -> Option<Mark> {
    let mut owner = [0; 16];
    owner[..2].copy_from_slice(&key.to_be_bytes()[6..]);
    let epoch = key >> EPOCH_SHIFT & EPOCH_MAX;
    (key >> 56 == MAGIC).then_some(Mark { epoch, owner: OwnerId(owner) })
}

/// The next step of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationStep {
    /// The owner holds the reservation.
    Claimed,
    /// Nothing is reserved: register, then reserve.
    Reserve,
    /// An older owner holds the reservation: register, then preempt its key.
    Preempt(u64),
    /// A later owner, or another owner of the same epoch, holds the reservation.
    Refused(Mark),
    /// Another program, or an owner of another array, has reserved the device with this key. braid
    /// leaves the device alone.
    Foreign(u64),
}

/// Decides the next step from the holder's key, which was just read.
#[must_use]
pub fn reservation_step(mine: u64, holder: Option<u64>) -> ReservationStep {
    let Some(holder) = holder else { return ReservationStep::Reserve };
    if holder == mine {
        return ReservationStep::Claimed;
    }
    let epoch_of = |key: u64| key >> EPOCH_SHIFT & EPOCH_MAX;
    let is_same_array = holder >> ARRAY_SHIFT == mine >> ARRAY_SHIFT;
    match mark_of_key(holder).filter(|_| is_same_array) {
        None => ReservationStep::Foreign(holder),
        Some(_) if epoch_of(holder) < epoch_of(mine) => ReservationStep::Preempt(holder),
        Some(mark) => ReservationStep::Refused(mark),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ARRAY: [u8; 16] = [0xc3; 16];

    fn mark(epoch: u64, owner: u8) -> Mark {
        Mark { epoch, owner: OwnerId([owner; 16]) }
    }

    #[test]
    fn a_key_names_array_epoch_and_owner() {
        let key = reservation_key(&ARRAY, &mark(7, 0xa5)).expect("a small epoch");
        assert_eq!(key, 0x62c3_c300_0007_a5a5);
        let named = mark_of_key(key).expect("braid's");
        assert_eq!((named.epoch, &named.owner.0[..2]), (7, &[0xa5, 0xa5][..]));
        let largest = reservation_key(&ARRAY, &mark(EPOCH_MAX, 1)).expect("the largest epoch");
        assert_eq!(mark_of_key(largest).map(|mark| mark.epoch), Some(EPOCH_MAX));
        assert!(reservation_key(&ARRAY, &mark(EPOCH_MAX + 1, 1)).is_none());
        assert!(mark_of_key(7).is_none());
    }

    #[test]
    fn older_owners_are_preempted_and_others_are_not() {
        let key = |epoch, owner| reservation_key(&ARRAY, &mark(epoch, owner)).expect("small");
        let mine = key(7, 1);
        assert_eq!(reservation_step(mine, None), ReservationStep::Reserve);
        assert_eq!(reservation_step(mine, Some(mine)), ReservationStep::Claimed);
        assert_eq!(reservation_step(mine, Some(key(6, 9))), ReservationStep::Preempt(key(6, 9)));
        for (epoch, owner) in [(7, 2), (7, 0), (8, 1)] {
            let step = reservation_step(mine, Some(key(epoch, owner)));
            assert!(matches!(step, ReservationStep::Refused(by) if by.epoch == epoch));
        }
        let other = reservation_key(&[1; 16], &mark(6, 1)).expect("small");
        for foreign in [1, other] {
            assert_eq!(reservation_step(mine, Some(foreign)), ReservationStep::Foreign(foreign));
        }
    }

    /// A device with reservations for registrants, as SPC-4 has them.
    #[derive(Default)]
    struct Device {
        keys: BTreeMap<usize, u64>,
        holder: Option<u64>,
    }

    impl Device {
        fn may_write(&self, host: usize) -> bool {
            self.holder.is_some() && self.keys.contains_key(&host)
        }

        fn register(&mut self, host: usize, key: u64) {
            let old = self.keys.insert(host, key);
            if old.is_some() && old == self.holder {
                self.holder = Some(key);
            }
        }

        fn reserve(&mut self, host: usize) {
            let key = self.keys.get(&host).copied();
            self.holder = self.holder.or(key);
        }

        fn preempt(&mut self, host: usize, old: u64) {
            let Some(key) = self.keys.get(&host).copied() else { return };
            if self.keys.values().any(|other| *other == old) {
                self.keys.retain(|_, other| *other != old);
                self.keys.insert(host, key);
                if self.holder == Some(old) {
                    self.holder = Some(key);
                }
            }
        }
    }

    /// A host in the middle of a claim: the step after its last read, and whether it has registered
    /// since.
    struct Host {
        epoch: u64,
        seen: Option<(ReservationStep, bool)>,
        is_owner: bool,
    }

    /// Hosts claim a device in any order of their single calls. Once a host has claimed the device,
    /// no host that claimed it with an earlier epoch can write.
    #[test]
    fn an_older_owner_cannot_write_after_a_claim() {
        let mut random = 7_u64;
        let mut below = |count: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(random >> 33).expect("31 bits") % count
        };
        let mut taken_over = 0;
        for _ in 0..20_000 {
            let mut device = Device::default();
            let new = |epoch| Host { epoch, seen: None, is_owner: false };
            let mut hosts: Vec<Host> = [1, 2, 3, 4].map(new).into();
            for _ in 0..60 {
                let index = below(hosts.len());
                let host = &mut hosts[index];
                let mine = reservation_key(&ARRAY, &mark(host.epoch, 1)).expect("small");
                match host.seen {
                    None => {
                        let step = reservation_step(mine, device.holder);
                        host.seen = Some((step, false));
                    }
                    Some((ReservationStep::Claimed, _)) => {
                        host.is_owner = true;
                        host.seen = None;
                    }
                    Some((
                        step @ (ReservationStep::Reserve | ReservationStep::Preempt(_)),
                        false,
                    )) => {
                        device.register(index, mine);
                        host.seen = Some((step, true));
                    }
                    Some((ReservationStep::Reserve, true)) => {
                        device.reserve(index);
                        host.seen = None;
                    }
                    Some((ReservationStep::Preempt(old), true)) => {
                        device.preempt(index, old);
                        host.seen = None;
                    }
                    // The host reads the reservation again, which an heir with the same epoch would
                    // not do.
                    Some(_) => host.seen = None,
                }
                let newest = hosts.iter().filter(|host| host.is_owner).map(|host| host.epoch).max();
                for (index, host) in hosts.iter().enumerate().filter(|(_, host)| host.is_owner) {
                    let is_older = Some(host.epoch) < newest;
                    taken_over += u32::from(is_older);
                    assert!(!is_older || !device.may_write(index), "epoch {}", host.epoch);
                }
            }
        }
        assert!(taken_over > 10_000, "{taken_over}");
    }
}
