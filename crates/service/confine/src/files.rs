//! Files: only what is granted can be opened from now on (landlock).
//!
//! To be called while there is one thread: threads that are started later have the same, those that are there do not. What is
//! open already stays open. A grant is of the file that is there now: a device that goes and comes again is another one.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::ConfineError;

/// The newest that is asked for; a kernel that knows less does less, and that is told.
const NEWEST: ABI = ABI::V6;

/// Something that may be opened. What is not there is granted to nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// This file or device, for reading and writing.
    Device(PathBuf),
    /// This file or device, or all below this folder, for reading and asking.
    Read(PathBuf),
    /// All below this folder, and making and removing files there.
    Folder(PathBuf),
    /// Making and removing sockets in this folder.
    Sockets(PathBuf),
}

/// How far it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// All of it.
    Fully,
    /// As far as this kernel can.
    Partly,
    /// Not at all: the kernel has no landlock, or it is off.
    NotAtAll,
}

impl Grant {
    fn parts(&self) -> (&PathBuf, BitFlags<AccessFs>) {
        use AccessFs::{
            IoctlDev, MakeDir, MakeReg, MakeSock, ReadDir, ReadFile, Refer, RemoveDir, RemoveFile,
            Truncate, WriteFile,
        };
        match self {
            Self::Device(path) => (path, ReadFile | WriteFile | Truncate | IoctlDev),
            Self::Read(path) if path.is_dir() => (path, ReadFile | ReadDir),
            Self::Read(path) => (path, ReadFile | IoctlDev),
            Self::Folder(path) => (
                path,
                ReadFile
                    | WriteFile
                    | Truncate
                    | ReadDir
                    | MakeReg
                    | MakeDir
                    | MakeSock
                    | Refer
                    | RemoveFile
                    | RemoveDir,
            ),
            Self::Sockets(path) => (path, ReadDir | MakeSock | RemoveFile),
        }
    }
}

/// Closes off all files but these; all connections over TCP; and signals to processes outside. `abstract_sockets`: sockets by
/// names that are in no folder may still be connected to.
///
/// # Errors
/// The kernel knows landlock and refused.
pub fn restrict(grants: &[Grant], abstract_sockets: bool) -> Result<Held, ConfineError> {
    let scopes = if abstract_sockets {
        Scope::Signal.into()
    } else {
        BitFlags::from(Scope::Signal) | Scope::AbstractUnixSocket
    };
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::ConnectTcp)?
        .scope(scopes)?
        .create()?;
    for grant in grants {
        let (path, access) = grant.parts();
        let Ok(file) = PathFd::new(path) else { continue };
        ruleset = ruleset.add_rule(PathBeneath::new(file, access))?;
    }
    Ok(match ruleset.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Held::Fully,
        RulesetStatus::PartiallyEnforced => Held::Partly,
        RulesetStatus::NotEnforced => Held::NotAtAll,
    })
}
