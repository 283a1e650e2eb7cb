//! Devices: parameters of a new device, and the decision about an existing device.

use crate::limits::{DEPTH, QUEUES_MAX, REQUEST_BYTES_MAX};
use crate::wire::{ANY_DEVICE, DeviceInfo, feature, state};

const FEATURES: u64 = feature::USER_RECOVERY
    | feature::USER_RECOVERY_REISSUE
    | feature::CMD_IOCTL_ENCODE
    | feature::USER_COPY;

/// Whether the kernel has all features that the door needs.
#[must_use]
pub const fn is_new_enough(features: u64) -> bool {
    features & FEATURES == FEATURES
}

/// Whether a kernel with these features can change the size of a live device.
#[must_use]
pub const fn can_resize(features: u64) -> bool {
    features & feature::UPDATE_SIZE != 0
}

/// The description of the device to request; if `id` is `None`, it has any number. `array` is the
/// word by which the array recognizes the device.
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

/// The decision about an existing device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// This array's server has died, and the device waits for the next server.
    Recover,
    /// The device belongs to this array, and was never started or is stopped: delete it and make a
    /// new device.
    Remake,
    /// The device's server has died, and the kernel has not noticed yet.
    Wait,
    /// A living server has the device.
    Served,
    /// The device belongs to another array, or to another program.
    Foreign,
}

/// Decides about an existing device for the array with this word.
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
            // Another process may have got the dead server's process ID.
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
        assert!(can_resize(FEATURES | feature::UPDATE_SIZE) && !can_resize(FEATURES));
        for bit in 0..64 {
            let without = !(1_u64 << bit);
            assert_eq!(is_new_enough(without), FEATURES & (1 << bit) == 0, "{bit}");
        }
    }
}
