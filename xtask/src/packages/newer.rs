//! Newer packages of Debian's backports, unpacked and not installed: `qemu-utils` in addition to
//! the installed QEMU, and a kernel with ublk_drv.
//!
//! apt gets lists of its own, so that the system's lists stay unchanged. A failure to fetch is
//! printed and ends no step: tests that need the package are skipped with the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Folder of the unpacked QEMU, known to `crates/cli/tests/e2e/extended_headers.rs`.
const FOLDER: &str = "target/newer-qemu";

/// Folder of the unpacked kernel with ublk_drv, named after its suite.
const KERNEL_FOLDER: &str = "target/kernel-trixie-backports";

/// The package that depends on the newest kernel for clouds: this kernel has ublk_drv, and a third
/// of the usual size.
const KERNEL: &str = "linux-image-cloud-amd64";
/// Backports of a later release: resizing a ublk device needs Linux 6.16.
const KERNEL_SUITE: &str = "trixie-backports";
/// Packages that a kernel image depends on, and that make up the kernel.
const KERNEL_PARTS: [&str; 2] = ["linux-binary-", "linux-modules-"];

/// Unpacks a newer QEMU if the installed QEMU is too old.
pub(super) fn fetch_qemu() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
    if folder.join("usr/bin/qemu-io").exists() || is_new("qemu-io") {
        return;
    }
    match fetch_and_try_qemu(&folder) {
        Ok(()) => println!("unpacked a newer qemu-utils in {FOLDER}"),
        Err(error) => println!("no newer qemu-utils: {error:#}"),
    }
}

/// Whether a program of QEMU's has version 8.2 or later.
fn is_new(program: &str) -> bool {
    let said = Command::new(program).arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    said.is_ok_and(|said| version(&said).is_some_and(|version| version >= (8, 2)))
}

/// Parses `qemu-io version 7.2.22 (Debian ...)`.
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split_once("version ")?.1.split(['.', ' ']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The folder with a kernel's image (`vmlinuz`) and `modules`, unpacked on the first call.
pub(crate) fn kernel() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(KERNEL_FOLDER);
    if folder.join("modules").exists() {
        return Ok(folder);
    }
    let unpacked = folder.with_extension("unpacked");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    fetch(&unpacked, (&main_archive()?.0, KERNEL_SUITE), |apt| {
        let depends = |package: &str| -> Result<Vec<String>> {
            let about = apt.run("apt-cache", &["show", "--no-all-versions", package])?;
            let line = about.lines().find_map(|line| line.strip_prefix("Depends: "));
            let names = line.unwrap_or_default().split(", ");
            Ok(names.filter_map(|it| it.split(' ').next().map(str::to_owned)).collect())
        };
        let image = depends(KERNEL)?.into_iter().find(|name| name.starts_with("linux-image-"));
        let image = image.with_context(|| format!("{KERNEL} names no image"))?;
        // Newer image packages are empty: the kernel and its modules are separate packages.
        let mut packages = depends(&image)?;
        packages.retain(|name| KERNEL_PARTS.iter().any(|part| name.starts_with(part)));
        packages.push(image);
        Ok(packages)
    })?;
    let modules = ["usr/lib/modules", "lib/modules"].map(|folder| unpacked.join(folder));
    let modules = modules.into_iter().find(|folder| folder.is_dir()).context("no modules")?;
    let release = fs::read_dir(modules)?.next().context("no modules")??;
    let name = format!("vmlinuz-{}", release.file_name().to_string_lossy());
    let images = [release.path().join("vmlinuz"), unpacked.join("boot").join(name)];
    let image = images.into_iter().find(|file| file.is_file()).context("no image")?;
    fs::create_dir_all(&folder)?;
    fs::rename(image, folder.join("vmlinuz"))?;
    // The folder is renamed at the end: if `modules` exists, all its files are complete.
    fs::rename(release.path(), folder.join("modules"))?;
    fs::remove_dir_all(&unpacked)?;
    println!("unpacked a newer kernel in {KERNEL_FOLDER}");
    Ok(folder)
}

fn fetch_and_try_qemu(folder: &Path) -> Result<()> {
    let (site, release) = main_archive()?;
    let suite = format!("{release}-backports");
    fetch(folder, (&site, &suite), |_| Ok(vec![format!("qemu-utils/{suite}")]))?;
    // The new program uses libraries of the older QEMU's packages; if they are missing, it does not
    // run.
    let program = folder.join("usr/bin/qemu-io");
    if !is_new(&program.display().to_string()) {
        fs::remove_dir_all(folder)?;
        bail!("it does not run here");
    }
    Ok(())
}

struct Apt {
    options: Vec<String>,
    work: PathBuf,
}

impl Apt {
    fn run(&self, program: &str, words: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        let output = command.args(&self.options).args(words).current_dir(&self.work).output();
        let output = output.context(program.to_owned())?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {}: {}", words.join(" "), why.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Unpacks packages of a suite; `names` chooses them from apt's lists.
fn fetch(
    folder: &Path,
    (site, suite): (&str, &str),
    names: impl FnOnce(&Apt) -> Result<Vec<String>>,
) -> Result<()> {
    let work = folder.with_extension("apt");
    // An interrupted download has left packages in the work folder.
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(work.join(part))?;
    }
    let work = fs::canonicalize(&work)?;
    let list = work.join("backports.list");
    fs::write(&list, format!("deb {site} {suite} main\n"))?;
    let option = |name: &str, value: PathBuf| format!("-oDir::{name}={}", value.display());
    let options = vec![
        option("Etc::SourceList", list),
        option("Etc::SourceParts", "-".into()),
        option("State::Lists", work.join("lists")),
        option("Cache", work.join("cache")),
        "--quiet=2".to_owned(),
    ];
    let apt = Apt { options, work: work.clone() };
    apt.run("apt-get", &["update"])?;
    let names = names(&apt)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    apt.run("apt-get", &[&["download"], &names[..]].concat())?;
    let packages = fs::read_dir(&work)?.filter_map(|entry| Some(entry.ok()?.path()));
    for package in packages.filter(|path| path.extension().is_some_and(|e| e == "deb")) {
        let status = Command::new("dpkg").arg("--extract").args([&package, folder]).status()?;
        if !status.success() {
            bail!("dpkg --extract: {status}");
        }
    }
    fs::remove_dir_all(&work)?;
    Ok(())
}

/// The address of the distribution's archive, and the release.
fn main_archive() -> Result<(String, String)> {
    let words =
        ["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"];
    let output = Command::new("apt-get").args(words).output().context("apt-get")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let main = said.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (site, release, component) = (words.next()?, words.next()?, words.next()?);
        // Neither the updates nor the security archive counts.
        let is_main = component == "main" && !release.contains('-') && !site.contains("security");
        is_main.then(|| (site.to_owned(), release.to_owned()))
    });
    main.context("no release's main archive is configured")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_qemu_says_them() {
        assert_eq!(version("qemu-io version 7.2.22 (Debian 1:7.2+dfsg-7)\n"), Some((7, 2)));
        assert_eq!(version("qemu-img version 10.0.2 (Debian 1:10.0.2+ds-2)"), Some((10, 0)));
        assert_eq!(version("nbdinfo 1.14.2"), None);
    }
}
