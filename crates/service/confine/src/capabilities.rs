//! Gives up all capabilities of the process, except access to other users' files if needed.
//!
//! Call this module while the process has one thread, since each thread has its own capabilities.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::ConfineError;

/// The capability that root needs for another user's files.
const OF_OTHERS: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// Capabilities that the process kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptCapabilities {
    /// The process has no capabilities: it had no capabilities, or needs none.
    Nothing,
    /// The process has access to files of other users.
    FilesOfOthers,
}

/// Gives up all capabilities, for this thread and the threads that it starts. Keeps access to other
/// users' files if a path here cannot be opened without it, for writing too if `for_writing`.
///
/// From now on, no program that this process runs has more privileges than the process, whatever
/// the program's file says (`no_new_privs`).
///
/// # Errors
/// The kernel refused.
pub fn keep(paths: &[&Path], for_writing: bool) -> Result<KeptCapabilities, ConfineError> {
    let system = |errno: Errno| ConfineError::Capabilities(errno.into());
    set_no_new_privs(true).map_err(system)?;
    let had = capabilities(None).map_err(system)?.effective;
    if had.is_empty() {
        return Ok(KeptCapabilities::Nothing);
    }
    // Without CAP_SYS_RESOURCE the kernel limits the memory that rings may register. Rings that
    // cannot register memory use memory of their own.
    if had.contains(CapabilitySet::SYS_RESOURCE) {
        let maximum = getrlimit(Resource::Memlock).maximum;
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None })
            .or_else(|_| setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum }));
    }
    if had.contains(CapabilitySet::SETPCAP) {
        for one in CapabilitySet::all().iter() {
            // This call fails for capabilities that this kernel does not have.
            let _ = remove_capability_from_bounding_set(one);
        }
    }
    let _ = clear_ambient_capability_set();
    // Tests the paths without the capability in effect, which the process can still regain.
    let set = |effective, permitted| {
        let inheritable = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective, permitted, inheritable }).map_err(system)
    };
    set(CapabilitySet::empty(), had & OF_OTHERS)?;
    let wanted = if for_writing { Access::READ_OK | Access::WRITE_OK } else { Access::READ_OK };
    let is_closed =
        |path: &&Path| accessat(CWD, *path, wanted, AtFlags::EACCESS) == Err(Errno::ACCESS);
    let kept = if paths.iter().any(is_closed) { had & OF_OTHERS } else { CapabilitySet::empty() };
    set(kept, kept)?;
    Ok(if kept.is_empty() { KeptCapabilities::Nothing } else { KeptCapabilities::FilesOfOthers })
}
