//! Devices for a member request: passed open by the client, or opened here by path.
//!
//! A passed device stays open and locked until the request is answered: so if data is put back
//! after a refusal, it goes to the same device.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use braid_control::PassedDescriptors;
use braid_control::model::MembersWanted;
use braid_member::{Access, Member};

use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::probe::{open_error, open_member};

#[derive(Default)]
pub(super) struct RequestDevices {
    by_path: BTreeMap<PathBuf, Vec<OwnedFd>>,
    /// The server may open no new paths, so clients must pass devices open.
    is_closed: bool,
}

impl RequestDevices {
    /// The devices that came with a request.
    ///
    /// # Errors
    /// The number of passed devices differs from the number of devices in the request.
    pub(super) fn of(
        wanted: &MembersWanted,
        passed: &PassedDescriptors,
        is_closed: bool,
    ) -> Result<Self, CliError> {
        let mut came = passed.take();
        let said: usize = wanted.descriptors.iter().copied().map(usize::from).sum();
        let devices = wanted.members.iter().chain(&wanted.with);
        if said != came.len() || wanted.descriptors.len() > devices.clone().count() {
            let what = format!("the request announced {said} descriptors, and {} came", came.len());
            let error = CliError::new(Code::Usage, what).because("nothing was changed");
            return Err(error.remedy(Risk::Look, "Let braid send it", "braid help add"));
        }
        let mut by_path = BTreeMap::new();
        for (device, count) in devices.zip(&wanted.descriptors).filter(|(_, count)| **count > 0) {
            let rest = came.split_off(usize::from(*count));
            by_path.insert(PathBuf::from(device), std::mem::replace(&mut came, rest));
        }
        Ok(Self { by_path, is_closed })
    }

    /// Opens a device, either to examine it or to use it as a member.
    pub(super) fn open(&self, path: &Path, access: Access) -> Result<Box<dyn Member>, CliError> {
        if let Some(descriptors) = self.by_path.get(path) {
            let again = descriptors.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>();
            let again = again.map_err(|error| {
                system(
                    "the descriptors that came with the request cannot \
                                              be used",
                    &error,
                )
            })?;
            return braid_member::adopt(path, again).map_err(|error| open_error(&error));
        }
        open_member(path, access).map_err(|error| {
            if error.code() != Code::MemberPermission || !self.is_closed {
                return error;
            }
            let label = path.display().to_string();
            let what = format!(
                "{label} came without a descriptor, and the server opens nothing \
                                by itself"
            );
            let word = shell_word(&label).into_owned();
            CliError::new(Code::FilesClosed, what)
                .about(label)
                .because(
                    "braid sends no descriptor for a failed device that the server still \
                          holds open: remove it first",
                )
                .remedy(Risk::Look, "See who uses it", format!("fuser -v {word}"))
        })
    }
}
