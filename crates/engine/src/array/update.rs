//! From what the array wants its superblocks to say to the update of one member's.
//!
//! Every driver writes superblocks this way; the time is the driver's to tell.

use braid_hooks::{Bug, planted};
use std::sync::Arc;

use braid_ondisk::{Role, Superblock, SuperblockUpdate};

use super::{MemberId, SuperblockState};

/// What brings a member that has fewer than `events` level with that count, if it has.
///
/// Being one behind is no harm: the member missed an update, but no write that the update was to
/// allow. If the next update then reached only some members, it would be two behind the newest, and
/// be called stale. So it is brought level first, with the newest table; dirty if any member says so.
#[must_use]
pub fn level_with(
    superblock: &Superblock,
    newest: &Superblock,
    (events, resync_offset): (u64, u64),
    update_time_seconds: u64,
) -> Option<SuperblockUpdate> {
    (superblock.state.events < events).then(|| SuperblockUpdate {
        events,
        update_time_seconds,
        resync_offset,
        roles: Arc::from(newest.state.roles.as_slice()),
        recovery_offset: superblock.device.recovery_offset_sectors,
        role_of_this: superblock.state.role,
    })
}

/// The update of one member's superblock for `state`.
///
/// Devices that the array lists get their role; devices that were active and are not listed any
/// more are faulty; what was never used stays as it was.
#[must_use]
pub fn update_for(
    superblock: &Superblock,
    member: MemberId,
    recovered_sectors: u64,
    state: &SuperblockState,
    update_time_seconds: u64,
) -> SuperblockUpdate {
    let mut roles: Vec<Role> = superblock
        .state
        .roles
        .iter()
        .map(|role| match role {
            Role::Active(_) if !planted(Bug::LostStaysInTable) => Role::Faulty,
            _ => *role,
        })
        .collect();
    let mut role_of_this = Role::Faulty;
    for device in state.roles.iter() {
        let role = device.slot.map_or(Role::Spare, |slot| Role::Active(slot.0));
        let index = usize::from(device.device_number);
        if roles.len() <= index {
            roles.resize(index + 1, Role::Spare);
        }
        roles[index] = role;
        if device.member == member {
            role_of_this = role;
        }
    }
    SuperblockUpdate {
        events: state.events,
        update_time_seconds,
        resync_offset: state.resync_offset,
        roles: Arc::from(roles),
        recovery_offset: (recovered_sectors != u64::MAX).then_some(recovered_sectors),
        role_of_this,
    }
}
