//! Opens devices and passes their descriptors to a confined server, which may open nothing.
//!
//! A device that cannot be opened is not passed. The device may be a failed member that the server
//! still has open and opens again by itself. Otherwise the server refuses the device, and the
//! printed error says why this command could not open it.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;

use braid_control::DESCRIPTORS_MAX;
use braid_control::model::{MemberRequest, MembersWanted};
use braid_member::IdentityKey;

use braid_console::error::CliError;
use braid_discovery::probe::open_error;

/// Descriptors of devices that are sent with a request.
#[derive(Debug, Default)]
pub(super) struct OpenDescriptors {
    pub(super) descriptors: Vec<OwnedFd>,
    /// Number of descriptors of each device.
    pub(super) counts: Vec<u16>,
    /// The reason why the first unopened device could not be opened.
    pub(super) why: Option<CliError>,
}

pub(super) fn open_all(wanted: &MembersWanted) -> OpenDescriptors {
    let mut handed = OpenDescriptors::default();
    let are_devices = match wanted.request {
        MemberRequest::Add | MemberRequest::Spare | MemberRequest::Journal => true,
        MemberRequest::Fail | MemberRequest::Remove | MemberRequest::Replace => false,
        MemberRequest::WriteMostly => false,
    };
    let members = wanted.members.iter().map(|device| (device, are_devices));
    let mut before: Vec<(IdentityKey, Range<usize>)> = Vec::new();
    let with = wanted.with.iter().map(|device| (device, true));
    for (device, is_opened) in members.chain(with) {
        let path = Path::new(device);
        let key = braid_member::key_at(path).filter(|_| is_opened);
        // The server reports a device named twice; a second open would meet the first open's lock.
        let same = key.and_then(|key| before.iter().find(|(other, _)| *other == key));
        let again = same.map(|(_, one): &(_, Range<usize>)| {
            handed.descriptors[one.clone()].iter().map(OwnedFd::try_clone).collect()
        });
        let opened: Vec<OwnedFd> = match again {
            Some(Ok(again)) => again,
            None if is_opened => braid_member::open_for_another(path).unwrap_or_else(|error| {
                handed.why.get_or_insert_with(|| open_error(&error).because("nothing was changed"));
                Vec::new()
            }),
            Some(Err(_)) | None => Vec::new(),
        };
        let is_room = handed.descriptors.len() + opened.len() <= DESCRIPTORS_MAX;
        let opened = if is_room { opened } else { Vec::new() };
        let first = handed.descriptors.len();
        before.extend(key.map(|key| (key, first..first + opened.len())));
        handed.counts.push(u16::try_from(opened.len()).expect("a few"));
        handed.descriptors.extend(opened);
    }
    handed
}
