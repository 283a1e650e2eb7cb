//! Options of `serve` for the settings of `braid set`, under the same words: each group is a
//! heading in the help.

use braid_server::SettingWords;

/// Options of `braid serve` about the stripe cache.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Stripe cache (levels 4, 5, 6)")]
pub(crate) struct CacheArgs {
    /// When a write is acknowledged: `writethrough`, when the members have it, or `writeback`, when
    /// it is in the cache (FLUSH and FUA still make it durable; if the runtime folder is in memory,
    /// acknowledged writes outlive a killed server) [default: writeback if they outlive the server,
    /// else writethrough].
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
    /// How much may be acknowledged and not yet on the members [default: 64M].
    #[arg(long, value_name = "SIZE")]
    dirty_limit: Option<String>,
    /// Milliseconds that a partial stripe waits to fill up [default: 500].
    #[arg(long, value_name = "MS")]
    dirty_age: Option<String>,
}

/// Options of `braid serve` about the order in which members are asked.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Elevators (members that seek)")]
pub(crate) struct SchedulingArgs {
    /// Whether requests to a member are sorted, merged and given deadlines: `deadline`, `none`
    /// (each goes at once), or `auto`: `deadline` if the device rotates and bypasses the page
    /// cache.
    #[arg(long, value_name = "POLICY")]
    elevator: Option<String>,
    /// Whether reads and write-back take turns at members with an elevator: `on`, `off`, or `auto`:
    /// `on` if a member rotates and writes are acknowledged early (levels 4, 5, 6 with `--cache
    /// writeback`).
    #[arg(long, value_name = "WHEN")]
    multiplexer: Option<String>,
    /// Milliseconds of a period in which both reads and write-back have their turn [default: 200].
    #[arg(long, value_name = "MS")]
    multiplexer_period: Option<String>,
    /// Per cent of a period for write-back: with nothing to write back, and at the dirty limit
    /// [default: 10-70].
    #[arg(long, value_name = "MIN-MAX")]
    multiplexer_share: Option<String>,
    /// Milliseconds after which a read is served before nearer ones, or `auto`.
    #[arg(long, value_name = "MS")]
    read_expiry: Option<String>,
    /// Milliseconds after which a write is served before nearer ones, or `auto`.
    #[arg(long, value_name = "MS")]
    write_expiry: Option<String>,
    /// Batches of reads that may pass a waiting write, or `auto`.
    #[arg(long, value_name = "COUNT")]
    writes_starved: Option<String>,
    /// Requests in one direction before the elevator chooses anew, or `auto`.
    #[arg(long, value_name = "COUNT")]
    batch: Option<String>,
    /// Requests in flight at a member, or `auto`; a quarter is reserved for reads, one for writes.
    #[arg(long, value_name = "COUNT")]
    depth: Option<String>,
}

/// Options of `braid serve` about members that are slow, or do not answer.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Slow members")]
pub(crate) struct SitOutArgs {
    /// Whether reads go around a member that is much slower than its siblings, if the level
    /// tolerates it: `on` or `off` [default: on].
    #[arg(long, value_name = "WHETHER")]
    sit_out: Option<String>,
    /// How many times as slow as its siblings a member sits out, 2 or more [default: 8].
    #[arg(long, value_name = "TIMES")]
    sit_out_factor: Option<String>,
    /// The least milliseconds of a read that count as slow, whatever its siblings need [default:
    /// 500].
    #[arg(long, value_name = "MS")]
    sit_out_min_ms: Option<String>,
    /// Milliseconds without any answer after which a member is away, if the level tolerates it and
    /// a bitmap records what it misses: it comes back by itself. Or `never` [default: 8000].
    #[arg(long, value_name = "MS")]
    away_after_ms: Option<String>,
    /// Milliseconds that the slot of an away member waits for it before a spare may take the slot
    /// [default: 60000].
    #[arg(long, value_name = "MS")]
    away_spare_after_ms: Option<String>,
}

/// Options of `braid serve` about members that err.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Members that err")]
pub(crate) struct ReadErrorArgs {
    /// Corrected read errors that a member may have; those older than an hour count half, older
    /// than two a quarter, and so on: a number, or `off` for any [default: 20, as md has it].
    #[arg(long, value_name = "COUNT")]
    read_errors_max: Option<String>,
    /// The action for a member with more read errors than --read-errors-max: `warn`, `replace`
    /// (copied to a spare, if one waits) or `fail` (the same; put out if no spare waits and the
    /// level tolerates it) [default: replace].
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
    /// Bytes a second that a job gets at least, whatever clients feel; a recovery gets them for
    /// each recovered member [default: 8M].
    #[arg(long, value_name = "SIZE")]
    job_floor: Option<String>,
    /// Bytes a second that a job gets at most, or `none` [default: none]; 0B stops jobs.
    #[arg(long, value_name = "SIZE")]
    job_ceiling: Option<String>,
}

/// Options of `braid serve` about clients.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clients")]
pub(crate) struct ClientArgs {
    /// The most connections at a time [default: 256].
    #[arg(long, value_name = "COUNT")]
    connections: Option<String>,
    /// Memory for the payloads of all clients, such as 192M; without it a sensible part of what the
    /// machine, the control group and limits of the process leave, 192M at most.
    #[arg(long, value_name = "SIZE")]
    payload_memory: Option<String>,
    /// Seconds after which an idle connection is closed if all are in use and another client comes;
    /// 0: never [default: 0].
    #[arg(long, value_name = "SECONDS")]
    idle_limit: Option<String>,
    /// Seconds in which a client must move 2 MiB of a payload or a reply, before it is cut
    /// [default: 30].
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
    /// The settings given as options, by their keys.
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
