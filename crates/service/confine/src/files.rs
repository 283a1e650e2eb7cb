//! Restricts files: from now on, the process can open only granted files (landlock).
//!
//! Call this module while the process has one thread: later threads inherit the restriction,
//! existing threads do not. Open files stay open. A grant covers the file that exists now: a device
//! that disappears and returns is another file.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::ConfineError;

/// The newest landlock ABI to request; an older kernel restricts less, and `Enforcement` reports
/// it.
const NEWEST: ABI = ABI::V6;

/// A grant to open files. A missing file gets no grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Grants this file or device, for reading and writing.
    Device(PathBuf),
    /// Grants this file or device, or all files below this folder, for reading and queries.
    Read(PathBuf),
    /// Grants all files below this folder, and making and removing files in it.
    Folder(PathBuf),
    /// Grants making and removing sockets in this folder.
    Sockets(PathBuf),
}

/// How far the restriction of files is in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// The restriction is completely in effect.
    Fully,
    /// The restriction is in effect as far as this kernel supports it.
    Partly,
    /// There is no restriction: the kernel has no landlock, or landlock is off.
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

/// Closes off all files except those of `grants`, all TCP connections, and signals to outside
/// processes. With `abstract_sockets`, the process may still connect to Unix sockets whose names
/// are in no folder.
pub fn restrict(grants: &[Grant], abstract_sockets: bool) -> Result<Enforcement, ConfineError> {
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
        RulesetStatus::FullyEnforced => Enforcement::Fully,
        RulesetStatus::PartiallyEnforced => Enforcement::Partly,
        RulesetStatus::NotEnforced => Enforcement::NotAtAll,
    })
}
