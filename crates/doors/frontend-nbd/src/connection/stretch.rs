//! Cuts a long TRIM or WRITE_ZEROES, which may cover the whole export, into stretches.
//!
//! Where it stands: under the connection, which asks the export for one stretch at a time and keeps
//! the rest with the request. So a request of any length needs the memory of a short one, and other
//! requests run in between. If the client disconnects, its request ends with the current stretch.
//!
//! ```text
//!   offset ├──────┤ stretch ├─────────┤ stretch ├───── .. ─────┤ at least one, less than two ├ end
//!                 ▲ multiples of the export's stretch
//! ```
//!
//! Each stretch has `fua` if the request has it. The last stretch is at least full length: an
//! export that trims whole sectors would do nothing for a shorter tail, and would make nothing
//! durable.

use braid_nbd_proto::Command;

use braid_ring::client::ClientRequest;

/// Splits a command into a request for its first stretch and the rest of the command.
///
/// # Panics
/// If the command is one that is never cut into stretches, which is a mistake of the caller.
pub(super) fn first(command: Command, stretch_bytes: u64) -> (ClientRequest, Option<Command>) {
    let (offset, length) = match command {
        Command::Trim { offset, length, .. } | Command::WriteZeroes { offset, length, .. } => {
            (offset, length)
        }
        _ => unreachable!("{command:?} is not cut"),
    };
    let until = stretch_bytes - offset % stretch_bytes;
    // The command is cut only if a full stretch remains, so that the tail is not short.
    let is_cut = length >= until.saturating_add(stretch_bytes);
    let taken = if is_cut { until } else { length };
    let rest = is_cut.then(|| with_range(command, offset + taken, length - taken));
    let operation = match with_range(command, offset, taken) {
        Command::WriteZeroes { offset, length, fua, may_punch, fast } => {
            ClientRequest::WriteZeroes { offset, length, may_punch, fast, durable: fua }
        }
        Command::Trim { offset, length, fua } => {
            ClientRequest::Trim { offset, length, durable: fua }
        }
        other => unreachable!("{other:?} is not cut"),
    };
    (operation, rest)
}

fn with_range(mut command: Command, new_offset: u64, new_length: u64) -> Command {
    if let Command::Trim { offset, length, .. } | Command::WriteZeroes { offset, length, .. } =
        &mut command
    {
        (*offset, *length) = (new_offset, new_length);
    }
    command
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    fn all(offset: u64, length: u64, stretch_bytes: u64) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        let mut left = Some(Command::Trim { offset, length, fua: true });
        while let Some(command) = left {
            let (operation, rest) = first(command, stretch_bytes);
            let ClientRequest::Trim { offset, length, durable: true } = operation else {
                panic!("{operation:?}")
            };
            ranges.push((offset, length));
            left = rest;
        }
        ranges
    }

    #[test]
    fn stretches_are_the_request_end_at_multiples_and_have_no_tail() {
        for offset in 0..25 {
            for length in 1..80 {
                let ranges = all(offset, length, 10);
                let mut at = offset;
                for (start, taken) in &ranges {
                    assert_eq!(*start, at);
                    assert!((1..20).contains(taken));
                    at += taken;
                }
                assert_eq!(at, offset + length);
                let (last, before) = ranges.split_last().expect("there is one");
                assert!(before.iter().all(|(start, taken)| (start + taken) % 10 == 0));
                assert!(before.is_empty() || last.1 >= 10, "{offset} {length}: {last:?}");
            }
        }
    }

    #[test]
    fn the_largest_numbers_are_cut_too() {
        let stretch = 1 << 62;
        let ranges = all(u64::MAX - (3 << 62), 3 << 62, stretch);
        assert_eq!(ranges.iter().map(|(_, length)| length).sum::<u64>(), 3 << 62);
        let zero =
            Command::WriteZeroes { offset: 5, length: 30, fua: false, may_punch: true, fast: true };
        let (operation, rest) = first(zero, 10);
        let ClientRequest::WriteZeroes {
            offset: 5,
            length: 5,
            durable: false,
            may_punch: true,
            fast: true,
        } = operation
        else {
            panic!("{operation:?}")
        };
        assert!(matches!(rest, Some(Command::WriteZeroes { offset: 10, length: 25, .. })));
    }
}
