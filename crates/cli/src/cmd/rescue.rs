//! The arguments of `braid rescue`.

use std::path::PathBuf;

use braid_console::Globals;
use braid_console::error::{CliError, Exit};
use braid_discovery::raid0_layout::Raid0Layout;
use braid_rescue::{NamedMap, NamedSerial, RescueConfig};

use super::layout_word;
use crate::log::Log;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// This array alone, if the members are of several: its name or UUID.
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
    /// Believe these members although they are stale, were put out, or have only nearly sound
    /// superblocks; braid's names for them, with commas between. A spare is tried in each free
    /// slot, or in this one (SPARE=SLOT).
    #[arg(long, value_name = "MEMBER,...", value_delimiter = ',')]
    with: Vec<String>,
    /// Ignore these members, and look at what the others make without them.
    #[arg(long, value_name = "MEMBER,...", value_delimiter = ',')]
    without: Vec<String>,
    /// The map of a disk's copy, in the format of ddrescue and `braid image`: sectors that the copy
    /// lacks are computed from the others, or are I/O errors. Without it IMAGE.map is taken, if it
    /// exists. May be given more than once.
    #[arg(long = "map", value_name = "MEMBER=FILE")]
    maps: Vec<NamedMap>,
    /// Which disk of a container of Intel's (IMSM) this is, by the serial number that its metadata
    /// lists: a copy of a disk has none of its own. May be given more than once.
    #[arg(long = "serial", value_name = "MEMBER=SERIAL")]
    serials: Vec<NamedSerial>,
    /// Compute what this copy of a disk lacks from the other members, and write it into the copy
    /// and its map. Nothing else is written.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["serve", "commit", "discard", "solve"])]
    fill: Option<PathBuf>,
    /// Find the files with unreadable sectors, with the tools of the file system (debugfs, xfs_db).
    #[arg(long, conflicts_with_all = ["serve", "commit", "discard", "fill"])]
    lost: bool,
    /// Read and compare everything: report members with wrong bytes if two parities or three copies
    /// prove it, and places where members only differ.
    #[arg(long, conflicts_with_all = ["serve", "commit", "discard", "fill", "lost"])]
    check: bool,
    /// The backup file that mdadm made for a reshape (`mdadm --grow --backup-file`). The sectors
    /// ahead of the reshape's position are read from this file.
    #[arg(long, value_name = "FILE")]
    backup_file: Option<PathBuf>,
    /// With --backup-file: use it although it is older, or newer, than the superblocks.
    #[arg(long, requires = "backup_file")]
    accept_older: bool,
    /// For an array in the middle of a reshape in place: use the position that md recorded, without
    /// a look at the content of the array.
    #[arg(long)]
    as_recorded: bool,
    /// Read the sectors in bad-block logs, which may be sound. Over an overlay the logs are
    /// emptied, and `--commit` writes that to the members.
    #[arg(long)]
    ignore_bad_blocks: bool,
    /// Find the layout of members with lost or wrong superblocks, from their data. A certain answer
    /// is used; otherwise all guesses are shown.
    #[arg(long)]
    solve: bool,
    /// The layout of a RAID-0 of unequal members beyond the end of the smallest, if its superblocks
    /// do not name it: look at the content by each.
    #[arg(long, value_parser = layout_word::parser(), value_name = "LAYOUT", conflicts_with = "solve")]
    layout: Option<Raid0Layout>,
    /// With --solve: go on with this guess, by its number.
    #[arg(long, value_name = "NUMBER", requires = "solve")]
    guess: Option<usize>,
    /// The folder of overlays, which take all writes to a served array in place of its members.
    /// Without it, in the state folder.
    #[arg(long, value_name = "FOLDER")]
    overlay: Option<PathBuf>,
    /// Serve the array over NBD, and each partition and volume on it as an export of its own; of
    /// several arrays, all that can be read. Writes go into the overlay.
    #[arg(long)]
    serve: bool,
    /// Serve it read-only: no overlay is made, and sectors that may be wrong are I/O errors.
    #[arg(long, requires = "serve")]
    read_only: bool,
    /// Serve it for writing although up to this many of its stripes may read wrong.
    #[arg(long, value_name = "COUNT", requires = "serve", conflicts_with = "read_only")]
    accept_risk: Option<u64>,
    /// Where to serve, as an NBD URI; may be given more than once.
    #[arg(long = "nbd", value_name = "URI", requires = "serve")]
    uris: Vec<String>,
    /// The array as a file as well, through FUSE.
    #[arg(long, value_name = "PATH", requires = "serve")]
    fuse: Option<PathBuf>,
    /// Run a shell command with $uri set, and $file with --fuse, and stop when it ends.
    #[arg(long, value_name = "CMD", requires = "serve")]
    run: Option<String>,
    /// Write the overlay to the members, and delete it; overwritten data is saved first (`braid
    /// undo`).
    #[arg(long, conflicts_with_all = ["serve", "with", "without"])]
    commit: bool,
    /// With --commit: say which sectors of which member would be written, and write nothing.
    #[arg(short = 'n', long, requires = "commit")]
    dry_run: bool,
    /// Delete the overlay: the members stay unchanged.
    #[arg(long, conflicts_with_all = ["serve", "commit", "with", "without"])]
    discard: bool,
    /// Members, or whole disks that have them in partitions, in any order.
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<PathBuf>,
}

pub(crate) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    let _log = if args.serve { Log::of_environment()? } else { None };
    braid_rescue::run(&args.config(), globals)
}

impl Args {
    /// The rescue that these arguments ask for.
    fn config(self) -> RescueConfig {
        RescueConfig {
            array: self.array,
            with: self.with,
            without: self.without,
            maps: self.maps,
            serials: self.serials,
            fill: self.fill,
            lost: self.lost,
            check: self.check,
            backup_file: self.backup_file,
            accept_older: self.accept_older,
            as_recorded: self.as_recorded,
            ignore_bad_blocks: self.ignore_bad_blocks,
            solve: self.solve,
            layout: self.layout,
            guess: self.guess,
            overlay: self.overlay,
            serve: self.serve,
            read_only: self.read_only,
            accept_risk: self.accept_risk,
            uris: self.uris,
            fuse: self.fuse,
            run: self.run,
            commit: self.commit,
            dry_run: self.dry_run,
            discard: self.discard,
            members: self.members,
        }
    }
}
