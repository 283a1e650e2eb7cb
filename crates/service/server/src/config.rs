//! What a server is asked for, as a value: the command line, a file in `/etc/braid` and `rescue`
//! each make one.

use std::path::PathBuf;
use std::time::Duration;

use braid_console::error::CliError;
use braid_frontend_nbd::Settings;
use braid_ring::{Room, few_heaps, set_payload_memory};
use braid_runtime::{
    Cache, Direct, GovernorSettings, Patience, ReadErrorLimit, Scheduling, SitOut,
};

use super::metrics::MetricsConfig;
use super::place::Address;
use super::setting_words::SettingWords;
use super::telling::EventConfig;
use super::tls::TlsConfig;
use super::{cache, clients, job_pace, patience, read_errors, scheduling, sit_out};

/// Everything that a server is asked for. The default serves nothing: it names no member.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// The members, in any order; others are recognised and left alone.
    pub members: Vec<PathBuf>,
    /// The file that has the array's bitmap, beside its members.
    pub bitmap_file: Option<PathBuf>,
    /// Every array that the members are of is served, also one that lacks some.
    pub all: bool,
    /// What assembly is asked for: which array, whether it is only read, and which risks are
    /// accepted.
    pub assembly: braid_assembly::Options,
    /// NBD addresses; without one (and without a command) a socket named after the array.
    pub nbd: Vec<Address>,
    /// Certificates for those of the addresses that are reached by TLS.
    pub tls: TlsConfig,
    /// The array is this file as well, through FUSE.
    pub file: Option<PathBuf>,
    /// The array is a block device as well, through ublk: with this number, or one that the kernel
    /// chooses.
    pub device: Option<Option<u32>>,
    /// The socket at which the array is a disk of virtual machines, by vhost-user-blk.
    pub vhost_user: Option<PathBuf>,
    /// The control socket; without it one named after the array.
    pub control: Option<PathBuf>,
    /// Metrics for other programs, over HTTP.
    pub metrics: Option<MetricsConfig>,
    /// A shell command that is run while the array is served, and ends it.
    pub run: Option<String>,
    /// What carries bytes.
    pub io: IoConfig,
    /// Settings in the words of `braid set`.
    pub settings: SettingWords,
    /// Resyncs, recoveries and checks wait for `braid resume`.
    pub jobs_paused: bool,
    /// Arrays of one group share their spares.
    pub spare_group: Option<String>,
    /// Where events go beside the history.
    pub events: EventConfig,
    /// How long a stop goes on without any answer from members that were asked for something;
    /// without it a minute.
    pub stop_patience: Option<Duration>,
    /// What the server gives up of what serving does not need.
    pub confine: Confine,
    /// The file to which the output of a server in the background goes.
    pub output: Option<String>,
}

impl ServerConfig {
    /// All that is named by a path which means the same in another folder.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.members.iter().chain(&self.bitmap_file).cloned().collect()
    }

    /// How long a stop waits for members that are silent.
    pub(super) fn stop_patience(&self) -> Duration {
        self.stop_patience.unwrap_or(Duration::from_secs(60))
    }

    /// Whether one of several arrays is chosen.
    pub(super) fn names_array(&self) -> bool {
        let choice = &self.assembly.choice;
        choice.uuid.is_some() || choice.name.is_some()
    }
}

/// How much of what serving does not need the server gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    #[default]
    /// Nothing is taken away.
    Off,
    /// What this kernel and these options allow; what that is, is told.
    Auto,
    /// All of it, or the array is not served.
    Full,
}

/// What carries bytes of clients and members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Io {
    #[default]
    /// Workers, or threads where io_uring is not allowed.
    Auto,
    /// Workers, or an error.
    Ring,
    /// Threads.
    Threads,
}

/// What carries bytes between clients, the array and its members.
#[derive(Clone, Debug)]
pub struct IoConfig {
    /// io_uring workers, or threads that block.
    pub how: Io,
    /// How many workers; without it as many as there are processors, at most four.
    pub workers: Option<u16>,
    /// Microseconds that a worker which has nothing to do looks for more before it sleeps.
    pub busy_poll_us: u32,
    /// The shortest write that a worker leaves to one that sleeps, in bytes; 0 for none.
    pub hand_over_bytes: u64,
    /// Whether members are used past the page cache of the system.
    pub direct: Direct,
}

impl Default for IoConfig {
    fn default() -> Self {
        let hand_over_bytes = 64 << 10;
        Self {
            how: Io::Auto,
            workers: None,
            busy_poll_us: 0,
            hand_over_bytes,
            direct: Direct::Auto,
        }
    }
}

/// Settings, understood.
#[derive(Clone, Debug, Default)]
pub(super) struct Tuning {
    pub(super) cache: Cache,
    pub(super) scheduling: Scheduling,
    pub(super) sit_out: SitOut,
    pub(super) patience: Patience,
    pub(super) read_errors: ReadErrorLimit,
    pub(super) job_pace: GovernorSettings,
}

impl Tuning {
    /// What these words set; all else is as ever.
    pub(super) fn of(words: &SettingWords) -> Result<Self, CliError> {
        let mut tuning = Self::default();
        words.apply(&cache::START_KEYS, &mut tuning.cache, cache::set)?;
        words.apply(&scheduling::KEYS, &mut tuning.scheduling, scheduling::set)?;
        words.apply(&sit_out::KEYS, &mut tuning.sit_out, sit_out::set)?;
        words.apply(&patience::KEYS, &mut tuning.patience, patience::set)?;
        words.apply(&read_errors::KEYS, &mut tuning.read_errors, read_errors::set)?;
        words.apply(&job_pace::KEYS, &mut tuning.job_pace, job_pace::set)?;
        Ok(tuning)
    }

    /// Chooses how much memory payloads of clients may have, before anything takes some.
    pub(super) fn take_memory(&self, words: &SettingWords) -> Result<Settings, CliError> {
        let room = Room::now();
        if room.addresses.is_some() {
            few_heaps();
        }
        let settings = clients::settings(words, &room, self.cache.memory_bytes)?;
        set_payload_memory(settings.payload_bytes_max);
        Ok(settings)
    }
}
