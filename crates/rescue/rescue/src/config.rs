//! The options of a rescue, and the command line that repeats it.

use std::path::PathBuf;

use braid_console::output::shell::shell_word;
use braid_discovery::raid0_layout::Raid0Layout;

/// The options: arrays, members to believe, and actions.
#[derive(Debug, Clone, Default)]
pub struct RescueConfig {
    /// Only this array, if the members are of several: its name or UUID.
    pub array: Option<String>,
    /// Believe these members although they are older, the array gave them up, or their superblocks
    /// are slightly damaged. Labels as braid shows them, with commas between. A spare is tried in
    /// each free slot, or in this one (SPARE=SLOT).
    pub with: Vec<String>,
    /// Continue as if these members did not exist, to see the result without these members.
    pub without: Vec<String>,
    /// The map of a copy of a disk, from ddrescue or `braid image`. Bytes that the disk did not
    /// return are computed from the other members, or are an I/O error. Without this option
    /// IMAGE.map is used, if it exists. May be given more than once.
    pub maps: Vec<NamedMap>,
    /// The serial number of a disk in a container of Intel's (IMSM), as the container's metadata
    /// lists it. A copy of a disk has no serial number of its own. May be given more than once.
    pub serials: Vec<NamedSerial>,
    /// Compute the bytes that this copy of a disk lacks from the other members, and write them into
    /// the copy and its map. Nothing else is written.
    pub fill: Option<PathBuf>,
    /// Find the files behind unreadable bytes, with the tools of the file system (debugfs, xfs_db).
    pub lost: bool,
    /// Read the whole array and compare. Names the wrong member where two parities or three copies
    /// reveal it, and else the places where members differ.
    pub check: bool,
    /// The backup file that mdadm made for a reshape (`mdadm --grow --backup-file`). The sectors
    /// ahead of the reshape's position are read from this file.
    pub backup_file: Option<PathBuf>,
    /// With --backup-file: use it although it is older, or newer, than the superblocks.
    pub accept_older: bool,
    /// For an array in the middle of a reshape in place: use the position that md recorded, and do
    /// not search the array's content for how far md got.
    pub as_recorded: bool,
    /// Read in spite of bad-block logs, which may name sound sectors. Over an overlay the logs are
    /// emptied, and `--commit` writes that to the members.
    pub ignore_bad_blocks: bool,
    /// Find out how members with lost or wrong superblocks were put together, from their content.
    /// Continues with a certain answer; else shows all guesses.
    pub solve: bool,
    /// The layout of a RAID-0 of unequal members beyond the smallest member, if the superblocks do
    /// not name one. Try both and look at the content.
    pub layout: Option<Raid0Layout>,
    /// With --solve: continue with this guess, by its number.
    pub guess: Option<usize>,
    /// The folder of overlays, which take all writes while serving. Default: in the state folder.
    pub overlay: Option<PathBuf>,
    /// Serve the array over NBD, and each partition and volume on it as an export of its own; of
    /// several arrays, all readable ones. Writes go into the overlay.
    pub serve: bool,
    /// Serve the array read-only: no overlay is made, and sectors at risk are an I/O error.
    pub read_only: bool,
    /// Serve the array for writing if at most this many of its stripes may read wrong.
    pub accept_risk: Option<u64>,
    /// The NBD URI to serve on; may be given more than once.
    pub uris: Vec<String>,
    /// Serve the array as a file as well, through FUSE.
    pub fuse: Option<PathBuf>,
    /// Run a shell command with $uri set, and $file with --fuse, and stop when it ends.
    pub run: Option<String>,
    /// Write the overlay to the members, saving overwritten bytes (`braid undo`), and delete it.
    pub commit: bool,
    /// With --commit: show the sectors that would be written to each member, and write nothing.
    pub dry_run: bool,
    /// Delete the overlay; members are unchanged.
    pub discard: bool,
    /// Members, or whole disks that have them in partitions, in any order.
    pub members: Vec<PathBuf>,
}

/// `MEMBER=FILE`.
#[derive(Debug, Clone)]
pub struct NamedMap {
    /// The member that is a copy, as given.
    pub member: PathBuf,
    /// The file with the copy's map.
    pub map: PathBuf,
}

impl std::str::FromStr for NamedMap {
    type Err = &'static str;

    fn from_str(words: &str) -> Result<Self, Self::Err> {
        let (member, map) = words.split_once('=').ok_or("MEMBER=FILE is wanted")?;
        Ok(Self { member: member.into(), map: map.into() })
    }
}

/// `MEMBER=SERIAL`.
#[derive(Debug, Clone)]
pub struct NamedSerial {
    /// The member, as given.
    pub member: PathBuf,
    /// The serial number of the member's disk.
    pub serial: String,
}

impl std::str::FromStr for NamedSerial {
    type Err = &'static str;

    fn from_str(words: &str) -> Result<Self, Self::Err> {
        // A path may contain `=`, but a serial number never does, so the last `=` separates the
        // two.
        let (member, serial) = words.rsplit_once('=').ok_or("MEMBER=SERIAL is wanted")?;
        Ok(Self { member: member.into(), serial: serial.to_owned() })
    }
}

impl RescueConfig {
    pub(super) fn words(&self) -> String {
        let words =
            self.members.iter().map(|path| shell_word(&path.display().to_string()).into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    /// The command line of this rescue, without the backup file.
    pub(super) fn without_backup(&self) -> String {
        let line = self.command("");
        self.backup_words()
            .map_or_else(|| line.clone(), |words| line.replace(&format!(" {words}"), ""))
    }

    pub(super) fn backup_words(&self) -> Option<String> {
        let path = self.backup_file.as_ref()?;
        let older = if self.accept_older { " --accept-older" } else { "" };
        Some(format!("--backup-file {}{older}", shell_word(&path.display().to_string())))
    }

    /// The command line of this rescue, with other options.
    pub(super) fn command(&self, more: &str) -> String {
        self.command_for(None, more)
    }

    /// The command line of this rescue with other options, for one of several arrays.
    pub(super) fn command_for(&self, array: Option<&str>, more: &str) -> String {
        let list = |name: &str, values: &[String]| {
            (!values.is_empty()).then(|| format!("{name} {}", shell_word(&values.join(","))))
        };
        let map = |named: &NamedMap| {
            shell_word(&format!("{}={}", named.member.display(), named.map.display())).into_owned()
        };
        let maps: Vec<String> =
            self.maps.iter().map(|named| format!("--map {}", map(named))).collect();
        let serial = |named: &NamedSerial| {
            shell_word(&format!("{}={}", named.member.display(), named.serial)).into_owned()
        };
        let serials: Vec<String> =
            self.serials.iter().map(|named| format!("--serial {}", serial(named))).collect();
        // When commit or discard runs, the overlay has recorded which members are believed.
        let is_plain = ["--commit", "--discard"].iter().any(|word| more.contains(*word));
        let array = self.array.as_deref().or(array).filter(|_| !more.contains("--array"));
        let overlay = self.overlay.as_ref().filter(|_| !more.contains("--overlay"));
        let solve = Some("--solve").filter(|_| self.solve && !more.contains("--solve"));
        // A command that shows all guesses chooses none.
        let guess = self.guess.filter(|_| !more.contains("--guess") && more != "--solve");
        // `--solve` tries both layouts.
        let is_chosen = ["--solve", "--layout"].iter().any(|word| more.contains(*word));
        let layout = self.layout.filter(|_| !is_chosen);
        let words = [
            Some("braid rescue".to_owned()),
            (!more.is_empty()).then(|| more.to_owned()),
            solve.map(ToOwned::to_owned),
            guess.map(|number| format!("--guess {number}")),
            array.map(|name| format!("--array {}", shell_word(name))),
            list("--with", &self.with).filter(|_| !is_plain),
            list("--without", &self.without).filter(|_| !is_plain && !more.contains("--without")),
            (!maps.is_empty()).then(|| maps.join(" ")),
            self.backup_words().filter(|_| !is_plain),
            layout.map(|layout| format!("--layout {}", layout.word())),
            (self.as_recorded && !is_plain).then(|| "--as-recorded".to_owned()),
            Some("--ignore-bad-blocks".to_owned())
                .filter(|word| self.ignore_bad_blocks && !is_plain && !more.contains(word)),
            (!serials.is_empty()).then(|| serials.join(" ")),
            overlay.map(|path| format!("--overlay {}", shell_word(&path.display().to_string()))),
            Some(self.words()),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}
