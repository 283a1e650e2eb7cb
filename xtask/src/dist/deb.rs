//! Debian's package: control file, scripts, checksums; lintian judges it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::target::Processor;
use super::{copied, done, said, written};

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Dependency on a package that creates the user.
const SYSUSERS: &str = "systemd | systemd-standalone-sysusers | systemd-sysusers";

/// Tags of lintian about a package's origin and destination, which are ignored. This package is no
/// part of Debian and closes no Debian bug, and the project has no mail address.
const NOT_OURS: &str = "initial-upload-closes-no-bugs,bogus-mail-host";

/// The package's maintainer field.
const MAINTAINER: &str = "the braid authors <braid@example.invalid>";

/// Builds Debian's package from the stage's folder.
pub(super) fn package(
    root: &Path,
    stage: &Path,
    (out, version): (&Path, &str),
    processor: Processor,
) -> Result<PathBuf> {
    let control = stage.join("DEBIAN");
    fs::create_dir_all(&control)?;
    fs::set_permissions(&control, fs::Permissions::from_mode(0o755))?;
    for script in SCRIPTS {
        copied(&root.join("packaging/debian").join(script), &control.join(script), 0o755)?;
    }
    let architecture = processor.of_debian();
    let text = format!(
        "Package: braid\nVersion: {version}-1\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\nDepends: {depends}\nRecommends: systemd, fuse3\nSuggests: mdadm, nbd-client, qemu-utils\n\
         Section: admin\nPriority: optional\nHomepage: https://example.invalid/braid\n\
         Description: software RAID in user space, on the format of Linux md\n \
         braid serves arrays of Linux md (mdadm) over NBD and as files, from a process\n \
         without privileges, and makes arrays that the kernel takes in turn. It repairs\n \
         what it can prove to be wrong, and says what it cannot.\n",
        size = bytes_in(stage)? / 1024,
        depends = depends(stage, processor)?,
    );
    written(&control.join("control"), &text)?;
    let date = said(Command::new("git").current_dir(root).args(["log", "-1", "--format=%cD"]))?;
    let changes = format!(
        "braid ({version}-1) unstable; urgency=medium\n\n  * As changelog.gz says.\n\n -- {MAINTAINER}  {}\n",
        date.trim()
    );
    let file = stage.join("usr/share/doc/braid/changelog.Debian");
    written(&file, &changes)?;
    done(Command::new("gzip").arg("-9n").arg(&file))?;
    let files = said(
        Command::new("sh")
            .current_dir(stage)
            .args(["-c", "find usr -type f -exec md5sum {} + | sort -k 2"]),
    )?;
    written(&control.join("md5sums"), &files)?;
    let package = out.join(format!("braid_{version}-1_{architecture}.deb"));
    done(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .arg(stage)
            .arg(&package),
    )?;
    fs::remove_dir_all(&control)?;
    Ok(package)
}

/// The program's dependencies, from the libraries that it links.
fn depends(stage: &Path, processor: Processor) -> Result<String> {
    let objdump = format!("{}objdump", processor.tools()?);
    let linked = said(
        Command::new("sh")
            .args(["-c", "\"$2\" -p \"$1\" | grep -E 'NEEDED|GLIBC_' || true", "sh"])
            .arg(stage.join("usr/bin/braid"))
            .arg(objdump),
    )?;
    if !linked.contains("NEEDED") {
        return Ok(SYSUSERS.to_owned());
    }
    let versions = linked.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    let newest = versions.filter_map(|text| {
        let mut parts = text.split('.').map(str::parse::<u32>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    let (major, minor) = newest.max().unwrap_or((2, 17));
    let gcc = if linked.contains("libgcc_s") { ", libgcc-s1" } else { "" };
    Ok(format!("libc6 (>= {major}.{minor}){gcc}, {SYSUSERS}"))
}

fn bytes_in(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        bytes += if is_folder { bytes_in(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// Fails if lintian prints any fault of the package.
pub(super) fn judged(package: &Path) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian
        .args([
            "--no-cfg",
            "--allow-root",
            "--fail-on",
            "error,warning",
            "--suppress-tags",
            NOT_OURS,
        ])
        .arg(package);
    let Ok(output) = lintian.output() else {
        println!("lintian is not installed: the package is not judged");
        return Ok(());
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("lintian:\n{text}");
    }
    println!("lintian has no errors and no warnings");
    Ok(())
}
