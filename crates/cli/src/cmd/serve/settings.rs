//! Settings in the words of `braid set`, as options of `serve`: each group below is one of its
//! headings in the help.

use braid_server::SettingWords;

/// Options of `braid serve` about the stripe cache.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Stripe cache (levels 4, 5, 6)")]
pub(crate) struct CacheArgs {
    /// When a write is answered: `writethrough`, when the members have it, or `writeback`, when it
    /// is in the cache (FLUSH and FUA mean what they say; where the runtime folder is in memory,
    /// what was answered outlives a killed server) [default: writeback where it outlives the
    /// server, else writethrough].
    #[arg(long, value_name = "MODE")]
    cache: Option<String>,
    /// Memory for stripes, such as 64M [default: 64M].
    #[arg(long, value_name = "SIZE")]
    cache_size: Option<String>,
    /// Height of a stripe, from 4K to 64K; the chunk, if that is smaller [default: 64K].
    #[arg(long, value_name = "SIZE")]
    stripe_unit: Option<String>,
    /// How often full-width writes may go ahead of a stripe that must read first; 0: always
    /// [default: 1].
    #[arg(long, value_name = "COUNT")]
    bypass_threshold: Option<String>,
    /// How much may be answered and not on the members [default: 64M].
    #[arg(long, value_name = "SIZE")]
    dirty_limit: Option<String>,
    /// Milliseconds that a partial stripe is waited for to fill up [default: 500].
    #[arg(long, value_name = "MS")]
    dirty_age: Option<String>,
}

/// Options of `braid serve` about the order in which members are asked.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Elevators (members that seek)")]
pub(crate) struct SchedulingArgs {
    /// Whether requests to a member are sorted, merged and given deadlines: `deadline`, `none`
    /// (each goes at once), or `auto`: `deadline` where the device says that it rotates and is used
    /// past the page cache.
    #[arg(long, value_name = "POLICY")]
    elevator: Option<String>,
    /// Whether reads and write-back take turns at members with an elevator: `on`, `off`, or `auto`:
    /// `on` where a member rotates and writes are answered early (levels 4, 5, 6 with `--cache
    /// writeback`).
    #[arg(long, value_name = "WHEN")]
    multiplexer: Option<String>,
    /// Milliseconds of a period in which both have their turn [default: 200].
    #[arg(long, value_name = "MS")]
    multiplexer_period: Option<String>,
    /// Per cent of a period that are write-back's: with nothing to write back, and with as much as
    /// may be [default: 10-70].
    #[arg(long, value_name = "MIN-MAX")]
    multiplexer_share: Option<String>,
    /// Milliseconds after which a read is served before nearer ones, or `auto`.
    #[arg(long, value_name = "MS")]
    read_expiry: Option<String>,
    /// Milliseconds after which a write is served before nearer ones, or `auto`.
    #[arg(long, value_name = "MS")]
    write_expiry: Option<String>,
    /// How often batches of reads may go before writes that wait, or `auto`.
    #[arg(long, value_name = "COUNT")]
    writes_starved: Option<String>,
    /// Requests in one direction before the choice is made anew, or `auto`.
    #[arg(long, value_name = "COUNT")]
    batch: Option<String>,
    /// Requests that a member is given at once, or `auto`; a quarter is kept for reads, one for
    /// writes.
    #[arg(long, value_name = "COUNT")]
    depth: Option<String>,
}

/// Options of `braid serve` about members that are slow, or do not answer.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Slow members")]
pub(crate) struct SitOutArgs {
    /// Whether a member that is much slower than its siblings is read around, where the level can
    /// do without it: `on` or `off` [default: on].
    #[arg(long, value_name = "WHETHER")]
    sit_out: Option<String>,
    /// How many times as slow as its siblings, 2 or more [default: 8].
    #[arg(long, value_name = "TIMES")]
    sit_out_factor: Option<String>,
    /// Milliseconds that it takes at least [default: 500].
    #[arg(long, value_name = "MS")]
    sit_out_min_ms: Option<String>,
    /// Milliseconds without any answer after which a member goes away, where the level can do
    /// without it and a bitmap tells what it misses: it comes back by itself. Or `never`
    /// [default: 8000].
    #[arg(long, value_name = "MS")]
    away_after_ms: Option<String>,
    /// Milliseconds for which its slot waits for it before a spare may have it [default: 60000].
    #[arg(long, value_name = "MS")]
    away_spare_after_ms: Option<String>,
}

/// Options of `braid serve` about members that err.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Members that err")]
pub(crate) struct ReadErrorArgs {
    /// How many corrected read errors a member may have, where those older than an hour count half,
    /// older than two a quarter, and so on: a number, or `off` for any [default: 20, as md has it].
    #[arg(long, value_name = "COUNT")]
    read_errors_max: Option<String>,
    /// The action for a member with more: `warn`, `replace` (copied to a spare, if one waits) or
    /// `fail` (the same, and put out where none waits and the others bear it) [default: replace].
    #[arg(long, value_name = "WHAT")]
    on_read_errors: Option<String>,
}

/// Options of `braid serve` about the pace of jobs: rebuild, resync, check.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Jobs beside clients")]
pub(crate) struct JobPaceArgs {
    /// How many times as long the slowest hundredth of clients' requests may take beside a job, 1
    /// or more; `any` if it does not matter [default: 2].
    #[arg(long, value_name = "TIMES")]
    job_latency_factor: Option<String>,
    /// Bytes a second that a job gets whatever clients feel: of a recovery, of each member that is
    /// filled [default: 8M].
    #[arg(long, value_name = "SIZE")]
    job_floor: Option<String>,
    /// Bytes a second that a job gets at most, or `none` [default: none]; 0B has jobs stand still.
    #[arg(long, value_name = "SIZE")]
    job_ceiling: Option<String>,
}

/// Options of `braid serve` about clients.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clients")]
pub(crate) struct ClientArgs {
    /// How many connections there may be at a time [default: 256].
    #[arg(long, value_name = "COUNT")]
    connections: Option<String>,
    /// Memory for what clients write and read, all together, such as 192M; without it as much as is
    /// sensible with what the machine, the control group and limits of the process leave, 192M at
    /// most.
    #[arg(long, value_name = "SIZE")]
    payload_memory: Option<String>,
    /// Seconds after which an idle connection goes when all are in use and another client comes; 0:
    /// never [default: 0].
    #[arg(long, value_name = "SECONDS")]
    idle_limit: Option<String>,
    /// Seconds in which a client that sends a payload, or is sent a reply, has to move 2 MiB of it,
    /// before it is cut [default: 30].
    #[arg(long, value_name = "SECONDS")]
    progress_limit: Option<String>,
}

/// Every option that is a setting.
#[derive(Debug, clap::Args)]
pub(crate) struct SettingArgs {
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    scheduling: SchedulingArgs,
    #[command(flatten)]
    sit_out: SitOutArgs,
    #[command(flatten)]
    read_errors: ReadErrorArgs,
    #[command(flatten)]
    job_pace: JobPaceArgs,
    #[command(flatten)]
    clients: ClientArgs,
}

impl SettingArgs {
    /// The given options, by their keys.
    pub(crate) fn words(&self) -> SettingWords {
        let Self { cache, scheduling, sit_out, read_errors, job_pace, clients } = self;
        SettingWords::new([
            ("cache", &cache.cache),
            ("cache-size", &cache.cache_size),
            ("stripe-unit", &cache.stripe_unit),
            ("bypass-threshold", &cache.bypass_threshold),
            ("dirty-limit", &cache.dirty_limit),
            ("dirty-age", &cache.dirty_age),
            ("elevator", &scheduling.elevator),
            ("multiplexer", &scheduling.multiplexer),
            ("multiplexer-period", &scheduling.multiplexer_period),
            ("multiplexer-share", &scheduling.multiplexer_share),
            ("read-expiry", &scheduling.read_expiry),
            ("write-expiry", &scheduling.write_expiry),
            ("writes-starved", &scheduling.writes_starved),
            ("batch", &scheduling.batch),
            ("depth", &scheduling.depth),
            ("sit-out", &sit_out.sit_out),
            ("sit-out-factor", &sit_out.sit_out_factor),
            ("sit-out-min-ms", &sit_out.sit_out_min_ms),
            ("away-after-ms", &sit_out.away_after_ms),
            ("away-spare-after-ms", &sit_out.away_spare_after_ms),
            ("read-errors-max", &read_errors.read_errors_max),
            ("on-read-errors", &read_errors.on_read_errors),
            ("job-latency-factor", &job_pace.job_latency_factor),
            ("job-floor", &job_pace.job_floor),
            ("job-ceiling", &job_pace.job_ceiling),
            ("connections", &clients.connections),
            ("payload-memory", &clients.payload_memory),
            ("idle-limit", &clients.idle_limit),
            ("progress-limit", &clients.progress_limit),
        ])
    }
}
