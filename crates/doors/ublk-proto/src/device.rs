//! A device: what is asked for, and what becomes of one that is there already.

use crate::limits::{DEPTH, QUEUES_MAX, REQUEST_BYTES_MAX};
use crate::wire::{ANY_DEVICE, DeviceInfo, feature, state};

/// What a device of ours can do, all of it.
const FEATURES: u64 = feature::USER_RECOVERY
    | feature::USER_RECOVERY_REISSUE
    | feature::CMD_IOCTL_ENCODE
    | feature::USER_COPY;

/// Whether a kernel that can do this will do.
#[must_use]
pub const fn is_new_enough(features: u64) -> bool {
    features & FEATURES == FEATURES
}

/// The device to ask for: with this number or any, so many queues, and a word by which its array knows it again.
#[must_use]
pub fn device(id: Option<u32>, queues: u16, array: u64) -> DeviceInfo {
    DeviceInfo {
        nr_hw_queues: queues,
        queue_depth: DEPTH,
        max_io_buf_bytes: REQUEST_BYTES_MAX,
        dev_id: id.unwrap_or(ANY_DEVICE),
        flags: FEATURES,
        ublksrv_flags: array,
        ..DeviceInfo::default()
    }
}

/// What becomes of a device that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// This array's server has died, and the device waits for the next.
    Recover,
    /// It is this array's, and was never started or is stopped: it is made anew.
    Remake,
    /// Its server has died, and the kernel is about to notice.
    Wait,
    /// A server has it.
    Served,
    /// It is another array's, or another program's.
    Foreign,
}

/// Looks at a device, for the array that is known by a word.
#[must_use]
pub fn judge(found: &DeviceInfo, array: u64, server_lives: bool) -> Judgement {
    let has_our_shape =
        (1..=QUEUES_MAX).contains(&found.nr_hw_queues) && (1..=DEPTH).contains(&found.queue_depth);
    let ours = found.ublksrv_flags == array && found.flags & FEATURES == FEATURES && has_our_shape;
    match found.state {
        state::LIVE if server_lives => Judgement::Served,
        _ if !ours => Judgement::Foreign,
        state::LIVE => Judgement::Wait,
        state::QUIESCED => Judgement::Recover,
        state::DEAD => Judgement::Remake,
        _ => Judgement::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_array_has_left_is_taken_over() {
        let mine = device(Some(3), 2, 7);
        assert_eq!((mine.dev_id, device(None, 2, 7).dev_id), (3, u32::MAX));
        for (state, lives, expected) in [
            (state::QUIESCED, false, Judgement::Recover),
            // Another process may have been given its number.
            (state::QUIESCED, true, Judgement::Recover),
            (state::LIVE, true, Judgement::Served),
            (state::LIVE, false, Judgement::Wait),
            (state::DEAD, false, Judgement::Remake),
            (99, false, Judgement::Foreign),
        ] {
            let found = DeviceInfo { state, ..mine };
            assert_eq!(judge(&found, 7, lives), expected, "{state} {lives}");
            let others = if state == state::LIVE && lives { expected } else { Judgement::Foreign };
            assert_eq!(judge(&found, 8, lives), others, "{state} {lives}");
        }
        let lesser = DeviceInfo { state: state::QUIESCED, flags: feature::USER_RECOVERY, ..mine };
        assert_eq!(judge(&lesser, 7, false), Judgement::Foreign);
        for (nr_hw_queues, queue_depth) in [(0, DEPTH), (QUEUES_MAX + 1, DEPTH), (1, 0), (1, 65)] {
            let state = state::QUIESCED;
            let of_no_shape = DeviceInfo { state, nr_hw_queues, queue_depth, ..mine };
            let judged = judge(&of_no_shape, 7, false);
            assert_eq!(judged, Judgement::Foreign, "{nr_hw_queues} {queue_depth}");
        }
    }

    #[test]
    fn a_kernel_without_one_of_the_features_will_not_do() {
        assert!(is_new_enough(FEATURES | 1));
        for bit in 0..64 {
            let without = !(1_u64 << bit);
            assert_eq!(is_new_enough(without), FEATURES & (1 << bit) == 0, "{bit}");
        }
    }
}
