//! Processors for which braid is packaged, and builds for them.
//!
//! ```text
//!   glibc    for Debian's package: this processor's by its compiler, another's by a cross compiler
//!   static   no library at all (musl): the archive, the .rpm, the image
//! ```
//!
//! The static program runs on any kernel, through io_uring or threads.
//!
//! Programs of another processor run here under qemu-user, without io_uring (`--io threads`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::build::{self, Profile, Program};
use crate::tidy;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Processor {
    #[value(name = "x86-64")]
    X86_64,
    Aarch64,
}

/// The C library that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Glibc,
    /// musl, linked into the program.
    Static,
}

impl Processor {
    /// This machine's processor.
    pub(crate) fn own() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::X86_64),
            "aarch64" => Ok(Self::Aarch64),
            other => bail!("braid is not packaged on {other}"),
        }
    }

    /// Debian's name for the processor, which images use too.
    pub(super) const fn of_debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The kernel's name for the processor, which RPM uses too.
    pub(super) const fn of_kernel(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    pub(crate) fn triple(self, library: Library) -> String {
        let library = match library {
            Library::Glibc => "gnu",
            Library::Static => "musl",
        };
        format!("{}-unknown-linux-{library}", self.of_kernel())
    }

    /// The prefix of the processor's cross compiler and binary tools; empty for this machine's
    /// processor.
    pub(super) fn tools(self) -> Result<String> {
        let of = |word: &str| format!("{word}-linux-gnu-");
        Ok(if self == Self::own()? { String::new() } else { of(self.of_kernel()) })
    }

    /// A command that runs the processor's programs on this machine.
    pub(crate) fn running(self, program: &Path) -> Result<Command> {
        if self == Self::own()? {
            return Ok(Command::new(program));
        }
        let [emulator, words @ ..] = self.emulator();
        let mut command = Command::new(emulator);
        command.args(words).arg(program);
        Ok(command)
    }

    /// The emulator for the processor's programs, with the folder of the processor's libraries.
    fn emulator(self) -> [String; 3] {
        let kernel = self.of_kernel();
        [format!("qemu-{kernel}-static"), "-L".to_owned(), format!("/usr/{kernel}-linux-gnu")]
    }

    /// Cargo with these arguments, and a compiler and a runner for this processor.
    pub(crate) fn cargo(self, words: &[&str], library: Library) -> Result<Command> {
        let triple = self.triple(library);
        is_there(&triple)?;
        let mut command = build::command(words);
        command.args(["--target", &triple]);
        let compiler = format!("{}gcc", self.tools()?);
        let key = triple.to_uppercase().replace('-', "_");
        // A compiler option against calls into libgcc, which static programs do not link.
        let words = if self == Self::Aarch64 { "-mno-outline-atomics" } else { "" };
        command
            .env(format!("CC_{}", triple.replace('-', "_")), &compiler)
            .env(format!("CFLAGS_{}", triple.replace('-', "_")), words)
            .env(format!("CARGO_TARGET_{key}_LINKER"), &compiler)
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            .env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
        if self != Self::own()? {
            command.env(format!("CARGO_TARGET_{key}_RUNNER"), self.emulator().join(" "));
        }
        Ok(command)
    }

    /// Builds braid for the processor, with this C library and profile.
    pub(crate) fn built(self, library: Library, profile: Profile) -> Result<PathBuf> {
        if self == Self::own()? && library == Library::Glibc {
            return Program::Braid.built(profile);
        }
        let mut command = self.cargo(&["build", "--quiet", "--package", "braid"], library)?;
        command.args(["--bin", "braid", "--profile", profile.name()]);
        let status = command.status().context("cargo")?;
        ensure!(status.success(), "{command:?}: {status}");
        let folder = build::folder()?.join(self.triple(library)).join(profile.name());
        Ok(folder.join("braid"))
    }
}

/// An error if the target's standard library is not installed.
fn is_there(triple: &str) -> Result<()> {
    let installed = Command::new("rustup")
        .current_dir(tidy::repository_root()?)
        .args(["target", "list", "--installed"])
        .output();
    // Without rustup the installed targets cannot be known: the build tries the target.
    let Ok(installed) = installed else { return Ok(()) };
    let installed = String::from_utf8_lossy(&installed.stdout).into_owned();
    ensure!(
        installed.lines().any(|line| line == triple),
        "Rust's library for {triple} is not installed: rustup target add {triple}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_the_names_that_others_give_them() {
        let of = |processor: Processor| (processor.of_debian(), processor.of_kernel());
        assert_eq!(of(Processor::X86_64), ("amd64", "x86_64"));
        assert_eq!(of(Processor::Aarch64), ("arm64", "aarch64"));
        assert_eq!(Processor::Aarch64.triple(Library::Static), "aarch64-unknown-linux-musl");
    }
}
