//! `cargo xtask dist`: packages, an archive, a container image, and a bill of materials.
//!
//! ```text
//!   braid for glibc ─▶ stage ─▶ braid_VERSION-1_ARCH.deb    ─▶ lintian ─▶ --clean-root, --guest
//!   braid, static   ─▶ stage ┬▶ braid-VERSION-1.ARCH.rpm    ─▶ installed in a folder, run, erased
//!                            ├▶ braid-VERSION-ARCH.tar.gz
//!                            └▶ braid-VERSION-ARCH.oci.tar  ─▶ unpacked, run
//!   Cargo.lock ─▶ braid-VERSION.cdx.json   (CycloneDX)
//!
//!   stage: usr/bin, manual pages, completions, unit, rule, user, docs
//! ```
//!
//! `--clean-root` and `--guest` install, use and remove Debian's package.
//!
//! All packages are made for each requested processor ([`target`]). The program itself prints all
//! texts about its commands: pages by `braid manual`, completions by `COMPLETE=SHELL braid`.

mod clean_root;
mod deb;
mod guest;
mod image;
mod rpm;
mod sbom;
pub(crate) mod target;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::build::{Profile, Program};
use crate::tidy;
use target::{Library, Processor};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder for the packages
    #[arg(long, value_name = "FOLDER", default_value = "target/dist")]
    out: PathBuf,
    /// Make only Debian's package, of this program, without a build
    #[arg(long, value_name = "PATH", conflicts_with = "arch")]
    braid: Option<PathBuf>,
    /// Processors, instead of this machine's
    #[arg(long, value_name = "PROCESSOR")]
    arch: Vec<Processor>,
    /// Install the package in an empty root (debootstrap; as root), serve an array there, remove it
    #[arg(long)]
    clean_root: bool,
    /// Install the package in a virtual machine (debootstrap, as root), reboot it, kill the server
    #[arg(long)]
    guest: bool,
}

impl Args {
    /// Options that make Debian's package of this program, and try the package in an empty root.
    pub(crate) fn clean_root(braid: PathBuf) -> Self {
        let out = PathBuf::from("target/dist-tried");
        Self { out, braid: Some(braid), arch: Vec::new(), clean_root: true, guest: false }
    }
}

/// Shells, the names of their completion files, and the folders for them.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/braid"),
    ("zsh", "usr/share/zsh/vendor-completions/_braid"),
    ("fish", "usr/share/fish/vendor_completions.d/braid.fish"),
];

/// Files of the repository, and their places in the package.
const FILES: [(&str, &str); 9] = [
    ("packaging/systemd/braid@.service", "usr/lib/systemd/system/braid@.service"),
    ("packaging/systemd/braid-member.service", "usr/lib/systemd/system/braid-member.service"),
    ("packaging/systemd/braid.sysusers", "usr/lib/sysusers.d/braid.conf"),
    ("packaging/udev/62-braid.rules", "usr/lib/udev/rules.d/62-braid.rules"),
    ("packaging/debian/copyright", "usr/share/doc/braid/copyright"),
    ("docs/service.md", "usr/share/doc/braid/service.md"),
    ("docs/operating.md", "usr/share/doc/braid/operating.md"),
    ("docs/monitoring.md", "usr/share/doc/braid/monitoring.md"),
    ("docs/hosts.md", "usr/share/doc/braid/hosts.md"),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = tidy::repository_root()?;
    let out = std::path::absolute(&args.out)?;
    // This machine's program prints the texts: a program for another processor cannot run here.
    let speaker = match &args.braid {
        Some(braid) => fs::canonicalize(braid).with_context(|| braid.display().to_string())?,
        None => Program::Braid.built(Profile::Dist)?,
    };
    let version = version(&speaker)?;
    let own = Processor::own()?;
    let processors = if args.arch.is_empty() { vec![own] } else { args.arch.clone() };
    for processor in processors {
        let linked = match &args.braid {
            Some(_) => speaker.clone(),
            None => processor.built(Library::Glibc, Profile::Dist)?,
        };
        let debug = |library: &str| {
            let file = format!("braid-{version}-{}-{library}.debug", processor.of_debian());
            args.braid.is_none().then(|| out.join(file))
        };
        let stage = staged(&root, (&speaker, &linked), (&out, debug("glibc")), processor)?;
        let package = deb::package(&root, &stage, (&out, &version), processor)?;
        println!("{}", package.display());
        deb::judged(&package)?;
        if args.clean_root && processor == own {
            clean_root::used(&package, &out)?;
        }
        if args.guest && processor == own {
            guest::used(&package, &out)?;
        }
        if args.braid.is_none() {
            let braid = processor.built(Library::Static, Profile::Dist)?;
            let stage = staged(&root, (&speaker, &braid), (&out, debug("static")), processor)?;
            packed(&stage, (&out, &version), processor)?;
        }
    }
    let bill = out.join(format!("braid-{}.cdx.json", version));
    fs::write(&bill, sbom::of_lock(&root, &version)?)?;
    println!("{}", bill.display());
    Ok(())
}

/// Packs the static program as .rpm, archive and image.
fn packed(stage: &Path, (out, version): (&Path, &str), processor: Processor) -> Result<()> {
    let name = format!("braid-{}-{}.tar.gz", version, processor.of_debian());
    let archive = out.join(name);
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-czf"]).arg(&archive);
    done(tar.arg("-C").arg(stage).arg("."))?;
    println!("{}", archive.display());
    let package = rpm::package(stage, (out, version), processor)?;
    rpm::used(&package, out, processor)?;
    let archive = image::archive(stage, (out, version), processor)?;
    image::used(&archive, (out, version), processor)
}

/// A program's version, as the program prints it.
fn version(braid: &Path) -> Result<String> {
    let said = said(Command::new(braid).arg("--version"))?;
    let version = said.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    ensure!(!version.is_empty(), "{} says no version", braid.display());
    Ok(version)
}

/// Lays out the stage: the program `braid`, and the texts that `speaker` prints. Debug information
/// goes into the file `debug`, if this file is given.
fn staged(
    root: &Path,
    (speaker, braid): (&Path, &Path),
    (out, debug): (&Path, Option<PathBuf>),
    processor: Processor,
) -> Result<PathBuf> {
    let stage = out.join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).context("the folder of the last run")?;
    }
    let program = stage.join("usr/bin/braid");
    copied(braid, &program, 0o755)?;
    stripped(&program, debug.as_deref(), &processor.tools()?)?;
    for (from, to) in FILES {
        copied(&root.join(from), &stage.join(to), 0o644)?;
    }
    let etc = stage.join("etc/braid");
    fs::create_dir_all(&etc)?;
    fs::set_permissions(&etc, fs::Permissions::from_mode(0o755))?;
    for (shell, to) in SHELLS {
        let mut asked = Command::new(speaker);
        let text = said(asked.env("COMPLETE", shell).arg("--"))?;
        ensure!(text.contains("braid"), "there is no completion for {shell}");
        // Completions call the installed program, not the packaged one.
        let text = text.replace(&speaker.display().to_string(), "braid");
        written(&stage.join(to), &text)?;
    }
    let pages = stage.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    done(Command::new(speaker).arg("manual").arg(&pages))?;
    let changes = stage.join("usr/share/doc/braid/changelog");
    copied(&root.join("CHANGELOG.md"), &changes, 0o644)?;
    let pages = fs::read_dir(&pages)?.map(|page| Ok(page?.path())).collect::<Result<Vec<_>>>()?;
    ensure!(pages.len() > 20, "{} manual pages", pages.len());
    done(Command::new("gzip").args(["-9n"]).args(pages).arg(changes))?;
    opened(&stage)?;
    Ok(stage)
}

/// Strips a program. The debug information goes to the file `debug`, whose name stays in the
/// program.
fn stripped(program: &Path, debug: Option<&Path>, tools: &str) -> Result<()> {
    let objcopy = format!("{tools}objcopy");
    if let Some(debug) = debug {
        fs::create_dir_all(debug.parent().expect("it lies in a folder"))?;
        done(Command::new(&objcopy).arg("--only-keep-debug").args([program, debug]))?;
    }
    done(Command::new(format!("{tools}strip")).arg("--strip-unneeded").arg(program))?;
    if let Some(debug) = debug {
        let link = format!("--add-gnu-debuglink={}", debug.display());
        done(Command::new(objcopy).arg(link).arg(program))?;
        println!("{}", debug.display());
    }
    Ok(())
}

/// Makes every file of a folder readable for all users, whatever the umask.
fn opened(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            opened(&entry.path())?;
        } else {
            let is_program = entry.metadata()?.permissions().mode() & 0o100 != 0;
            let mode = if is_program { 0o755 } else { 0o644 };
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

fn copied(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().expect("it lies in a folder"))?;
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

fn written(to: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(to.parent().expect("it lies in a folder"))?;
    fs::write(to, text).with_context(|| to.display().to_string())
}

/// Runs a command; an error if it fails.
fn done(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Runs a command and returns its output; an error if it fails.
fn said(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stripped_names_the_file_that_has_it() {
        braid_test_needs::needs!("g++", "objdump");
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("one.cc"), "int main() { return 0; }").expect("a source");
        let mut compiler = Command::new("g++");
        done(compiler.args(["-g", "-o"]).args([path("one"), path("one.cc")])).expect("a program");
        stripped(&path("one"), Some(&path("one.debug")), "").expect("it can be stripped");
        let sections = |name: &str| {
            said(Command::new("objdump").arg("--section-headers").arg(path(name))).expect("words")
        };
        let (program, debug) = (sections("one"), sections("one.debug"));
        assert!(program.contains(".gnu_debuglink") && !program.contains(".debug_line"));
        assert!(debug.contains(".debug_line"));
        done(&mut Command::new(path("one"))).expect("it runs still");
    }
}
