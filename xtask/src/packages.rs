//! The distribution's packages that the tests need, and their installation.
//!
//! Names of packages are Debian's. As root, the step installs missing packages; otherwise it prints
//! the one line to run, and fails. On a system without dpkg the step only prints the list, and
//! later steps name the tools that they miss.
//!
//! A QEMU with NBD's extended headers (8.2) is newer than Debian 12's. Its backport is unpacked
//! under `target`, in addition to the installed QEMU, so that the system does not change. If there
//! is no backport, the test of extended headers prints that it is missing ([`newer`]).

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

mod newer;

pub(crate) use newer::kernel as newer_kernel;

/// Clients: libnbd's tools, libnbd from Python, the kernel's. The kernel with md, and QEMU and GRUB
/// to boot it. QEMU's storage daemon, LVM and its pools, file systems, and the programs that cut
/// the power of file systems and load them. Python for helpers of two tests, an HTTP client,
/// fusermount3 for mounts by users. ISA-L to compare parity with, libFuzzer's compiler, promtool
/// for alerts, a browser for the page. Judges of units (systemd-analyze) and of packages, and
/// debootstrap for a root. Users of a file (fuser), system calls (strace), instruction counts
/// (valgrind). A store of an array's owner (etcd), networks and certificates of several hosts.
/// Copies of failing disks (ddrescue), and partition tables on them (sfdisk).
const NEEDED: [&str; 40] = [
    "qemu-system-x86",
    "qemu-system-common",
    "grub-pc-bin",
    "qemu-utils",
    "qemu-block-extra",
    "linux-image-amd64",
    "mdadm",
    "lvm2",
    "thin-provisioning-tools",
    "fio",
    "libnbd-bin",
    "nbdkit",
    "etcd-server",
    "iproute2",
    "openssl",
    "nftables",
    "nbd-client",
    "fuse3",
    "busybox-static",
    "cpio",
    "curl",
    "e2fsprogs",
    "python3",
    "xfsprogs",
    "btrfs-progs",
    "fsmark",
    "dbench",
    "libisal-dev",
    "g++",
    "prometheus",
    "chromium",
    "python3-libnbd",
    "systemd",
    "lintian",
    "debootstrap",
    "psmisc",
    "strace",
    "valgrind",
    "gddrescue",
    "fdisk",
];

/// The package with Go, in which one test's client is written.
const GO: &str = "golang-go";

/// Installs missing packages, or prints the command that installs them.
pub(crate) fn ensure() -> Result<()> {
    if Command::new("dpkg-query").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("no dpkg here; the tests need what Debian calls: {}", NEEDED.join(" "));
        return Ok(());
    }
    let mut missing: Vec<&str> =
        NEEDED.into_iter().filter(|name| !is_installed(&status_of(name))).collect();
    // A Go from another source than the distribution is as good, and usually newer.
    if !braid_test_needs::is_installed("go") {
        missing.push(GO);
    }
    if missing.is_empty() {
        println!("all {} packages are installed", NEEDED.len());
        newer::fetch_qemu();
        return Ok(());
    }
    if !is_root()? {
        println!("Missing packages. Run this once, then try again:\n\n  {}\n", line(&missing));
        bail!("{} packages are missing", missing.len());
    }
    println!("installing {}", missing.join(" "));
    apt(&["update"])?;
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&missing);
    apt(&install)?;
    newer::fetch_qemu();
    Ok(())
}

/// The command line to install the missing packages, for an operator other than root.
fn line(missing: &[&str]) -> String {
    let names = missing.join(" ");
    format!("sudo apt-get update && sudo apt-get install --yes --no-install-recommends {names}")
}

fn status_of(name: &str) -> String {
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", name])
        .output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn is_installed(status: &str) -> bool {
    status == "installed"
}

pub(crate) fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output().context("id -u")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

fn apt(args: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .arg("--quiet=2")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .context("apt-get")?;
    if !status.success() {
        bail!("apt-get {}: {status}", args.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_whose_files_are_gone_counts_as_missing() {
        assert!(is_installed("installed"));
        assert!(!is_installed("config-files") && !is_installed(""));
    }

    #[test]
    fn the_line_names_what_is_missing_and_nothing_else() {
        let line = line(&["fio", "cpio"]);
        assert!(line.ends_with(" fio cpio") && line.contains("apt-get update &&"));
    }
}
