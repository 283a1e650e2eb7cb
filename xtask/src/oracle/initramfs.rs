//! The guest's initramfs: a kernel's md modules, busybox, mdadm and the oracle's scripts.
//!
//! This file stands between the host's packages and `guest`. All files come from the host as
//! installed (Debian: linux-image-amd64, busybox-static, mdadm, e2fsprogs, lvm2, fdisk,
//! util-linux), except the agent, which `rustc` builds here. Nothing is downloaded. The base
//! archive is cached; a job's scripts follow the base archive as a second archive.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cpio::Archive;

/// The kernel's modules in order of insertion: each module after its dependencies.
const MODULES: [&str; 27] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "loop",
    "crc32c_generic",
    "crc16",
    "mbcache",
    "jbd2",
    "ext4",
    "libcrc32c",
    "xor",
    "raid6_pq",
    "async_tx",
    "async_memcpy",
    "async_xor",
    "async_pq",
    "async_raid6_recov",
    "md-mod",
    "linear",
    "raid0",
    "raid1",
    "raid10",
    "raid456",
];

/// Host programs that the guest gets, packed with their libraries.
const PROGRAMS: [&str; 5] =
    ["/sbin/mdadm", "/sbin/mdmon", "/usr/bin/addpart", "/usr/bin/delpart", "/usr/bin/busybox"];

const AGENT: &str = include_str!("guest/agent.rs");
const PATTERN: &str = include_str!("../../../oracle/pattern.rs");
const SCRIPTS: [(&str, &str); 3] = [
    ("init", include_str!("guest/init.sh")),
    ("run-case.sh", include_str!("guest/run-case.sh")),
    ("library.sh", include_str!("guest/library.sh")),
];

/// Modules and programs in addition to a guest's usual content.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GuestAdditions {
    /// Names of modules, each after its dependencies.
    pub(crate) modules: &'static [&'static str],
    pub(crate) programs: &'static [&'static str],
}

/// A kernel and its base archive.
pub(crate) struct Initramfs {
    /// The kernel image that QEMU loads.
    pub(crate) kernel: PathBuf,
    /// The uncompressed base archive.
    pub(crate) base: Vec<u8>,
}

impl Initramfs {
    /// Finds the newest installed kernel that has md, and packs the base archive.
    ///
    /// `cache` is the folder that keeps the agent between runs; it is made if missing. The archive
    /// also contains `more`.
    pub(crate) fn build(cache: &Path, more: &GuestAdditions) -> Result<Self> {
        std::fs::create_dir_all(cache).with_context(|| format!("making {}", cache.display()))?;
        let (kernel, modules) = find_kernel()?;
        let mut archive = Archive::new();
        for folder in ["bin", "sbin", "lib", "lib64", "dev", "proc", "sys", "tmp", "run"] {
            archive.directory(folder);
        }
        archive.directory("modules");
        add_modules(&mut archive, &modules, &[&MODULES, more.modules].concat())?;
        add_programs(&mut archive, &[&PROGRAMS, more.programs].concat())?;
        archive.file("bin/agent", &build_agent(cache)?);
        for (name, text) in SCRIPTS {
            archive.file(name, text.as_bytes());
        }
        Ok(Self { kernel, base: archive.finish() })
    }
}

/// The newest kernel with both an image and a raid456 module: (image, folder of modules).
pub(crate) fn find_kernel() -> Result<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/lib/modules").into_iter().flatten().flatten() {
        let release = entry.file_name().to_string_lossy().into_owned();
        let image = PathBuf::from(format!("/boot/vmlinuz-{release}"));
        if image.is_file() && entry.path().join("kernel/drivers/md").is_dir() {
            found.push((image, entry.path().join("kernel")));
        }
    }
    found.sort();
    found.pop().context(
        "no kernel with md found: /boot/vmlinuz-* and /lib/modules/*/kernel/drivers/md \
         (Debian: apt-get install linux-image-amd64)",
    )
}

/// Packs the named modules of a kernel, which are below `root`, and the order of their insertion.
pub(crate) fn add_modules(archive: &mut Archive, root: &Path, names: &[&str]) -> Result<()> {
    let mut order = String::new();
    for name in names {
        let Some(path) = find_module(root, name) else {
            // A later kernel may have the module built in, or may have dropped the module (linear).
            continue;
        };
        let content = match path.extension().and_then(|ending| ending.to_str()) {
            Some("xz") => output(Command::new("xz").arg("-dc").arg(&path))?,
            Some("zst") => output(Command::new("zstd").arg("-dcq").arg(&path))?,
            _ => std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?,
        };
        archive.file(&format!("modules/{name}.ko"), &content);
        order.push_str(name);
        order.push('\n');
    }
    archive.file("modules/order", order.as_bytes());
    Ok(())
}

fn find_module(folder: &Path, name: &str) -> Option<PathBuf> {
    let endings = [".ko", ".ko.xz", ".ko.zst"];
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            folders.push(path);
        } else if let Some(ending) = entry.file_name().to_str()?.strip_prefix(name)
            && endings.contains(&ending)
        {
            return Some(path);
        }
    }
    folders.sort();
    folders.iter().find_map(|folder| find_module(folder, name))
}

/// Packs programs with their libraries; the names of other commands become links to busybox.
pub(crate) fn add_programs(archive: &mut Archive, programs: &[&str]) -> Result<()> {
    let mut libraries = BTreeSet::new();
    for &program in programs {
        let name = program.rsplit('/').next().unwrap_or(program);
        let content = std::fs::read(program).with_context(|| {
            format!("the guest needs {program} (Debian: mdadm, util-linux, busybox-static, e2fsprogs, lvm2, fdisk, fio)")
        })?;
        archive.file(&format!("bin/{name}"), &content);
        // A static program makes ldd fail, which is no error.
        let listed = Command::new("ldd").arg(program).output().context("running ldd")?;
        for word in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
            if word.starts_with('/') {
                libraries.insert(word.to_owned());
            }
        }
    }
    for library in &libraries {
        let name = library.rsplit('/').next().unwrap_or(library);
        let folder = if name.starts_with("ld-linux") { "lib64" } else { "lib" };
        let content = std::fs::read(library).with_context(|| format!("reading {library}"))?;
        archive.file(&format!("{folder}/{name}"), &content);
    }
    let applets = output(Command::new("/usr/bin/busybox").arg("--list"))?;
    let own: Vec<&str> = programs.iter().filter_map(|path| path.rsplit('/').next()).collect();
    for applet in String::from_utf8_lossy(&applets).lines().filter(|name| !own.contains(name)) {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    Ok(())
}

/// Builds the agent as a static program, unless the cached agent has the same sources.
fn build_agent(cache: &Path) -> Result<Vec<u8>> {
    let folder = cache.join("agent");
    let program = folder.join("agent");
    let sources = [("main.rs", AGENT), ("pattern.rs", PATTERN)];
    std::fs::create_dir_all(&folder)?;
    let fresh = program.is_file()
        && sources.iter().all(|(name, text)| {
            std::fs::read_to_string(folder.join(name)).is_ok_and(|cached| cached == *text)
        });
    if !fresh {
        for (name, text) in sources {
            std::fs::write(folder.join(name), text)?;
        }
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition=2024", "-O", "--cap-lints=allow", "-Ctarget-feature=+crt-static"]);
        rustc.args(["--target", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)]);
        output(rustc.arg("-o").arg(&program).arg(folder.join("main.rs")))
            .context("building the guest's agent")?;
    }
    std::fs::read(&program).with_context(|| format!("reading {}", program.display()))
}

/// Runs a program; returns its standard output, or an error with the program's message.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let result = command.output().with_context(|| format!("running {name}"))?;
    if !result.status.success() {
        bail!("{name} failed ({}): {}", result.status, String::from_utf8_lossy(&result.stderr));
    }
    Ok(result.stdout)
}
