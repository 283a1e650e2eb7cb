//! Arrays that were interrupted while parity logs were added or dropped.

use crate::kit::{array, edit, edit_all, judge};
use braid_geometry::Level;
use braid_ondisk::{LogHome, LogPlace, OwnLog, OwnLogPlace, PplLog, PplPlace};

const PLACE: OwnLogPlace = OwnLogPlace::of(512);

fn own_log() -> Option<OwnLog> {
    let log = PplLog::read(&vec![0; PLACE.size_sectors as usize * 512], PLACE, &[0; 16]);
    Some(OwnLog { place: Ok(PLACE), log })
}

/// A member that was away when the array dropped its log still has a log head.
#[test]
fn a_head_of_one_is_no_log_of_all() {
    for (level, slots) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut members = array(level, slots);
        for (heads, member) in (1..).zip(0..usize::from(slots)) {
            members[member].own_log = own_log();
            let found = judge(&members).array.expect("it is whole");
            let is_kept = 2 * heads >= slots;
            assert_eq!(found.parity_logs.is_some(), is_kept, "{level}: {heads} of {slots}");
        }
        // The superblocks say that the log counts, so a log head on one member is enough.
        members[1..].iter_mut().for_each(|member| member.own_log = None);
        edit_all(&mut members, |superblock| {
            superblock.state.log_counts = Some(LogHome::Members);
            superblock.state.resync_offset = 0;
        });
        let found = judge(&members).array.expect("it is whole");
        assert!(found.parity_logs.is_some(), "{level}: what may be in doubt is in it");
    }
}

/// The newest superblock says whether members keep a PPL, and where a member keeps it whose
/// superblock names none yet.
#[test]
fn the_newest_superblock_says_whether_there_is_a_partial_parity_log() {
    const SIZE: u16 = 512;
    let mut members = array(Level::Raid5, 4);
    edit_all(&mut members, |superblock| {
        let place = superblock.ppl_place().expect("there is room");
        superblock.set_ppl(PplPlace { size_sectors: SIZE, ..place });
    });
    let all = judge(&members).array.expect("it is whole").parity_logs.expect("it has logs");
    // The update that adds logs reached only some superblocks.
    for behind in 1..4 {
        let mut members = members.clone();
        for member in &mut members[..behind] {
            edit(member, |superblock| {
                superblock.name_ppl(None);
                superblock.state.events -= 1;
            });
        }
        let found = judge(&members).array.expect("it is whole");
        assert_eq!(found.read_only, None, "{behind}");
        let logs = found.parity_logs.expect("it has logs");
        let place = |log: &braid_assembly::AssembledParityLog| -> LogPlace { log.place };
        let same = logs.values().zip(all.values()).all(|(one, other)| place(one) == place(other));
        assert!(same && logs.len() == 4, "{behind}: {logs:?}");
        // The update that drops logs reached only some superblocks.
        let mut members = array(Level::Raid5, 4);
        for member in &mut members[..behind] {
            edit(member, |superblock| {
                let place = superblock.ppl_place().expect("there is room");
                superblock.set_ppl(PplPlace { size_sectors: SIZE, ..place });
                superblock.state.events -= 1;
            });
        }
        let found = judge(&members).array.expect("it is whole");
        assert!(found.parity_logs.is_none() && found.read_only.is_none(), "{behind}");
    }
}
