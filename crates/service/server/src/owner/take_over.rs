//! Takes an array over: watches the record, swaps it, claims members.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use braid_assembly::{AssembledArray, Assembly, ProbedMember, assemble};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::devices::{self, MemberDevice};
use braid_member::{Access, Ownership, is_uri, own_members};
use braid_ownership::{
    Basis, Mark, MemberKey, OwnerId, Record, RecordedMember, SwapResult, TakeOver, TakeOverStep,
    Tenure,
};
use braid_store::StoreError;
use serde_json::json;

use super::super::config::{OwnerConfig, ServerConfig};
use super::super::wait::Watch;
use super::ending::{LEASE, LEASE_MARGIN, LOOK, Refusals, SILENCE, store_error};
use super::swap::{PAUSE, Seen};

/// How long a server that is no standby waits for members that do not answer.
const CLAIM_PATIENCE: Duration = Duration::from_secs(15);
/// The pause before members that did not answer are claimed again.
const CLAIM_PAUSE: Duration = Duration::from_millis(250);
/// Once there are enough members, the others are waited for at most this long from the first claim
/// on. A host that is gone answers nothing for seconds.
const CLAIM_GRACE: Duration = Duration::from_secs(1);

/// An array that this process owns.
pub(crate) struct Owned {
    pub(super) seen: Seen,
    pub(super) tenure: Tenure,
    pub(super) refusals: Refusals,
    /// The members to open: claimed, and in sync by the record.
    pub(crate) members: Vec<PathBuf>,
    /// The other members. They are added and recovered when they answer.
    pub(super) left_out: Vec<PathBuf>,
}

/// Returns when this process owns the array; `None` if a signal came first.
pub(crate) fn take_over(
    config: &OwnerConfig,
    server: &ServerConfig,
    (watch, globals): (&Watch, &Globals),
) -> Result<Option<Owned>, CliError> {
    if let Some(local) = server.members.iter().find(|path| !is_uri(path)) {
        return Err(local_member(local));
    }
    let store = braid_store::open(&config.store).map_err(|error| store_error(&error))?;
    let is_standby = config.is_standby;
    let gives_up_at = (!is_standby).then(|| Instant::now() + CLAIM_PATIENCE);
    let heir = Heir {
        server,
        watch,
        globals,
        is_standby,
        gives_up_at,
        seen: Seen::new(store),
        claimed: BTreeMap::new(),
        said: None,
    };
    match heir.own() {
        Ok(owned) => Ok(Some(owned)),
        Err(Stop::Signal) => Ok(None),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// Why an heir stops without the array.
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
    /// When a server that is no standby stops waiting for members.
    gives_up_at: Option<Instant>,
    seen: Seen,
    /// Members that serve the present claim, read after they took it: no older owner changes them.
    claimed: BTreeMap<PathBuf, MemberDevice>,
    /// The last words to the operator.
    said: Option<String>,
}

impl Heir<'_> {
    fn own(mut self) -> Result<Owned, Stop> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        loop {
            self.wait_for_turn()?;
            let basis = match self.seen.record().cloned() {
                Some(record) => Basis::Record(record),
                None => self.first()?,
            };
            let (Basis::Record(Record { array, ref members, .. })
            | Basis::First { array, ref members }) = basis;
            // The record names the members, too: a standby needs none on its command line.
            let of_record = members.iter().map(|one| PathBuf::from(&one.address));
            let named = match self.server.members.is_empty() {
                true => of_record.collect(),
                false => self.server.members.clone(),
            };
            // New in each attempt: a restored store may give out an epoch again.
            let me = OwnerId(*uuid::Uuid::new_v4().as_bytes());
            let begun = TakeOver::begin((me, &host), basis);
            let (mut take_over, mut step) = begun
                .map_err(|error| needs(CliError::new(Code::StoreUnusable, error.to_string())))?;
            let mut refusals = Refusals::default();
            loop {
                step = match step {
                    TakeOverStep::Swap { to, .. } => take_over.swapped(self.swap(&to)?),
                    TakeOverStep::Claim { epoch } => {
                        refusals = Refusals::default();
                        let told = refusals.clone();
                        let refused = Box::new(move |mark| told.take(mark));
                        own_members(Ownership { mark: Mark { epoch, owner: me }, refused });
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
                        return Ok(Owned { seen: self.seen, tenure, refusals, members, left_out });
                    }
                };
            }
        }
    }

    /// The members to open, and the others. If the store has lost records, all claimed members are
    /// opened: their superblocks know better.
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

    /// Swaps the record; while the store is away, until a signal.
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
            // It is given up only for a signal.
            StoreError::Unreachable(_) => Stop::Signal,
            error => Stop::Error(store_error(&error)),
        })
    }

    /// Waits until the present owner is gone. Without `--standby` an owner that lives is an error.
    fn wait_for_turn(&mut self) -> Result<(), Stop> {
        let mut last: Option<Record> = None;
        let mut since = Instant::now();
        loop {
            match self.seen.read() {
                // A store that is away says nothing about the owner.
                Err(StoreError::Unreachable(why)) if self.is_standby => {
                    self.say_once("store-away", &why);
                    last = None;
                }
                Err(error) => return Err(Stop::Error(store_error(&error))),
                Ok(()) => {
                    let record = self.seen.record().filter(|record| record.owner.is_some());
                    let Some(owned) = record.cloned() else { return Ok(()) };
                    if last.as_ref() != Some(&owned) {
                        if last.is_some() && !self.is_standby {
                            return Err(Stop::Error(served_elsewhere(&owned)));
                        }
                        if self.is_standby {
                            let words = format!("{} serves it, epoch {}", owned.host, owned.epoch);
                            self.say_once("standby", &words);
                        }
                        (last, since) = (Some(owned), Instant::now());
                    } else if since.elapsed() >= SILENCE {
                        return Ok(());
                    }
                }
            }
            self.pause(LOOK)?;
        }
    }

    fn pause(&self, time: Duration) -> Result<(), Stop> {
        if self.watch.has_ended(time) { Err(Stop::Signal) } else { Ok(()) }
    }

    /// An error, if it is time to give up.
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
        // A standby is ready for its service manager as soon as it stands by.
        let _ = braid_events::service::ready(&format!("{event}: {words}"));
        self.said = Some(words.to_owned());
    }

    /// The array of the members on the command line, for a first record.
    fn first(&mut self) -> Result<Basis, Stop> {
        loop {
            let found = devices::look(&self.server.members);
            if let Some(first) = first_of(&found, self.server)? {
                return Ok(first);
            }
            let words = "the members that answer cannot start the array; `braid examine` says why";
            self.say_once("waiting", words);
            self.goes_on(|| no_members(&self.server.members))?;
            self.pause(CLAIM_PAUSE)?;
        }
    }

    /// Claims members until there are enough.
    fn claim(
        &mut self,
        take_over: &mut TakeOver,
        (array, named): ([u8; 16], &[PathBuf]),
        refusals: &Refusals,
    ) -> Result<TakeOverStep, Stop> {
        self.claimed.clear();
        let (sender, answers) = channel();
        // A host that does not answer costs its own thread's time.
        let ask = |path: &PathBuf| {
            let (path, sender) = (path.clone(), sender.clone());
            thread::spawn(move || {
                let answer = answer(&path, array);
                // The claiming may be over.
                let _ = sender.send((path, answer));
            });
        };
        let mut asked: BTreeSet<PathBuf> =
            named.iter().inspect(|path| ask(path)).cloned().collect();
        let began = Instant::now();
        loop {
            match answers.recv_timeout(CLAIM_PAUSE) {
                Ok((_, Answer::OfAnotherArray)) => return Err(Stop::Error(several_arrays(named))),
                Ok((path, answer)) => {
                    asked.remove(&path);
                    if let Answer::Claimed(member) = answer {
                        take_over.claimed(key_of(&member));
                        self.claimed.insert(path, *member);
                    }
                }
                Err(_) => {
                    let is_idle = |path: &&PathBuf| {
                        !asked.contains(*path) && !self.claimed.contains_key(*path)
                    };
                    let again: Vec<PathBuf> = named.iter().filter(is_idle).cloned().collect();
                    again.iter().for_each(ask);
                    asked.extend(again);
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
            let is_over = asked.is_empty() || began.elapsed() >= CLAIM_GRACE;
            if is_over && take_over.has_enough(|set| of(set).is_ok()) {
                return match of(&take_over.usable()) {
                    Ok(array) if !has_intents(&array) => Err(Stop::Error(no_intents())),
                    _ => Ok(take_over.settle()),
                };
            }
            self.goes_on(|| too_few(self.claimed.len(), named))?;
            self.pause(Duration::ZERO)?;
        }
    }
}

/// The answer of a member's server to a claim.
enum Answer {
    Claimed(Box<MemberDevice>),
    No,
    /// It has another array's member, which was not claimed.
    OfAnotherArray,
}

/// Claims a member of this array. The member is read before, since a claim ends the owner of
/// whatever array it belongs to, and again after, when no older owner changes it any more.
fn answer(path: &Path, array: [u8; 16]) -> Answer {
    match devices::look_at(path) {
        None => Answer::No,
        Some(found) if found.superblock.array.uuid != array => Answer::OfAnotherArray,
        Some(_) => match braid_member::open(path, Access::ReadWrite) {
            Ok(claimed) => {
                drop(claimed);
                let found = devices::look_at(path).map(Box::new);
                found.map_or(Answer::No, Answer::Claimed)
            }
            Err(_) => Answer::No,
        },
    }
}

/// The array of these members; `None` if they cannot start it.
fn first_of(found: &[MemberDevice], server: &ServerConfig) -> Result<Option<Basis>, CliError> {
    let Some(first) = found.first() else { return Ok(None) };
    let array = first.superblock.array.uuid;
    if found.iter().any(|one| one.superblock.array.uuid != array) {
        return Err(several_arrays(&found.iter().map(|one| one.path.clone()).collect::<Vec<_>>()));
    }
    if found.iter().any(|one| one.superblock.device.uuid == [0; 16]) {
        let what = "superblocks of version 0.90 do not name their members";
        let error = CliError::new(Code::StoreUnusable, what);
        return Err(needs(error.because("the record says which members have all writes")));
    }
    let in_sync: BTreeSet<usize> = match assembled(found, server).array {
        Ok(array) if has_intents(&array) => array
            .slots
            .iter()
            .flatten()
            .filter(|one| one.is_in_sync())
            .map(|one| one.member)
            .collect(),
        Ok(_) => return Err(no_intents()),
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

fn has_intents(array: &AssembledArray) -> bool {
    array.bitmap.is_some() || array.geometry.lost_max() == 0
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

fn local_member(path: &Path) -> CliError {
    let what = format!("{} is a file or device of this host", path.display());
    let error = CliError::new(Code::StoreUnusable, what);
    let why = "with --store every member has a server, which refuses an older owner: braid member";
    needs(error.because(why))
}

/// Adds the remedy of all refusals that are about the conditions of `--store`.
fn needs(error: CliError) -> CliError {
    error.remedy(Risk::Look, "See what --store needs", "braid help B126")
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

fn no_intents() -> CliError {
    let what = "an array with an owner by a store needs a bitmap";
    let error = CliError::new(Code::StoreUnusable, what);
    let why = "the bits that an owner had set say which writes it may have left half done";
    needs(error.because(why))
}
