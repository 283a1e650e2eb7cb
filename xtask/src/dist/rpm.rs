//! RPM's package: rpmbuild makes it from a spec with the stage's files. The package is installed in
//! a folder, run and erased.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::target::Processor;
use super::{done, said, written};

/// The spec. The package's scripts make user, unit and rule known to the system.
const SPEC: &str = "\
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
AutoReqProv: no
Name: braid
Version: @version@
Release: 1
Summary: Software RAID in user space, on the format of Linux md
License: MIT OR Apache-2.0
URL: https://example.invalid/braid
Recommends: systemd, fuse3
%description
braid serves arrays of Linux md (mdadm) over NBD and as files, from a process
without privileges, and makes arrays that the kernel takes in turn. It repairs
what it can prove to be wrong, and says what it cannot.
%install
cp -a @stage@/. %{buildroot}
%post
if command -v systemd-sysusers > /dev/null; then systemd-sysusers braid.conf; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; udevadm control --reload || :; fi
%preun
if [ \"$1\" = 0 ] && [ -d /run/systemd/system ]; then systemctl stop 'braid@*.service' || :; fi
%files
%dir /etc/braid
@files@
";

/// Builds the RPM package from the stage's folder.
pub(super) fn package(
    stage: &Path,
    (out, version): (&Path, &str),
    processor: Processor,
) -> Result<PathBuf> {
    let mut files = Vec::new();
    files_of(stage, stage, &mut files)?;
    let spec = SPEC
        .replace("@version@", version)
        .replace("@stage@", &stage.display().to_string())
        .replace("@files@", &files.join("\n"));
    let top = out.join("rpmbuild");
    let path = top.join("braid.spec");
    written(&path, &spec)?;
    let kernel = processor.of_kernel();
    done(
        Command::new("rpmbuild")
            .args(["-bb", "--quiet", "--target", &format!("{kernel}-linux")])
            .args(["--define", &format!("_topdir {}", top.display())])
            .args(["--define", &format!("_rpmdir {}", out.display())])
            .args(["--define", "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"])
            .arg(&path),
    )?;
    fs::remove_dir_all(&top).context("what rpmbuild leaves behind")?;
    Ok(out.join(format!("braid-{}-1.{kernel}.rpm", version)))
}

fn files_of(folder: &Path, stage: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files_of(&path, stage, files)?;
        } else {
            files.push(format!("/{}", path.strip_prefix(stage)?.display()));
        }
    }
    files.sort();
    Ok(())
}

/// Installs the package in a folder of its own, without its scripts, asks the program's version,
/// and erases the package.
pub(super) fn used(package: &Path, out: &Path, processor: Processor) -> Result<()> {
    let root = out.join("rpm-root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir_all(&root)?;
    let rpm = |words: &[&str]| {
        let mut command = Command::new("rpm");
        command.arg("--root").arg(&root).args(words);
        command
    };
    done(&mut rpm(&["--initdb"]))?;
    // Installs a package for any processor. Only the package's scripts depend on the system: they
    // need a shell.
    done(rpm(&["--install", "--noscripts", "--nodeps", "--ignorearch"]).arg(package))?;
    let program = root.join("usr/bin/braid");
    let version = said(processor.running(&program)?.arg("--version"))?;
    ensure!(version.starts_with("braid "), "it says {version}");
    done(&mut rpm(&["--erase", "--noscripts", "braid"]))?;
    ensure!(!program.exists(), "{} is left behind", program.display());
    fs::remove_dir_all(&root)?;
    println!("installed, run and erased: {}", package.display());
    Ok(())
}
