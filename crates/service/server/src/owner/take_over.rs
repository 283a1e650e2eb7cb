//! Takes an array over: watches the record, swaps it, claims members.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use braid_assembly::{Assembly, ProbedMember, assemble};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::devices::{self, MemberDevice};
use braid_member::{Access, Ownership, keeps_owners_out, own_members};
use braid_ownership::{
    Basis, Mark, MemberKey, OwnerId, Record, RecordedMember, SwapResult, TakeOver, TakeOverStep,
    Tenure,
};
use braid_store::StoreError;
use serde_json::json;

use super::super::config::{OwnerConfig, ServerConfig};
use super::super::wait::Watch;
use super::ending::{LEASE, LEASE_MARGIN, LOOK, Refusals, SILENCE, store_error};
use super::rules;
use super::swap::{PAUSE, Seen};

/// How long a server without `--standby` waits for members that do not answer.
const CLAIM_PATIENCE: Duration = Duration::from_secs(15);
/// The pause before members that did not answer are claimed again.
const CLAIM_PAUSE: Duration = Duration::from_millis(250);
/// Once there are enough members, an heir waits at most this long, counted from the first claim,
/// for the others. A host that is gone answers nothing for seconds.
const CLAIM_GRACE: Duration = Duration::from_secs(1);
/// How long claims may take before the operator is told which members are missing.
const CLAIM_TOLD: Duration = Duration::from_secs(2);

/// An array that this process owns.
pub(crate) struct Owned {
    pub(super) seen: Seen,
    pub(super) tenure: Tenure,
    pub(super) refusals: Refusals,
    /// The members to open: claimed, and in sync by the record.
    pub(crate) members: Vec<PathBuf>,
    /// The members that are not opened. They are added and recovered once they answer.
    pub(super) left_out: Vec<PathBuf>,
    pub(super) asked: AskedMembers,
}

/// Members whose servers have a question from this process pending. A later connection to a member
/// ends earlier ones, so a member is opened only after its server has answered.
#[derive(Clone, Default)]
pub(super) struct AskedMembers(Arc<Mutex<BTreeSet<PathBuf>>>);

impl AskedMembers {
    /// Sends a question to a member's server on a thread of its own, since a host that is gone
    /// answers nothing for seconds. Skips a server that already has a question pending.
    fn ask<T: Send + 'static>(
        &self,
        path: &Path,
        answers: &Sender<(PathBuf, T)>,
        ask: impl FnOnce(&Path) -> T + Send + 'static,
    ) {
        if !self.0.lock().expect(UNBROKEN).insert(path.to_path_buf()) {
            return;
        }
        let (path, asked, answers) = (path.to_path_buf(), self.clone(), answers.clone());
        thread::spawn(move || {
            let answer = ask(&path);
            asked.0.lock().expect(UNBROKEN).remove(&path);
            // The send fails if the decision was made without this member.
            let _ = answers.send((path, answer));
        });
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.lock().expect(UNBROKEN).contains(path)
    }
}

const UNBROKEN: &str = "no panic under this lock";

/// Returns when this process owns the array; `None` if a signal came first.
pub(crate) fn take_over(
    config: &OwnerConfig,
    server: &ServerConfig,
    (watch, globals): (&Watch, &Globals),
) -> Result<Option<Owned>, CliError> {
    server.members.iter().try_for_each(|path| rules::check_member(path))?;
    let store = braid_store::open(&config.store).map_err(|error| store_error(&error))?;
    let is_standby = config.is_standby;
    let gives_up_at = (!is_standby).then(|| Instant::now() + CLAIM_PATIENCE);
    let heir = Heir {
        server,
        watch,
        globals,
        is_standby,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        gives_up_at,
        seen: Seen::new(store),
        claimed: BTreeMap::new(),
        asked: AskedMembers::default(),
        said: None,
    };
    match heir.own() {
        Ok(owned) => Ok(Some(owned)),
        Err(Stop::Signal) => Ok(None),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// Why an heir ends without owning the array.
enum Stop {
    Signal,
    Error(CliError),
}

impl From<CliError> for Stop {
    fn from(error: CliError) -> Self {
        Self::Error(error)
    }
}

struct Heir<'a> {
    server: &'a ServerConfig,
    watch: &'a Watch,
    globals: &'a Globals,
    is_standby: bool,
    /// The name of this host.
    host: String,
    /// When a server without `--standby` stops waiting for members.
    gives_up_at: Option<Instant>,
    seen: Seen,
    /// Members that serve the present claim. Each was read after it accepted the claim, since when
    /// no older owner changes it.
    claimed: BTreeMap<PathBuf, MemberDevice>,
    asked: AskedMembers,
    /// The last message to the operator.
    said: Option<String>,
}

impl Heir<'_> {
    fn own(mut self) -> Result<Owned, Stop> {
        loop {
            self.wait_for_turn()?;
            let basis = match self.seen.record().cloned() {
                Some(record) => Basis::Record(record),
                None => self.first()?,
            };
            let (Basis::Record(Record { array, ref members, .. })
            | Basis::First { array, ref members }) = basis;
            // The record names the members, too, so a standby needs none on its command line.
            let of_record = members.iter().map(|one| PathBuf::from(&one.address));
            let named: Vec<PathBuf> = match self.server.members.is_empty() {
                true => of_record.collect(),
                false => self.server.members.clone(),
            };
            // Checks first that the members can run the array: a claim ends an owner that is alive,
            // even one that cannot reach the store.
            if let Basis::Record(record) = &basis
                && !self.can_run(record, &named)?
            {
                continue;
            }
            // The owner's ID is new each time, since a restored store may give out an epoch again.
            let me = OwnerId(*uuid::Uuid::new_v4().as_bytes());
            let begun = TakeOver::begin((me, &self.host), basis);
            let (mut take_over, mut step) = begun.map_err(|error| {
                rules::needs(CliError::new(Code::StoreUnusable, error.to_string()))
            })?;
            let mut refusals = Refusals::default();
            loop {
                step = match step {
                    TakeOverStep::Swap { to, .. } => take_over.swapped(self.swap(&to)?),
                    TakeOverStep::Claim { epoch } => {
                        refusals = Refusals::default();
                        let told = refusals.clone();
                        let refused = Box::new(move |mark| told.take(mark));
                        let told = refusals.clone();
                        let reservation_lost = Box::new(move |why: &str| told.take_loss(why));
                        let mark = Mark { epoch, owner: me };
                        own_members(Ownership { array, mark, refused, reservation_lost });
                        self.claim(&mut take_over, (array, &named), &refusals)?
                    }
                    TakeOverStep::GiveWay { .. } => break,
                    TakeOverStep::Serve { record, waits_for_lease } => {
                        if waits_for_lease {
                            thread::sleep(LEASE + LEASE_MARGIN);
                        }
                        let is_believed = !take_over.store_went_back();
                        let (members, left_out) = self.parted(&record, is_believed, named);
                        let tenure = Tenure::new(me, record);
                        let Self { seen, asked, .. } = self;
                        return Ok(Owned { seen, tenure, refusals, members, left_out, asked });
                    }
                };
            }
        }
    }

    /// The members to open, and the others. If the store has lost records, all claimed members are
    /// opened, since their superblocks are newer.
    fn parted(
        &self,
        record: &Record,
        is_believed: bool,
        named: Vec<PathBuf>,
    ) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let in_sync = record.in_sync();
        let counts = |one: &MemberDevice| !is_believed || in_sync.contains(&key_of(one));
        named.into_iter().partition(|path| self.claimed.get(path).is_some_and(counts))
    }

    /// Swaps the record at the store. While the store does not answer, tries again until a signal.
    fn swap(&mut self, to: &Record) -> Result<SwapResult, Stop> {
        let watch = self.watch;
        let mut is_told = false;
        let swapped = self.seen.swap(to, &mut |error| {
            if !std::mem::replace(&mut is_told, true) {
                errln!("{error}; trying again");
            }
            !watch.has_ended(PAUSE)
        });
        swapped.map_err(|error| match error {
            // The swap gives up on a silent store only for a signal.
            StoreError::Unreachable(_) => Stop::Signal,
            error => Stop::Error(store_error(&error)),
        })
    }

    /// Waits until the present owner is gone. Without `--standby`, a live owner is an error.
    fn wait_for_turn(&mut self) -> Result<(), Stop> {
        let mut last: Option<Record> = None;
        let mut since = Instant::now();
        loop {
            match self.seen.read() {
                // A store that does not answer says nothing about the owner.
                Err(StoreError::Unreachable(why)) if self.is_standby => {
                    self.say_once("store-away", &why);
                    last = None;
                }
                Err(error) => return Err(Stop::Error(store_error(&error))),
                Ok(()) => {
                    let others = self.seen.record().filter(|record| !self.may_follow(record));
                    let Some(record) = others.cloned() else { return Ok(()) };
                    if last.as_ref() != Some(&record) {
                        if last.is_some() && !self.is_standby {
                            return Err(Stop::Error(served_elsewhere(&record)));
                        }
                        if self.is_standby {
                            let how =
                                if record.owner.is_some() { "serves it" } else { "may have it" };
                            let words = format!("{} {how}, epoch {}", record.host, record.epoch);
                            self.say_once("standby", &words);
                        }
                        (last, since) = (Some(record), Instant::now());
                    } else if since.elapsed() >= SILENCE {
                        return Ok(());
                    }
                }
            }
            self.pause(LOOK)?;
        }
    }

    /// Whether this host may take over by this record: the record has no owner, and names no other
    /// host as the next one.
    fn may_follow(&self, record: &Record) -> bool {
        let is_ours = record.host.is_empty() || record.host == self.host;
        record.owner.is_none() && (is_ours || !self.is_standby)
    }

    fn pause(&self, time: Duration) -> Result<(), Stop> {
        if self.watch.has_ended(time) { Err(Stop::Signal) } else { Ok(()) }
    }

    /// Returns an error once the time limit for waiting is over.
    fn goes_on(&self, error: impl Fn() -> CliError) -> Result<(), Stop> {
        match self.gives_up_at {
            Some(at) if at < Instant::now() => Err(Stop::Error(error())),
            _ => Ok(()),
        }
    }

    fn say_once(&mut self, event: &str, words: &str) {
        if self.said.as_deref() == Some(words) {
            return;
        }
        match self.globals.json {
            true => outjson!(&json!({ "event": event, "text": words })),
            false => outln!("{event}: {words}"),
        }
        // A standby is ready for its service manager as soon as it waits for the owner.
        let _ = braid_events::service::ready(&format!("{event}: {words}"));
        self.said = Some(words.to_owned());
    }

    /// The array of the members on the command line, for the first record in the store.
    fn first(&mut self) -> Result<Basis, Stop> {
        let began = Instant::now();
        loop {
            let found = devices::look(&self.server.members);
            let is_over =
                found.len() == self.server.members.len() || began.elapsed() >= CLAIM_GRACE;
            if let Some(first) = first_of(&found, self.server)? {
                if is_over {
                    return Ok(first);
                }
                self.pause(CLAIM_PAUSE)?;
                continue;
            }
            let words = "the members that answer cannot start the array; `braid examine` says why";
            self.say_once("waiting", words);
            self.goes_on(|| no_members(&self.server.members))?;
            self.pause(CLAIM_PAUSE)?;
        }
    }

    /// Whether the members in sync that can be read can run the array; claims none of them. If they
    /// cannot, tells the operator why, and waits.
    fn can_run(&mut self, record: &Record, named: &[PathBuf]) -> Result<bool, Stop> {
        let in_sync = record.in_sync();
        let (sender, answers) = channel();
        // A disk that this host cannot claim does not count as a member that can be read.
        let look = |path: &Path| {
            keeps_owners_out(path)?;
            devices::try_look_at(path)
        };
        named.iter().for_each(|path| self.asked.ask(path, &sender, look));
        drop(sender);
        let began = Instant::now();
        let (mut found, mut reasons) = (Vec::new(), BTreeMap::new());
        let mut refusal = Some(String::new());
        loop {
            // Once there are enough members, waits for the others only as long as a host that is
            // alive takes to answer.
            let patience = if refusal.is_none() { LOOK } else { CLAIM_GRACE };
            match answers.recv_timeout(patience.saturating_sub(began.elapsed())) {
                Ok((_, Ok(member))) if member.superblock.array.uuid != record.array => {
                    return Err(Stop::Error(several_arrays(named)));
                }
                Ok((_, Ok(member))) if in_sync.contains(&key_of(&member)) => found.push(member),
                Ok((path, found)) => {
                    let why = found.err().unwrap_or_else(|| "it was given up".to_owned());
                    reasons.insert(path, why);
                }
                // All members have answered, or the time is over.
                Err(_) => break,
            }
            let array = assembled(&found, self.server).array;
            refusal = array.err().map(|refusal| refusal.to_string());
        }
        let Some(refusal) = refusal else { return Ok(true) };
        for path in named {
            if !found.iter().any(|one| one.path == *path) {
                reasons.entry(path.clone()).or_insert_with(|| "no answer".to_owned());
            }
        }
        let words = format!("{refusal}; {}", listed(&reasons));
        self.say_once("waiting", &words);
        self.goes_on(|| too_few(found.len(), named))?;
        self.pause(CLAIM_PAUSE)?;
        Ok(false)
    }

    /// Claims members until enough of them to run the array have answered.
    fn claim(
        &mut self,
        take_over: &mut TakeOver,
        (array, named): ([u8; 16], &[PathBuf]),
        refusals: &Refusals,
    ) -> Result<TakeOverStep, Stop> {
        self.claimed.clear();
        let (sender, answers) = channel();
        let asked = self.asked.clone();
        let ask = |path: &PathBuf| asked.ask(path, &sender, move |path| answer(path, array));
        named.iter().for_each(ask);
        let mut reasons = BTreeMap::new();
        let began = Instant::now();
        loop {
            match answers.recv_timeout(CLAIM_PAUSE) {
                Ok((_, Answer::OfAnotherArray)) => return Err(Stop::Error(several_arrays(named))),
                Ok((path, Answer::Claimed(member))) => {
                    take_over.claimed(key_of(&member));
                    reasons.remove(&path);
                    self.claimed.insert(path, *member);
                }
                Ok((path, Answer::No(why))) => _ = reasons.insert(path, why),
                Err(_) => {
                    let is_idle = |path: &&PathBuf| !self.claimed.contains_key(*path);
                    named.iter().filter(is_idle).for_each(ask);
                }
            }
            if let Some(mark) = refusals.latest()
                && let Some(step) = take_over.refused(mark.epoch)
            {
                return Ok(step);
            }
            let of = |set: &BTreeSet<MemberKey>| {
                let chosen = self.claimed.values().filter(|one| set.contains(&key_of(one)));
                assembled(chosen, self.server).array
            };
            // A member has answered once its answer is taken from the channel.
            let has_answered =
                |path: &PathBuf| self.claimed.contains_key(path) || reasons.contains_key(path);
            let is_over = named.iter().all(has_answered) || began.elapsed() >= CLAIM_GRACE;
            if is_over && take_over.has_enough(|set| of(set).is_ok()) {
                if let Ok(array) = of(&take_over.usable()) {
                    rules::check_array(&array).map_err(Stop::Error)?;
                }
                return Ok(take_over.settle());
            }
            if began.elapsed() >= CLAIM_TOLD {
                let refusal = of(&take_over.usable()).err();
                let refusal = refusal.map(|why| format!("; {why}")).unwrap_or_default();
                let count = format!("{} of {} members claimed", self.claimed.len(), named.len());
                self.say_once("claiming", &format!("{count}{refusal}; {}", listed(&reasons)));
            }
            self.goes_on(|| too_few(self.claimed.len(), named))?;
            self.pause(Duration::ZERO)?;
        }
    }
}

/// A line of members, each with its reason.
fn listed(reasons: &BTreeMap<PathBuf, String>) -> String {
    let one = |(path, why): (&PathBuf, &String)| format!("{}: {why}", path.display());
    reasons.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The answer of a member's server to a claim.
enum Answer {
    Claimed(Box<MemberDevice>),
    /// Why the member was not claimed.
    No(String),
    /// The server has a member of another array, which was not claimed.
    OfAnotherArray,
}

/// Claims a member of this array. Reads the member before the claim, since a claim ends the owner
/// of the array that has the member; and again afterwards, when no older owner changes it.
fn answer(path: &Path, array: [u8; 16]) -> Answer {
    match devices::try_look_at(path) {
        Err(why) => Answer::No(why),
        Ok(found) if found.superblock.array.uuid != array => Answer::OfAnotherArray,
        Ok(_) => match braid_member::open(path, Access::ReadWrite) {
            Ok(claimed) => {
                drop(claimed);
                match devices::try_look_at(path) {
                    Ok(found) => Answer::Claimed(Box::new(found)),
                    Err(why) => Answer::No(why),
                }
            }
            Err(error) => Answer::No(error.to_string()),
        },
    }
}

/// The array of these members, for the first record; `None` if the members cannot start an array.
fn first_of(found: &[MemberDevice], server: &ServerConfig) -> Result<Option<Basis>, CliError> {
    let Some(first) = found.first() else { return Ok(None) };
    let array = first.superblock.array.uuid;
    if found.iter().any(|one| one.superblock.array.uuid != array) {
        return Err(several_arrays(&found.iter().map(|one| one.path.clone()).collect::<Vec<_>>()));
    }
    if found.iter().any(|one| one.superblock.device.uuid == [0; 16]) {
        let what = "superblocks of version 0.90 do not name their members";
        let error = CliError::new(Code::StoreUnusable, what);
        return Err(rules::needs(error.because("the record says which members have all writes")));
    }
    let in_sync: BTreeSet<usize> = match assembled(found, server).array {
        Ok(array) => {
            rules::check_array(&array)?;
            let in_slots = array.slots.iter().flatten().filter(|one| one.is_in_sync());
            in_slots.map(|one| one.member).collect()
        }
        Err(_) => return Ok(None),
    };
    let member = |(index, one): (usize, &MemberDevice)| RecordedMember {
        key: key_of(one),
        address: one.path.to_string_lossy().into_owned(),
        is_in_sync: in_sync.contains(&index),
    };
    let members = found.iter().enumerate().map(member).collect();
    Ok(Some(Basis::First { array, members }))
}

fn assembled<'a>(
    found: impl IntoIterator<Item = &'a MemberDevice>,
    server: &ServerConfig,
) -> Assembly {
    let probed: Vec<ProbedMember> = found.into_iter().map(|one| one.probed.clone()).collect();
    assemble(&probed, &server.assembly)
}

fn key_of(member: &MemberDevice) -> MemberKey {
    MemberKey(member.superblock.device.uuid)
}

fn served_elsewhere(record: &Record) -> CliError {
    let what = format!("{} owns the array, and is alive", record.host);
    let error = CliError::new(Code::OwnedElsewhere, what);
    let error = error.because(format!("its record has epoch {} and changes", record.epoch));
    error.remedy(Risk::Look, "See how to wait for it, or to end it", "braid help B127")
}

fn too_few(claimed: usize, named: &[PathBuf]) -> CliError {
    let what = "too few members answer to take the array over";
    let error = CliError::new(Code::MemberUnreachable, what);
    let error = error.because(format!("{claimed} of {} members were claimed", named.len()));
    examined(error, named)
}

fn no_members(named: &[PathBuf]) -> CliError {
    let what = "no members of an array that can start were found";
    let error = CliError::new(Code::MemberUnreachable, what);
    examined(error.because("no server answers, or the members that answer are too few"), named)
}

fn several_arrays(named: &[PathBuf]) -> CliError {
    let what = "the members belong to several arrays, and one owner has one array";
    let error = CliError::new(Code::StoreUnusable, what);
    examined(error.because("their superblocks have other UUIDs of the array"), named)
}

fn examined(error: CliError, named: &[PathBuf]) -> CliError {
    let word = |path: &PathBuf| shell_word(&path.to_string_lossy()).into_owned();
    let words: Vec<String> = named.iter().map(word).collect();
    error.remedy(Risk::Look, "See what answers", format!("braid examine {}", words.join(" ")))
}
