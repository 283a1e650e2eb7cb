//! `braid serve`: its arguments, and the server configuration that they make.
//!
//! ```text
//!   command line ─┬─ --name ─▶ [`config_file`]: a file's options go before the others ─┐
//!                 └─ --detach ─▶ [`detach`]: the same in the background ───────────────┴─▶ Args
//!   Args ─▶ ServerConfig ─▶ braid-server
//! ```

pub(crate) mod config_file;
mod detach;
pub(crate) mod doors;
pub(crate) mod events;
mod settings;
pub(crate) mod words;

use std::path::PathBuf;
use std::time::Duration;

use braid_console::Globals;
use braid_console::error::{CliError, Exit};
use braid_discovery::raid0_layout::Raid0Layout;
use braid_discovery::ready::choice;
use braid_rescue::{WindowConfig, keep_window};
use braid_server::{Address, IoConfig, OwnerConfig, ServerConfig, StoreUri, prepare};

use super::layout_word;
use crate::log::{Log, LogArgs};
use doors::{FuseArgs, MetricsArgs, TlsArgs, UblkArgs, VhostUserArgs};
use events::EventArgs;
use settings::SettingArgs;
use words::{BUSY_POLL_US_MAX, Confine, Direct, Io, JobsWhen, hand_over_bytes};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Never write: neither data nor superblocks.
    #[arg(long)]
    read_only: bool,
    /// Start a dirty and degraded array, although up to this many of its stripes may read wrong.
    /// Without it such an array is only served with --read-only, and sectors at risk are I/O errors
    #[arg(long, value_name = "COUNT")]
    accept_risk: Option<u64>,
    /// Believe members that are older than the array's last served state, or than others with as
    /// many events: they were restored from a backup, and writes since then are lost.
    #[arg(long)]
    accept_older: bool,
    /// Start without the write journal if its device is absent or cannot be followed: the journal
    /// is given up, the newest writes may be missing, and the whole array is resynced.
    #[arg(long)]
    without_journal: bool,
    /// The layout of a RAID-0 of unequal members beyond the end of the smallest, if its superblocks
    /// do not name it. The choice is not written to them, and must be given every time.
    #[arg(long, value_parser = layout_word::parser(), value_name = "LAYOUT")]
    layout: Option<Raid0Layout>,
    /// The array to serve, by name or UUID, if the members belong to several and not all are
    /// wanted.
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
    /// Serve every array of these members, also incomplete ones. Without it, one server serves
    /// several arrays if each has all its members.
    #[arg(long, conflicts_with_all = ["array", "bitmap_file"])]
    all: bool,
    /// The file with the array's write-intent bitmap, as with `mdadm --bitmap=FILE`, and with
    /// braid's own log if there is one. It is not on the array itself.
    #[arg(long, value_name = "FILE")]
    bitmap_file: Option<PathBuf>,
    /// The backup file that mdadm made for a reshape (`mdadm --grow --backup-file`): braid goes on
    /// with the reshape from there. Needed once; then braid's own copy is in the state folder.
    /// With --accept-older the file may be of another time than the superblocks.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all", "read_only", "store"])]
    backup_file: Option<PathBuf>,
    /// Go on with a reshape that md left, although up to this many rows may be half moved, and are
    /// in no backup: their data may be wrong.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["all", "read_only", "store"])]
    accept_half_moved: Option<u64>,
    /// Where to serve, as an NBD URI; may be given more than once. Without it (and without --run)
    /// a socket named after the array in the runtime folder.
    #[arg(long = "nbd", value_name = "URI")]
    uris: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    fuse: FuseArgs,
    #[command(flatten)]
    ublk: UblkArgs,
    #[command(flatten)]
    vhost_user: VhostUserArgs,
    /// Run a shell command with $uri set, $file with --fuse, $device with --ublk and $vhost_user
    /// with --vhost-user, and stop when it ends.
    #[arg(long, value_name = "CMD")]
    run: Option<String>,
    /// How clients and members are served: by io_uring workers, or by blocking threads; `auto`
    /// takes threads where io_uring is not allowed.
    #[arg(long, value_enum, default_value_t = Io::Auto, value_name = "HOW")]
    io: Io,
    /// The number of workers; without it as many as there are processors, at most four.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: Option<u16>,
    /// Microseconds that an idle worker polls before it sleeps. Answers come sooner, and a
    /// processor is busy while clients are; 0 sleeps at once.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=BUSY_POLL_US_MAX))]
    busy_poll: u32,
    /// The shortest write that a worker hands over to a sleeping one, so that it can receive the
    /// next one meanwhile; only for clients with several writes in flight. Or `never`.
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = hand_over_bytes)]
    hand_over: u64,
    /// Whether members bypass the system's page cache; `auto` does so where they allow it, but not
    /// for files of a read-only array.
    #[arg(long, value_enum, default_value_t = Direct::Auto, value_name = "WHEN")]
    direct: Direct,
    #[command(flatten)]
    settings: SettingArgs,
    /// Whether resyncs, recoveries and checks may begin, or wait for `braid resume`.
    #[arg(long, value_enum, default_value_t = JobsWhen::On, value_name = "WHEN", help_heading = "Jobs beside clients")]
    jobs: JobsWhen,
    /// Lends and borrows spares within a group of arrays served here: this array takes one if it
    /// lacks a member and has no spare, and gives its own likewise.
    #[arg(long, value_name = "NAME", value_parser = braid_server::check_spare_group, help_heading = "Jobs beside clients")]
    spare_group: Option<String>,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// The control socket of this array, for requests over HTTP: the path of a Unix socket. Without
    /// it (and without --run) in the runtime folder, where `braid status` and the other verbs find
    /// it by its name.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    log: LogArgs,
    /// Seconds without any answer from members that have requests in flight, after which a stop
    /// gives up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stop_patience: u64,
    /// Whether the server drops rights that serving does not need: files other than the members and
    /// its own folders (landlock), system calls (seccomp), capabilities. The unit braid@.service
    /// says auto.
    #[arg(long, value_enum, default_value_t = Confine::Off, value_name = "WHEN")]
    confine: Confine,
    #[command(flatten)]
    detach: detach::DetachArgs,
    #[command(flatten)]
    config_file: config_file::ConfigFileArgs,
    /// Agree on one owner of the array by a store: etcd://HOST:PORT,HOST:PORT/KEY or
    /// s3://BUCKET/KEY?endpoint=URL. Members are then exports of `braid member`, and an older owner
    /// on another host can neither read nor write any more.
    #[arg(long, value_name = "URI", help_heading = "One owner", conflicts_with_all = ["all", "read_only", "bitmap_file"])]
    store: Option<StoreUri>,
    /// Wait until the owner of the array ends or is gone, then take over.
    #[arg(long, requires = "store", help_heading = "One owner")]
    standby: bool,
    /// Seconds for which a write may wait for a store that does not answer; then this server ends.
    /// By default the write waits until the store answers. Writes wait only while a member must be
    /// given up.
    #[arg(long, requires = "store", help_heading = "One owner", value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    store_patience: Option<u64>,
    /// The members, in any order; others are recognised and left alone. With --store the record
    /// names them, except for the first time.
    #[arg(required_unless_present_any = ["name", "store"], value_name = "MEMBER")]
    members: Vec<PathBuf>,
}

impl Args {
    fn owner(&self) -> Option<OwnerConfig> {
        let store = self.store.clone()?;
        let store_patience = self.store_patience.map(Duration::from_secs);
        Some(OwnerConfig { store, is_standby: self.standby, store_patience })
    }

    fn window(&self) -> WindowConfig {
        WindowConfig {
            members: self.members.clone(),
            array: self.array.clone(),
            backup_file: self.backup_file.clone(),
            accept_older: self.accept_older,
            accept_risk: self.accept_risk,
            accept_half_moved: self.accept_half_moved,
        }
    }

    fn config(&self) -> Result<ServerConfig, CliError> {
        let nbd = self.uris.iter().map(|uri| Address::parse(uri)).collect::<Result<Vec<_>, _>>()?;
        let assembly = braid_assembly::Options {
            choice: choice(self.array.as_deref()),
            read_only: self.read_only,
            accept_risk: self.accept_risk,
            accept_older: self.accept_older,
            without_journal: self.without_journal,
            raid0_layout: self.layout.map(Raid0Layout::number),
            ..braid_assembly::Options::default()
        };
        Ok(ServerConfig {
            members: self.members.clone(),
            bitmap_file: self.bitmap_file.clone(),
            all: self.all,
            owner: self.owner(),
            assembly,
            nbd,
            tls: self.tls.config(),
            file: self.fuse.path(),
            device: self.ublk.device(),
            vhost_user: self.vhost_user.path(),
            control: self.control.clone(),
            metrics: self.metrics.config(),
            run: self.run.clone(),
            io: IoConfig {
                how: self.io.into(),
                workers: self.workers,
                busy_poll_us: self.busy_poll,
                hand_over_bytes: self.hand_over,
                direct: self.direct.into(),
            },
            settings: self.settings.words(),
            jobs_paused: self.jobs == JobsWhen::Paused,
            spare_group: self.spare_group.clone(),
            events: self.events.config(),
            stop_patience: Some(Duration::from_secs(self.stop_patience)),
            confine: self.confine.into(),
            output: self.detach.log(),
        })
    }
}

pub(crate) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    if args.detach.detach {
        return detach::start(&args, globals);
    }
    detach::leave_terminal(&args.detach)?;
    let args = config_file::resolved(args, globals)?;
    config_file::check_words(&args.members)?;
    let config = args.config()?;
    // A confined server opens no other files, so the window's copy is made before.
    if !args.read_only && !args.all && args.store.is_none() {
        keep_window(&args.window(), globals)?;
    }
    let prepared = prepare(&config, globals)?;
    let _log = Log::start(&args.log)?;
    prepared.serve()
}
