//! `braid scan`: lists the arrays on devices, and prints a configuration file for each array.
//! Writes only with --write.
//!
//! ```text
//!   devices, or all ─look─▶ by UUID ─▶ name (mdadm.conf's, or the superblocks') ─▶ NAME.toml
//! ```
//!
//! With --udev, `scan` prints the name of a device's array, if the array has a configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use braid_assembly::Choice;
use serde_json::json;

use super::Globals;
use super::serve::config_file;
use crate::config::{self, mdadm};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_console::regular;
use braid_discovery::devices::{self, MemberDevice};
use braid_discovery::ready::choice;

const MDADM_CONF_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Devices, files, or patterns of them; without any all block devices.
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
    /// Write the file of each array that has none yet.
    #[arg(long)]
    write: bool,
    /// The folder of these files; without it $BRAID_CONFIG_DIR, or /etc/braid.
    #[arg(long, value_name = "FOLDER")]
    config_dir: Option<PathBuf>,
    /// The file whose ARRAY lines name arrays; without it mdadm's own, if it is there.
    #[arg(long, value_name = "FILE")]
    mdadm_conf: Option<PathBuf>,
    /// For a rule of udev: print BRAID_NAME=NAME if the device belongs to an array that has a file
    /// here, and nothing else.
    #[arg(long, requires = "devices", conflicts_with_all = ["write", "mdadm_conf"])]
    udev: bool,
}

struct Array {
    /// The array's name in the configuration.
    name: String,
    uuid: String,
    /// The name in the array's superblocks, with the host.
    full_name: String,
    level: String,
    metadata: String,
    devices: u32,
    members: Vec<(PathBuf, u64)>,
    /// Whether mdadm.conf says `<ignore>` for the array.
    is_ignored_by_mdadm: bool,
    /// The name of the array's file, if it has one.
    has_file: Option<String>,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let folder = args.config_dir.clone().unwrap_or_else(config::folder);
    if args.udev {
        return udev(&args.devices, &folder);
    }
    let lines = mdadm_lines(args.mdadm_conf.as_deref())?;
    let devices = match args.devices.is_empty() {
        true => devices::all_devices(),
        false => devices::matching(&args.devices)?,
    };
    let arrays = arrays(devices::look(&devices), &lines, &files(&folder));
    let mut written = BTreeMap::new();
    for array in arrays.iter().filter(|array| args.write && array.has_file.is_none()) {
        let there = config::path_of(&folder, &array.name);
        // An existing file with a syntax error selects no array, but may be an operator's work.
        if there.symlink_metadata().is_ok() {
            let (path, name) = (there.display().to_string(), printable(&array.name));
            errln!("warning: {} is not for {name}, and stays unchanged", printable(&path));
            continue;
        }
        let path = config::write(&folder, &array.name, &array.file());
        let path =
            path.map_err(|error| not_written(&config::path_of(&folder, &array.name), &error))?;
        written.insert(array.uuid.clone(), path);
    }
    if globals.json {
        let arrays: Vec<_> = arrays.iter().map(|array| array.json(&folder, &written)).collect();
        outjson!(&json!({ "version": 1, "devices": devices.len(), "arrays": arrays }));
    } else {
        tell(args, &arrays, (devices.len(), &folder, &written));
    }
    Ok(if arrays.is_empty() { Exit::NoSuchArray } else { Exit::Done })
}

fn tell(
    args: &Args,
    arrays: &[Array],
    (looked_at, folder, written): (usize, &Path, &BTreeMap<String, PathBuf>),
) {
    if arrays.is_empty() {
        outln!("no array on {looked_at} devices");
        return;
    }
    for (index, array) in arrays.iter().enumerate() {
        if index > 0 {
            outln!("");
        }
        let path = config::path_of(folder, array.has_file.as_deref().unwrap_or(&array.name));
        let path = path.display().to_string();
        let path = printable(&path);
        match (&array.has_file, written.contains_key(&array.uuid)) {
            (Some(_), _) => {
                outln!("# {} has a file, which stays unchanged: {path}", printable(&array.name))
            }
            (None, true) => outln!("# written: {path}"),
            (None, false) => outln!("# {path}"),
        }
        out!("{}", array.file());
    }
    let is_new = |array: &&Array| array.has_file.is_none();
    match arrays.iter().find(is_new) {
        Some(_) if !args.write => {
            outln!("\n# nothing was written; to write the missing files:  braid scan --write")
        }
        Some(array) => {
            let unit = shell_word(&format!("braid@{}.service", array.name)).into_owned();
            outln!("\n# serve it now, and at each start:  systemctl enable --now {unit}");
        }
        None => {}
    }
}

/// Prints the name of a device's array if the array has a file in `folder`; otherwise nothing.
fn udev(devices: &[String], folder: &Path) -> Result<Exit, CliError> {
    let files = files(folder);
    if files.is_empty() {
        return Ok(Exit::Done);
    }
    let found = devices.iter().find_map(|path| devices::look_at(Path::new(path)));
    if let Some(name) = found.and_then(|found| file_of(&files, &found)) {
        outln!("BRAID_NAME={name}");
    }
    Ok(Exit::Done)
}

/// The names of configuration files, and the array of each. A file with errors selects none.
fn files(folder: &Path) -> Vec<(String, Choice)> {
    let names = config::names(folder);
    if names.is_empty() {
        return Vec::new();
    }
    let options = config_file::serve_options();
    let about = |name: String| {
        let array = config::read(folder, &name, &options).ok()?.array?;
        Some((name, choice(Some(&array))))
    };
    names.into_iter().filter_map(about).collect()
}

/// The name of the configuration file that selects this member's array, if any.
fn file_of(files: &[(String, Choice)], member: &MemberDevice) -> Option<String> {
    files.iter().find(|(_, choice)| member.is_of(choice)).map(|(name, _)| name.clone())
}

/// The ARRAY lines of mdadm.conf.
fn mdadm_lines(named: Option<&Path>) -> Result<Vec<mdadm::ArrayLine>, CliError> {
    let usual = mdadm::PATHS.iter().map(Path::new).find(|path| path.is_file());
    let Some(path) = named.or(usual) else { return Ok(Vec::new()) };
    match regular::read_text(path, MDADM_CONF_BYTES_MAX) {
        Ok(text) => Ok(mdadm::arrays(&text)),
        // The operator named no file: an error of the usual mdadm.conf, such as a missing
        // permission, says nothing about the devices.
        Err(_) if named.is_none() => Ok(Vec::new()),
        Err(error) => {
            let label = path.display().to_string();
            let what = format!("{label} cannot be read");
            let error =
                CliError::new(Code::ConfigMissing, what).about(label.clone()).caused_by(&error);
            Err(error.remedy(Risk::Look, "Look at it", format!("ls -l {}", shell_word(&label))))
        }
    }
}

/// The arrays of these devices, in the order of their names. A name with a configuration file of
/// another array is taken, even if this other array is absent.
fn arrays(
    found: Vec<MemberDevice>,
    lines: &[mdadm::ArrayLine],
    files: &[(String, Choice)],
) -> Vec<Array> {
    let mut by_uuid: BTreeMap<String, Vec<MemberDevice>> = BTreeMap::new();
    for one in found {
        by_uuid.entry(one.uuid()).or_default().push(one);
    }
    let mut arrays: Vec<Array> = Vec::new();
    for (uuid, mut members) in by_uuid {
        members.sort_by(|one, other| one.path.cmp(&other.path));
        let newest = members.iter().max_by_key(|one| one.superblock.state.events);
        let newest = newest.expect("there is one at least");
        let superblock = &newest.superblock;
        let line = lines.iter().find(|line| line.means(&uuid, &superblock.array.name));
        let called = line.and_then(|line| line.called()).map(str::to_owned);
        let has_file = file_of(files, newest);
        // A configuration file with errors selects no array, but its name stays taken.
        let is_others = |name: &str| {
            files.iter().any(|(one, _)| one == name) && has_file.as_deref() != Some(name)
        };
        let taken = |name: &str| arrays.iter().any(|other| other.name == name) || is_others(name);
        let mut names = [called, Some(newest.name().to_owned())].into_iter().flatten();
        let name = names.find(|name| is_file_name(name) && !taken(name));
        arrays.push(Array {
            name: name.unwrap_or_else(|| uuid.replace(':', "")),
            full_name: superblock.array.name.clone(),
            level: superblock.array.level.to_string(),
            metadata: superblock.version.to_string(),
            devices: superblock.array.raid_slots,
            is_ignored_by_mdadm: line.is_some_and(|line| line.is_ignored),
            has_file,
            members: members
                .iter()
                .map(|one| (devices::stable_name(&one.path), one.probed.size_bytes))
                .collect(),
            uuid,
        });
    }
    arrays.sort_by(|one, other| one.name.cmp(&other.name));
    arrays
}

/// Whether a name can serve as a file name and a unit name without escaping.
fn is_file_name(name: &str) -> bool {
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with(['.', '-']) && name.chars().all(is_plain)
}

impl Array {
    /// The array's configuration file. It selects block devices by UUID, and files by path.
    fn file(&self) -> String {
        let is_block = |path: &Path| {
            use std::os::unix::fs::FileTypeExt;
            std::fs::metadata(path).is_ok_and(|file| file.file_type().is_block_device())
        };
        let (level, devices, metadata) = (&self.level, self.devices, &self.metadata);
        let mut lines = vec![format!(
            "# {level} of {devices}, metadata {metadata}, called {}",
            toml(&self.full_name)
        )];
        for (path, size_bytes) in &self.members {
            lines.push(format!(
                "#   {}  {}",
                printable(&path.display().to_string()),
                format_size(*size_bytes)
            ));
        }
        lines.push(format!("array = {}", toml(&self.uuid)));
        if self.members.iter().any(|(path, _)| !is_block(path)) {
            lines.push("members = [".to_owned());
            let member = |(path, _): &(PathBuf, u64)| {
                format!("    {},", toml(&braid_member::absolute(path).to_string_lossy()))
            };
            lines.extend(self.members.iter().map(member));
            lines.push("]".to_owned());
        }
        lines.join("\n") + "\n"
    }

    fn json(&self, folder: &Path, written: &BTreeMap<String, PathBuf>) -> serde_json::Value {
        let file = self.has_file.as_ref().map(|name| config::path_of(folder, name));
        let file = file.as_ref().or_else(|| written.get(&self.uuid));
        let member =
            |(path, size_bytes): &(PathBuf, u64)| json!({ "path": path, "size_bytes": size_bytes });
        json!({
            "name": self.name,
            "uuid": self.uuid,
            "level": self.level,
            "metadata": self.metadata,
            "devices": self.devices,
            "members": self.members.iter().map(member).collect::<Vec<_>>(),
            "ignored_by_mdadm": self.is_ignored_by_mdadm,
            "file": file,
            "written": written.contains_key(&self.uuid),
            "text": self.file(),
        })
    }
}

/// A string of TOML. JSON's escaping fits, except for one character that JSON does not escape.
fn toml(text: &str) -> String {
    json!(text).to_string().replace('\u{7f}', "\\u007f")
}

fn not_written(path: &Path, error: &std::io::Error) -> CliError {
    let label = path.display().to_string();
    let folder = path.parent().unwrap_or(path).display().to_string();
    let error = CliError::new(Code::ConfigUnfit, format!("{label} cannot be written"))
        .about(label)
        .caused_by(error);
    error.remedy(Risk::Look, "See who may write there", format!("ls -ld {}", shell_word(&folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_have_to_be_escaped_are_none() {
        for name in ["tank", "md0", "a.b-c_d"] {
            assert!(is_file_name(name), "{name}");
        }
        for name in ["", ".a", "-a", "a/b", "a b", "ä", "a\n"] {
            assert!(!is_file_name(name), "{name}");
        }
    }

    #[test]
    fn a_file_that_was_written_is_understood() {
        let array = Array {
            name: "tank".into(),
            uuid: "00112233:44556677:8899aabb:ccddeeff".into(),
            full_name: "box:\"tank\n".into(),
            level: "raid6".into(),
            metadata: "1.2".into(),
            devices: 4,
            members: vec![(PathBuf::from("/no such/\"file"), 512)],
            is_ignored_by_mdadm: false,
            has_file: None,
        };
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(config::path_of(folder.path(), "tank"), array.file()).expect("a file");
        let config = config::read(folder.path(), "tank", &config_file::serve_options())
            .expect("it is understood");
        assert_eq!(config.array.as_deref(), Some(&*array.uuid));
        assert_eq!(config.members, [PathBuf::from("/no such/\"file")]);
        let files = files(folder.path());
        let [(name, choice)] = &*files else { panic!("{files:?}") };
        let mut uuid = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128;
        assert!(name == "tank" && choice.admits(&uuid.to_be_bytes(), ""));
        uuid -= 0xf;
        assert!(!choice.admits(&uuid.to_be_bytes(), ""));
    }
}
