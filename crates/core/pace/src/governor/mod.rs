//! The rebuild governor: limits a job's bytes in flight, to spare clients and use idle time whole.
//!
//! It is a pure state machine, one for each job. The runtime asks how many bytes may begin
//! ([`Governor::poll`]), reports each begin and end, and a few times a second hands over clients'
//! latencies ([`Latencies`]). It knows neither members nor levels nor the kind of job.
//!
//! ```text
//!    clients' latencies, a slice of 100 ms at a time
//!        │
//!        ├─ while the job was quiet ──▶ Baseline: p99 without the job ── × factor ──▶ target
//!        │                                                                             │
//!        └─ while it was at work ─────▶ how many were beyond the target ◀──────────────┘
//!                                               │
//!                                             Share: the allowance, bytes in flight on average
//!                                               │
//!    floor  (Bucket) at least ──▶ ┌─────────────▼───────┐
//!    ceiling (Bucket) at most ──▶ │ poll: so many bytes │ ─▶ begin, end ─▶ Flight: bytes in flight
//!    Piece ─ so much at a time ─▶ │ may begin, ask at t │                  Piece: time of each
//!                                 └─────────────────────┘
//! ```
//!
//! # Three phases
//!
//! | phase | when | the job may |
//! |---|---|---|
//! | idle | no client's request for 300 ms, none under way | have more and more in flight (1) |
//! | shared | clients are there | have the allowance in flight, on average |
//! | probe | time to measure clients without the job | begin nothing, unless the floor is owed |
//!
//! (1) Within a second or two the job may have its maximum in flight.
//!
//! The first request after silence ends *idle* at once ([`Governor::handle_client`]), so it meets
//! only the bytes in flight. If requests that end idle phases keep missing the target, the budget
//! is overdrawn. Then *idle* needs five seconds of silence: clients that come twice a second are
//! clients.
//!
//! # What p99 is without the job
//!
//! Requests that meet the job cannot show clients' p99 without the job. So the job stops for a
//! moment. First the job's requests in flight end, and clients' requests that waited for them are
//! served. Then the probe lasts until it has seen a hundred requests, but no longer than 400 ms.
//! The next probe comes no sooner than twenty times as long after. So probes cost the job about 5 %
//! of the time in which there are clients, and nothing of the time in which there are none. Four
//! times as long after is enough while the baseline is poorly known, and now and then when clients
//! seem to have changed (`pulse.rs`). If the allowance is so small that the job rests between
//! pieces, these rests measure the same for nothing. The baseline is forgotten when clients begin
//! to do something else (`baseline.rs`). Before it is known, the job has one window in flight.
//!
//! The governor must not assume, after some time, that waiting requests "have been served". If
//! clients leave a member a quarter of its time, a queue takes four times its own length to drain.
//! Before that, requests left in the queue would count as clients' own: the target would grow, with
//! it the allowance, and with it the queue (`tests/governor.rs` has that disk). So a probe counts
//! from the moment when about as few requests are in flight as lately without the job; each probe
//! sees fewer until that is so.
//!
//! # Why not p99 itself, and why not a rate
//!
//! `share.rs` says why requests beyond the target are counted. The allowance counts bytes in
//! flight, and not bytes for each second, because a client's request meets the bytes in flight. An
//! allowance means the same on outer tracks and inner tracks, on a disk and on a memory. A member
//! that becomes slow gets less without a measurement. A rate that was right a moment ago can be
//! more than the member can do now; then a queue grows. An allowance cannot cause that queue.
//!
//! # The floor and the ceiling
//!
//! Buckets of bytes begun. The floor goes before clients, or an array that always has some would
//! never be whole. Its debt may begin in any phase: one piece at a time (`piece.rs`), so that the
//! floor costs clients no more than it must, and more pieces the longer the job got too little.
//! These pieces go in clients' class, since an elevator may hold idle requests back for as long as
//! clients wait. A running probe ends first. The ceiling goes before the floor. A ceiling of zero
//! is a pause.
//!
//! Invariants, each with its check in `tests/governor.rs`, on disks in virtual time
//! - Without clients the job gets at least 95 % of the members' speed
//!   `[check: idle_time_is_used_whole]`.
//! - With clients p99 is at most the target, within a fifth, unless the floor demands more
//!   `[check: clients_stay_within_the_target]`. (Within two fifths on a disk that turns, without an
//!   elevator, three quarters of whose time are clients'.)
//! - The job gets its floor, whatever clients' latency `[check: the_floor_is_always_given]`.
//! - The job exceeds the ceiling by no more than what is saved up in 50 ms and a window
//!   `[check: the_ceiling_is_never_exceeded]`.
//! - After a change of target or load the allowance settles, and stays
//!   `[check: it_settles_after_each_of_a_hundred_changes]`. Of a hundred changes 75 and more settle
//!   in half a minute (flash), 85 in two and a half (a disk that turns, with an elevator). Without
//!   an elevator such a disk has too few requests to tell sooner: the allowance wanders for many
//!   minutes, and p99 was more than a fifth over the target after 7 of the hundred.
//! - A pause is not made up for `[check: a_pause_is_not_made_up_for]`.
//! - Jumping clocks, senseless numbers: always an answer, and a later time to ask again
//!   `[check: odd_inputs_do_no_harm]`.
//!
//! All of it is integers, so that a run repeats to the last bit.

mod baseline;
mod bucket;
mod flight;
mod piece;
mod pulse;
mod share;

use crate::latencies::Latencies;
use baseline::Baseline;
use bucket::Bucket;
use flight::Flight;
use piece::Piece;
use pulse::Pulse;
use share::Share;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Without a client's request for this long, the phase becomes idle.
const SILENCE_NS: u64 = 300 * MS;
/// In phase idle, the limit of bytes in flight doubles at this interval, up to its maximum.
const DOUBLING_NS: u64 = 100 * MS;
/// The silence before phase idle, if requests at the end of idle phases missed the target too
/// often.
const LONG_SILENCE_NS: u64 = 5 * SECOND;
/// A probe ends after this many requests, or after `PROBE_QUIET_NS` without the job.
const PROBE_REQUESTS: u64 = 100;
const PROBE_QUIET_NS: u64 = 400 * MS;
/// A probe ends this long after the time by which clients' requests that waited for the job should
/// have been served.
const PROBE_MAX_NS: u64 = SECOND;
/// Time between two probes, as a multiple of a probe's time.
const PROBE_EVERY: u64 = 20;
/// Time between two probes, as a multiple of a probe's time, while the baseline is poorly known or
/// clients seem to have changed.
const PROBE_HURRIED: u64 = 4;
const PROBE_EVERY_MIN_NS: u64 = SECOND;
/// After the job stops, requests that met the job count as served once as much time has passed as
/// they took. The governor waits for at most this long.
const SETTLE_MAX_NS: u64 = SECOND;
/// The time after which requests count as served if no client's request has ended while the job
/// ran.
const SETTLE_AT_FIRST_NS: u64 = 100 * MS;
/// The most debt of the floor, as time: more than a probe takes.
const FLOOR_SAVED_NS: u64 = 2_200 * MS;
const _: () = assert!(FLOOR_SAVED_NS > SETTLE_MAX_NS + PROBE_MAX_NS);
/// Unused bytes of the ceiling are saved up for at most this long.
const CEILING_SAVED_NS: u64 = 50 * MS;
/// The time between two calls counts as at most this much, since the job wanted nothing in that
/// time.
const STEP_MAX_NS: u64 = SECOND;
/// The longest time until the next poll.
const ASK_MAX_NS: u64 = 100 * MS;
/// The smallest allowance is a window divided by this.
const ALLOWANCE_PARTS: u64 = 1000;
const WINDOW_MIN_BYTES: u64 = 64 << 10;

/// Settings of a governor, which can be changed while the job runs.
///
/// Bytes are the job's own progress: for a rebuild, bytes of the member that is being filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GovernorSettings {
    /// The highest p99 of clients while the job runs, in thousandths of their p99 without the job.
    /// At least 1000, or [`Self::ANY_LATENCY`] if latency does not matter.
    pub latency_factor_permille: u32,
    /// The least rate of the job, whatever clients' latency.
    pub floor_bytes_per_second: u64,
    /// The highest rate of the job; 0 is a pause.
    pub ceiling_bytes_per_second: u64,
    /// The size of the job's requests without clients, and the largest size with clients; at least
    /// 64 KiB.
    pub window_bytes: u64,
    /// The most bytes of the job in flight.
    pub in_flight_max_bytes: u64,
}

impl Default for GovernorSettings {
    /// Twice the latency; a floor of about 5 % of a turning disk; no ceiling; 16 windows of 1 MiB.
    fn default() -> Self {
        Self {
            latency_factor_permille: 2000,
            floor_bytes_per_second: 8 << 20,
            ceiling_bytes_per_second: u64::MAX,
            window_bytes: 1 << 20,
            in_flight_max_bytes: 16 << 20,
        }
    }
}

impl GovernorSettings {
    /// The latency factor for a job that does not give way: only the ceiling and the members limit
    /// the job.
    pub const ANY_LATENCY: u32 = u32::MAX;

    /// Whether the job gives way to clients at all.
    #[must_use]
    pub fn minds_clients(&self) -> bool {
        self.latency_factor_permille != Self::ANY_LATENCY
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes.max(WINDOW_MIN_BYTES)
    }

    fn most_bytes(&self) -> u64 {
        self.in_flight_max_bytes.max(self.window_bytes())
    }

    fn least_bytes(&self) -> u64 {
        self.window_bytes() / ALLOWANCE_PARTS
    }

    fn floor_depth_bytes(&self) -> u64 {
        saved_bytes(self.floor_bytes_per_second, FLOOR_SAVED_NS).max(self.window_bytes())
    }

    fn ceiling_depth_bytes(&self) -> u64 {
        let saved = saved_bytes(self.ceiling_bytes_per_second, CEILING_SAVED_NS);
        saved.saturating_add(self.window_bytes())
    }
}

/// The bytes that a rate gives in `ns` nanoseconds.
fn saved_bytes(bytes_per_second: u64, ns: u64) -> u64 {
    let bytes = u128::from(bytes_per_second) * u128::from(ns) / u128::from(SECOND);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The priority of the job's requests against clients'. Elevators know both classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The elevator serves the job's requests when no client's request waits.
    Idle,
    /// The elevator serves the job's requests in turn with clients' requests.
    BestEffort,
}

/// The bytes that the job may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes that may begin now in class idle, in whole pieces. The job's last piece may be short.
    pub idle_bytes: u64,
    /// Bytes that may also begin in class best effort, to pay the floor's debt, in whole pieces.
    pub owed_bytes: u64,
    /// The time of the next poll. Poll earlier when a part of the job is done.
    pub ask_at_ns: u64,
}

/// The governor's phase, for displays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No client sends requests.
    Idle,
    /// Clients and the job share the members.
    Shared,
    /// The job is stopped for a moment, to measure clients without the job.
    Probe,
}

/// The governor's state, for displays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GovernorState {
    /// The phase.
    pub phase: Phase,
    /// The most bytes of the job that may be in flight on average while clients have requests.
    pub allowance_bytes: u64,
    /// Bytes of the job in flight.
    pub in_flight_bytes: u64,
    /// Clients' p99 without the job; `None` before it is known.
    pub alone_p99_ns: Option<u64>,
    /// The highest allowed p99 of clients while the job runs; `None` before it is known.
    pub target_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    start_ns: u64,
    /// Time of the probe in which neither the job nor requests that had waited for it disturbed
    /// clients.
    quiet_ns: u64,
    requests: u64,
}

/// Whether the next probe may come earlier because clients seem to have changed. At most every
/// second probe may come earlier, unless the last probe found that clients had changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hurry {
    May,
    /// The next probe is hurried.
    Hurried,
    /// The last probe was hurried.
    Spent,
}

/// The governor of one job.
#[derive(Clone, Debug)]
pub struct Governor {
    settings: GovernorSettings,
    now_ns: u64,
    /// Bytes in flight in both classes.
    flight: Flight,
    /// The size of the job's requests while clients have requests.
    piece: Piece,
    /// The bytes in flight in class best effort.
    owed_in_flight_bytes: u64,
    floor: Bucket,
    ceiling: Bucket,
    share: Share,
    baseline: Baseline,
    /// The start of the current slice of latencies.
    slice_start_ns: u64,
    /// The time since which no bytes of the job are in flight.
    quiet_since_ns: Option<u64>,
    /// Whether clients' requests that waited for the job have been served.
    is_drained: bool,
    /// The lowest recent number of clients' requests in flight without the job.
    low_under_way: u64,
    /// The latency of the slowest of clients' recent requests while the job ran.
    beside_ns: Option<u64>,
    /// The last time at which a client had a request; `None` before the first.
    client_ns: Option<u64>,
    probe: Option<Probe>,
    next_probe_ns: u64,
    /// The earliest time for a hurried probe.
    hurried_probe_ns: u64,
    hurry: Hurry,
    pulse: Pulse,
}

impl Governor {
    /// A governor for a job that begins at `now_ns`.
    #[must_use]
    pub fn new(settings: GovernorSettings, now_ns: u64) -> Self {
        let window = settings.window_bytes();
        Self {
            settings,
            now_ns,
            flight: Flight::default(),
            piece: Piece::default(),
            owed_in_flight_bytes: 0,
            floor: Bucket::new(settings.floor_bytes_per_second, settings.floor_depth_bytes()),
            ceiling: Bucket::new(settings.ceiling_bytes_per_second, settings.ceiling_depth_bytes()),
            share: Share::new(settings.least_bytes(), settings.most_bytes(), window),
            baseline: Baseline::default(),
            slice_start_ns: now_ns,
            quiet_since_ns: Some(now_ns),
            is_drained: true,
            low_under_way: u64::MAX,
            beside_ns: None,
            client_ns: None,
            probe: None,
            next_probe_ns: now_ns,
            hurried_probe_ns: now_ns,
            hurry: Hurry::May,
            pulse: Pulse::default(),
        }
    }

    /// Changes the settings; they hold at once.
    pub fn set(&mut self, settings: GovernorSettings, now_ns: u64) {
        self.advance(now_ns);
        if settings.latency_factor_permille != self.settings.latency_factor_permille {
            self.share.forgive();
        }
        if !settings.minds_clients() {
            (self.client_ns, self.probe) = (None, None);
        }
        if settings.window_bytes() != self.settings.window_bytes() {
            self.piece = Piece::default();
        }
        self.settings = settings;
        self.share.set(settings.least_bytes(), settings.most_bytes());
        self.floor.set(settings.floor_bytes_per_second, settings.floor_depth_bytes());
        self.ceiling.set(settings.ceiling_bytes_per_second, settings.ceiling_depth_bytes());
    }

    /// Reports that a client's request came while none was in flight. Extra calls do no harm.
    pub fn handle_client(&mut self, now_ns: u64) {
        self.advance(now_ns);
        if self.settings.minds_clients() {
            self.client_ns = Some(self.now_ns);
        }
    }

    /// Takes the latencies of clients' requests that ended since the last call, and the number of
    /// requests in flight. The runtime calls this function about ten times a second while there are
    /// clients.
    pub fn handle_slice(&mut self, now_ns: u64, ended: &Latencies, under_way: u64) {
        self.advance(now_ns);
        let start_ns = std::mem::replace(&mut self.slice_start_ns, self.now_ns);
        let slice_ns = self.now_ns - start_ns;
        let used = self.flight.take_used();
        if ended.total() == 0 && under_way == 0 || !self.settings.minds_clients() {
            return;
        }
        self.client_ns = Some(self.now_ns);
        if self.was_quiet_since(start_ns) {
            let was_drained = self.is_drained;
            self.is_drained |= under_way <= self.low_under_way.saturating_mul(2).saturating_add(2);
            self.low_under_way = self.low_under_way.min(under_way);
            if !was_drained {
                return;
            }
            if self.baseline.gather(ended, slice_ns) {
                self.share.forgive();
                self.hurry = Hurry::May;
            }
            if let Some(probe) = &mut self.probe {
                probe.quiet_ns += slice_ns;
                probe.requests += ended.total();
            }
        } else if used > 0 {
            if self.pulse.slice(ended.total(), slice_ns) && self.hurry == Hurry::May {
                self.hurry = Hurry::Hurried;
                self.next_probe_ns = self.next_probe_ns.min(self.hurried_probe_ns);
            }
            let slowest_ns = ended.quantile_ns(990).unwrap_or(0);
            let faded_ns = self.beside_ns.map_or(0, |beside_ns| beside_ns - beside_ns / 16);
            self.beside_ns = Some(slowest_ns.max(faded_ns));
            if let Some(target_ns) = self.target_ns() {
                let used_bytes = u64::try_from(used / u128::from(slice_ns.max(1)));
                let used_bytes = used_bytes.unwrap_or(u64::MAX);
                let requests = (ended.total(), ended.beyond(target_ns));
                let drain_slices = self.settle_ns() / slice_ns.max(1) + 1;
                self.share.slice(requests, used_bytes, drain_slices);
                let allowance_bytes = self.share.allowance_bytes();
                let is_within = !self.share.is_in_debt();
                self.piece.slice(allowance_bytes, self.piece_bytes(), is_within);
                self.fit_piece();
            }
        }
    }

    /// Reports that the job has begun `bytes` bytes.
    pub fn handle_begun(&mut self, now_ns: u64, class: Class, bytes: u64) {
        self.advance(now_ns);
        self.piece.begin(self.now_ns, bytes, self.flight.bytes());
        self.flight.begin(bytes);
        if class == Class::BestEffort {
            self.owed_in_flight_bytes = self.owed_in_flight_bytes.saturating_add(bytes);
        }
        self.ceiling.take(bytes);
        self.floor.take(bytes);
        self.floor.forgive();
        (self.quiet_since_ns, self.is_drained) = (None, false);
    }

    /// Reports that `bytes` bytes of the job have ended, with success or not. More bytes than the
    /// job began are a bug of the caller.
    pub fn handle_done(&mut self, now_ns: u64, class: Class, bytes: u64) {
        self.advance(now_ns);
        self.flight.end(bytes);
        if class == Class::BestEffort {
            let left = self.owed_in_flight_bytes.checked_sub(bytes);
            self.owed_in_flight_bytes = left.expect("what is done was begun in its class");
        }
        if self.flight.bytes() == 0 {
            self.quiet_since_ns = self.quiet_since_ns.or(Some(self.now_ns));
            if self.phase() == Phase::Shared {
                self.piece.end(self.now_ns, self.piece_bytes());
                self.fit_piece();
            }
        }
    }

    /// The bytes that may begin now.
    pub fn poll(&mut self, now_ns: u64) -> Allowance {
        self.advance(now_ns);
        self.turn_probe();
        let piece = self.piece_bytes();
        let whole = |bytes: u64| bytes - bytes % piece;
        let allowance = self.allowance_bytes();
        let owed_bytes = whole(self.owed_bytes().min(self.ceiling.bytes()));
        let room_bytes = match self.phase() {
            Phase::Probe => 0,
            Phase::Idle | Phase::Shared => self.flight.room(allowance, piece),
        };
        let most = self.settings.most_bytes().saturating_sub(self.flight.bytes());
        let room_bytes = room_bytes.min(most).saturating_sub(owed_bytes);
        let idle_bytes = whole(room_bytes.min(self.ceiling.bytes() - owed_bytes));
        let waits = [
            self.flight.wait_ns(allowance),
            self.floor.wait_ns(piece),
            self.ceiling.wait_ns(piece),
        ];
        // If no bytes may begin now, bytes may begin at the earliest of these times, or when bytes
        // in flight end.
        let wait_ns = waits.into_iter().flatten().filter(|wait_ns| *wait_ns > 0).min();
        let wait_ns = wait_ns.map_or(ASK_MAX_NS, |wait_ns| wait_ns.min(ASK_MAX_NS));
        Allowance { idle_bytes, owed_bytes, ask_at_ns: self.now_ns.saturating_add(wait_ns) }
    }

    /// The current state.
    #[must_use]
    pub fn look(&self) -> GovernorState {
        GovernorState {
            phase: self.phase(),
            allowance_bytes: self.share.allowance_bytes(),
            in_flight_bytes: self.flight.bytes(),
            alone_p99_ns: self.baseline.p99_ns(),
            target_ns: self.target_ns(),
        }
    }

    /// Advances the clock. If the time goes back, the clock stands still.
    fn advance(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.now_ns).min(STEP_MAX_NS);
        let allowance = self.allowance_bytes();
        self.now_ns = self.now_ns.max(now_ns);
        self.flight.advance(elapsed_ns, allowance);
        self.floor.advance(elapsed_ns);
        self.ceiling.advance(elapsed_ns);
    }

    fn phase(&self) -> Phase {
        let silence_ns = if self.share.is_in_debt() { LONG_SILENCE_NS } else { SILENCE_NS };
        let is_idle = |client_ns| self.now_ns.saturating_sub(client_ns) >= silence_ns;
        match self.probe {
            _ if self.client_ns.is_none_or(is_idle) => Phase::Idle,
            Some(_) => Phase::Probe,
            None => Phase::Shared,
        }
    }

    fn allowance_bytes(&self) -> u64 {
        match self.phase() {
            Phase::Idle => self.idle_bytes(),
            Phase::Shared | Phase::Probe => self.share.allowance_bytes(),
        }
    }

    /// The most bytes in flight without clients. After a short silence the limit is small, so that
    /// the next client's request meets few bytes.
    fn idle_bytes(&self) -> u64 {
        let most = self.settings.most_bytes();
        let Some(client_ns) = self.client_ns else { return most };
        let silence_ns = self.now_ns.saturating_sub(client_ns).saturating_sub(SILENCE_NS);
        let times =
            2_u64.saturating_pow(u32::try_from(silence_ns / DOUBLING_NS).unwrap_or(u32::MAX));
        self.share.allowance_bytes().saturating_mul(times).min(most)
    }

    /// The size of a piece: without clients a window, with clients a size that delays their
    /// requests little.
    fn piece_bytes(&self) -> u64 {
        let window = self.settings.window_bytes();
        match self.phase() {
            Phase::Idle => window,
            Phase::Shared | Phase::Probe => self.piece.bytes(window, WINDOW_MIN_BYTES),
        }
    }

    /// Fits the piece size to the target: a piece may delay a client's request by the difference
    /// between the target and the latency of the slowest requests without the job.
    fn fit_piece(&mut self) {
        if let (Some(target_ns), Some(alone_ns)) = (self.target_ns(), self.baseline.p99_ns()) {
            let is_smallest = self.piece_bytes() <= WINDOW_MIN_BYTES;
            if self.piece.fit(target_ns.saturating_sub(alone_ns), is_smallest) {
                // The debt for larger pieces says little about smaller pieces, so the debt is
                // forgiven.
                self.share.forgive();
            }
        }
    }

    fn target_ns(&self) -> Option<u64> {
        let factor = u128::from(self.settings.latency_factor_permille.max(1000));
        let target_ns = u128::from(self.baseline.p99_ns()?) * factor / 1000;
        Some(u64::try_from(target_ns).unwrap_or(u64::MAX))
    }

    /// Whether since `start_ns` neither the job nor requests that waited for it delayed clients.
    fn was_quiet_since(&self, start_ns: u64) -> bool {
        let settle_ns = self.settle_ns();
        self.quiet_since_ns.is_some_and(|quiet_ns| quiet_ns.saturating_add(settle_ns) <= start_ns)
    }

    /// How long requests that met the job may still be in flight after the job stopped.
    fn settle_ns(&self) -> u64 {
        self.beside_ns.unwrap_or(SETTLE_AT_FIRST_NS).min(SETTLE_MAX_NS)
    }

    fn turn_probe(&mut self) {
        let has_clients = !matches!(self.phase(), Phase::Idle);
        if let Some(probe) = self.probe {
            let took_ns = self.now_ns.saturating_sub(probe.start_ns);
            let has_seen = probe.requests >= PROBE_REQUESTS || probe.quiet_ns >= PROBE_QUIET_NS;
            if has_seen || took_ns >= self.settle_ns() + PROBE_MAX_NS || !has_clients {
                self.probe = None;
                // The minimum rises little by little, since the number of clients may have grown.
                let more = self.low_under_way / 8 + 1;
                self.low_under_way = self.low_under_way.saturating_add(more);
                self.hurry = match self.hurry {
                    Hurry::Hurried => Hurry::Spent,
                    Hurry::May | Hurry::Spent => Hurry::May,
                };
                let after = |times: u64| {
                    let pause_ns = took_ns.saturating_mul(times).max(PROBE_EVERY_MIN_NS);
                    self.now_ns.saturating_add(pause_ns)
                };
                self.hurried_probe_ns = after(PROBE_HURRIED);
                self.next_probe_ns = match self.baseline.is_well_known() {
                    true => after(PROBE_EVERY),
                    false => self.hurried_probe_ns,
                };
            }
        } else if has_clients && self.now_ns >= self.next_probe_ns {
            self.probe = Some(Probe { start_ns: self.now_ns, quiet_ns: 0, requests: 0 });
        }
    }

    /// The bytes of the floor's debt that may begin now: one piece at a time, and more pieces the
    /// longer the job got too little. Zero without clients: class idle then does as well.
    fn owed_bytes(&self) -> u64 {
        let piece = self.piece_bytes();
        let owed = self.floor.bytes();
        let may_wait = match self.phase() {
            Phase::Idle => true,
            Phase::Shared => false,
            Phase::Probe => !self.floor.is_full(),
        };
        if owed < piece || may_wait {
            return 0;
        }
        // One more piece for each eighth of a second by which the job is below its floor.
        let eighth = (self.settings.floor_bytes_per_second / 8).max(1);
        let at_a_time = match self.floor.is_full() {
            true => owed / 4,
            false => piece.saturating_mul(1 + owed / eighth).min(owed),
        };
        let at_a_time = at_a_time.clamp(piece, self.settings.most_bytes());
        at_a_time.saturating_sub(self.owed_in_flight_bytes)
    }
}
