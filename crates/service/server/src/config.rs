//! A server's configuration as a value; the command line, a file in `/etc/braid` and `rescue` each
//! make one.

use std::path::PathBuf;
use std::time::Duration;

use braid_console::error::CliError;
use braid_frontend_nbd::Settings;
use braid_ring::{Room, few_heaps, set_payload_memory};
use braid_runtime::{
    Cache, Direct, GovernorSettings, Patience, ReadErrorLimit, Scheduling, SitOut,
};
use braid_store::StoreUri;

use super::address::Address;
use super::event_delivery::EventConfig;
use super::metrics::MetricsConfig;
use super::setting_words::SettingWords;
use super::tls::TlsConfig;
use super::{cache, clients, job_pace, patience, read_errors, scheduling, sit_out};

/// Configuration of a server. The default configuration names no member and serves nothing.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// The members, in any order. The server does not touch devices of other arrays.
    pub members: Vec<PathBuf>,
    /// The array's bitmap file; `None` if the bitmap is on members, or the array has no bitmap.
    pub bitmap_file: Option<PathBuf>,
    /// Serve every array of the members, even an array without some of its members.
    pub all: bool,
    /// The store that holds the record of the array's owner; `None` without a store.
    pub owner: Option<OwnerConfig>,
    /// Options of assembly: which array, whether it is read-only, and the accepted risks.
    pub assembly: braid_assembly::Options,
    /// NBD addresses. Without an address or a command the server uses a socket named after the
    /// array.
    pub nbd: Vec<Address>,
    /// Certificates for addresses that use TLS.
    pub tls: TlsConfig,
    /// FUSE: also present the array as this file.
    pub file: Option<PathBuf>,
    /// ublk: also present the array as a block device with this number, or with one that the kernel
    /// chooses.
    pub device: Option<Option<u32>>,
    /// vhost-user-blk: socket on which virtual machines use the array as a disk.
    pub vhost_user: Option<PathBuf>,
    /// The control socket; by default named after the array.
    pub control: Option<PathBuf>,
    /// Metrics for other programs, over HTTP.
    pub metrics: Option<MetricsConfig>,
    /// A shell command to run while the array is served; serving stops when it ends.
    pub run: Option<String>,
    /// io_uring workers or threads, use of the page cache, and the limits of workers.
    pub io: IoConfig,
    /// Settings as words of `braid set`.
    pub settings: SettingWords,
    /// Resyncs, recoveries and checks wait for `braid resume`.
    pub jobs_paused: bool,
    /// The name of the array's spare group: arrays of one group share their spares.
    pub spare_group: Option<String>,
    /// Destinations of events in addition to the history.
    pub events: EventConfig,
    /// How long a stop waits while members answer none of their requests; a minute by default.
    pub stop_patience: Option<Duration>,
    /// Which privileges the server gives up.
    pub confine: Confine,
    /// The output file of a background server.
    pub output: Option<String>,
}

impl ServerConfig {
    /// The paths of the members and of the bitmap file.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.members.iter().chain(&self.bitmap_file).cloned().collect()
    }

    /// How long a stop waits for silent members.
    pub(super) fn stop_patience(&self) -> Duration {
        self.stop_patience.unwrap_or(Duration::from_secs(60))
    }

    /// Whether the configuration names the array to serve, since the members may be of several
    /// arrays.
    pub(super) fn names_array(&self) -> bool {
        let choice = &self.assembly.choice;
        choice.uuid.is_some() || choice.name.is_some()
    }
}

/// Settings of an array with one owner at a time, which a store records.
#[derive(Clone, Debug)]
pub struct OwnerConfig {
    /// The store, and the array's record in it.
    pub store: StoreUri,
    /// Wait until the present owner is gone or releases the array, instead of failing.
    pub is_standby: bool,
    /// How long a write that needs the store may wait for the store; `None` without a limit.
    pub store_patience: Option<Duration>,
}

/// The privileges that the server gives up, of those that serving does not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    #[default]
    /// Keep all privileges.
    Off,
    /// Give up as many privileges as this kernel and these options allow, and report the result.
    Auto,
    /// Give up all privileges that serving does not need, or refuse to serve.
    Full,
}

/// The kind of thread that moves bytes between clients and members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Io {
    #[default]
    /// Use io_uring workers, or blocking threads if io_uring is not available.
    Auto,
    /// Use io_uring workers, or fail.
    Ring,
    /// Use blocking threads.
    Threads,
}

/// How bytes travel between clients, the array and its members.
#[derive(Clone, Debug)]
pub struct IoConfig {
    /// io_uring workers, or threads that block.
    pub how: Io,
    /// Number of workers; by default one for each processor, at most four.
    pub workers: Option<u16>,
    /// Microseconds that an idle worker polls before it sleeps.
    pub busy_poll_us: u32,
    /// The shortest write, in bytes, that a worker hands to a sleeping worker; 0 disables that.
    pub hand_over_bytes: u64,
    /// Whether to bypass the system's page cache for members.
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
    /// The settings in `words`; all other settings keep their defaults.
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

    /// Chooses memory for clients' payloads before any other allocation.
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
