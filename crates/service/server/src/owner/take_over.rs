//! Takes an array over: watches the record, swaps it, claims members.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use braid_assembly::{Options, ProbedMember, assemble};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::devices::{self, MemberDevice};
use braid_member::{Access, Ownership, is_uri, own_members};
use braid_ownership::{
    Mark, MemberKey, OwnerId, Record, RecordedMember, TakeOver, TakeOverStep, Tenure,
};
use braid_store::StoreError;
use serde_json::json;

use super::super::config::{OwnerConfig, ServerConfig};
use super::super::wait::Watch;
use super::ending::{LEASE, LEASE_MARGIN, LOOK, Refusals, SILENCE, store_error};
use super::swap::Seen;

/// How long a server that is no standby waits for members that do not answer.
const CLAIM_PATIENCE: Duration = Duration::from_secs(15);
/// The pause between two rounds of claims.
const CLAIM_PAUSE: Duration = Duration::from_millis(250);

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
    let mut seen = Seen::new(store);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let away = |error: &StoreError| errln!("{error}; trying again");
    let mut said = None;
    let patience = (!config.is_standby).then(|| Instant::now() + CLAIM_PATIENCE);
    loop {
        if !wait_for_turn(&mut seen, config, (watch, globals), &mut said)? {
            return Ok(None);
        }
        // The record names the members, too: a standby needs none on its command line.
        let known = seen.record().map_or_else(Vec::new, |record| record.members.clone());
        let of_record = known.iter().map(|one| PathBuf::from(&one.address));
        let named =
            if server.members.is_empty() { of_record.collect() } else { server.members.clone() };
        let found = devices::look(&named);
        let Some((array, members)) = members_of(&found, server)? else {
            let words = "the members that answer cannot start the array; `braid examine` says why";
            say_once(&mut said, globals, ("waiting", words));
            pause_or_fail(patience, || no_members(&named))?;
            continue;
        };
        let record = seen.record().cloned();
        // New in each attempt: a restored store may give out an epoch again.
        let me = OwnerId(*uuid::Uuid::new_v4().as_bytes());
        let begun = TakeOver::begin((me, &host), array, members, record);
        let (mut take_over, mut step) =
            begun.map_err(|error| needs(CliError::new(Code::StoreUnusable, error.to_string())))?;
        let mut refusals = Refusals::default();
        loop {
            step = match step {
                TakeOverStep::Swap { to, .. } => {
                    let swapped = seen.swap(&to, &away).map_err(|error| store_error(&error))?;
                    take_over.swapped(swapped)
                }
                TakeOverStep::Claim { epoch } => {
                    refusals = Refusals::default();
                    let told = refusals.clone();
                    let refused = Box::new(move |mark| told.take(mark));
                    own_members(Ownership { mark: Mark { epoch, owner: me }, refused });
                    claim(&mut take_over, (&named, server), &refusals, patience)?
                }
                TakeOverStep::GiveWay { .. } => break,
                TakeOverStep::Serve { record, waits_for_lease } => {
                    if waits_for_lease {
                        thread::sleep(LEASE + LEASE_MARGIN);
                    }
                    let is_believed = !take_over.store_went_back();
                    return Ok(Some(owned(seen, (me, record), refusals, (&named, is_believed))));
                }
            };
        }
    }
}

/// The members to open: those in sync by the record; or all, if the store has lost records, since
/// then their superblocks know better.
fn owned(
    seen: Seen,
    (me, record): (OwnerId, Record),
    refusals: Refusals,
    (named, is_believed): (&[PathBuf], bool),
) -> Owned {
    let in_sync = record.in_sync();
    // Members are claimed by this process, so that no other has written them since.
    let found = devices::look(named);
    let counts = |one: &MemberDevice| !is_believed || in_sync.contains(&key_of(one));
    let is_used = |path: &PathBuf| found.iter().any(|one| one.path == *path && counts(one));
    let (members, left_out) = named.iter().cloned().partition(is_used);
    Owned { seen, tenure: Tenure::new(me, record), refusals, members, left_out }
}

/// Waits until the present owner is gone; false if a signal came first. Without `--standby` an
/// owner that lives is an error.
fn wait_for_turn(
    seen: &mut Seen,
    config: &OwnerConfig,
    (watch, globals): (&Watch, &Globals),
    said: &mut Option<String>,
) -> Result<bool, CliError> {
    let mut last: Option<Record> = None;
    let mut since = Instant::now();
    loop {
        match seen.read() {
            Ok(_) => {}
            // A store that is away says nothing about the owner.
            Err(StoreError::Unreachable(why)) if config.is_standby => {
                say_once(said, globals, ("store-away", &why));
                since = Instant::now();
                last = None;
            }
            Err(error) => return Err(store_error(&error)),
        }
        let record = seen.record();
        let Some(owned) = record.filter(|record| record.owner.is_some()) else { return Ok(true) };
        if last.as_ref() == Some(owned) {
            if since.elapsed() >= SILENCE {
                return Ok(true);
            }
        } else {
            if last.is_some() && !config.is_standby {
                return Err(served_elsewhere(owned));
            }
            if config.is_standby {
                let words = format!("{} serves it, epoch {}", owned.host, owned.epoch);
                say_once(said, globals, ("standby", &words));
            }
            last = Some(owned.clone());
            since = Instant::now();
        }
        if watch.has_ended(LOOK) {
            return Ok(false);
        }
    }
}

fn say_once(said: &mut Option<String>, globals: &Globals, (event, words): (&str, &str)) {
    if said.as_deref() == Some(words) {
        return;
    }
    match globals.json {
        true => outjson!(&json!({ "event": event, "text": words })),
        false => outln!("{event}: {words}"),
    }
    // A standby is ready for its service manager as soon as it stands by.
    let _ = braid_events::service::ready(&format!("{event}: {words}"));
    *said = Some(words.to_owned());
}

/// The UUID of an array, and its members for a first record.
type ArrayMembers = ([u8; 16], Vec<RecordedMember>);

/// The array of these members; `None` if they cannot start it.
fn members_of(
    found: &[MemberDevice],
    server: &ServerConfig,
) -> Result<Option<ArrayMembers>, CliError> {
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
    Ok(Some((array, found.iter().enumerate().map(member).collect())))
}

fn has_intents(array: &braid_assembly::AssembledArray) -> bool {
    array.bitmap.is_some() || array.geometry.lost_max() == 0
}

fn assembled(found: &[MemberDevice], server: &ServerConfig) -> braid_assembly::Assembly {
    let probed: Vec<ProbedMember> = found.iter().map(|one| one.probed.clone()).collect();
    assemble(&probed, &Options { read_only: false, ..server.assembly.clone() })
}

fn key_of(member: &MemberDevice) -> MemberKey {
    MemberKey(member.superblock.device.uuid)
}

/// Claims members until there are enough.
fn claim(
    take_over: &mut TakeOver,
    (named, server): (&[PathBuf], &ServerConfig),
    refusals: &Refusals,
    patience: Option<Instant>,
) -> Result<TakeOverStep, CliError> {
    let mut claimed: BTreeMap<PathBuf, MemberDevice> = BTreeMap::new();
    loop {
        let open = |path: &PathBuf| braid_member::open(path, Access::ReadWrite).is_ok();
        let missing: Vec<&PathBuf> =
            named.iter().filter(|path| !claimed.contains_key(*path)).collect();
        // A host that does not answer costs its own thread's time.
        let opened: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> =
                missing.iter().map(|path| scope.spawn(move || open(path))).collect();
            threads.into_iter().map(|one| one.join().expect("opening does not panic")).collect()
        });
        if let Some(mark) = refusals.latest()
            && let Some(step) = take_over.refused(mark.epoch)
        {
            return Ok(step);
        }
        for (path, _) in missing.into_iter().zip(opened).filter(|(_, is_open)| *is_open) {
            // Read after the claim: no older owner changes it any more.
            if let Some(member) = devices::look_at(path) {
                take_over.claimed(key_of(&member));
                claimed.insert(path.clone(), member);
            }
        }
        let can_run = |set: &BTreeSet<MemberKey>| {
            let chosen = claimed.values().filter(|one| set.contains(&key_of(one)));
            let probed: Vec<ProbedMember> = chosen.map(|one| one.probed.clone()).collect();
            !probed.is_empty() && assemble(&probed, &server.assembly).array.is_ok()
        };
        // One round reaches all members that answer; those that do not are given up.
        if take_over.has_enough(can_run) {
            return Ok(take_over.settle());
        }
        pause_or_fail(patience, || too_few(claimed.len(), named))?;
    }
}

fn pause_or_fail(patience: Option<Instant>, error: impl Fn() -> CliError) -> Result<(), CliError> {
    if patience.is_some_and(|until| until < Instant::now()) {
        return Err(error());
    }
    thread::sleep(CLAIM_PAUSE);
    Ok(())
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
