//! An array's problems, braid's reaction, and the operator's options: a pure function of the
//! array's state.
//!
//! Commands are complete, with the operator's own names, and this version supports each command.
//! The worst problem comes first.

use braid_control::model::{
    Advice, Array, Job, JobKind, JobResult, JobState, LeftOut, Slot, SlotState, State,
};

use super::words::{
    Manner, can_lose_words, doing_word, down_to_a_tenth, found_words, is_redundant, level_word,
    place_of, progress_words, sectors_words,
};
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;

/// Whether the array has no problem.
pub fn is_well(array: &Array) -> bool {
    advice(array, "", Manner::now()).is_empty()
}

/// All problems of an array; `word` is the operator's name for it, quoted for a command line.
pub fn advice(array: &Array, word: &str, manner: Manner) -> Vec<Advice> {
    let failure = failure(array, word);
    let slots = array.slots.iter().filter_map(|slot| of_slot(array, slot, word, manner));
    let replaced = array.slots.iter().filter_map(|slot| replacing(array, slot, word, manner));
    let bad = array.slots.iter().filter_map(|slot| bad_sectors(array, slot, word));
    let erring = array.slots.iter().filter_map(|slot| erring(array, slot, word));
    let slots = slots.chain(replaced).chain(bad).chain(erring);
    let all = failure.into_iter().chain(lost(array, word)).chain(slots);
    let all = all.chain(missing(array, word)).chain(dirty(array, word, manner));
    all.chain(found(array, word)).collect()
}

fn failure(array: &Array, word: &str) -> Option<Advice> {
    let failure = array.failure.as_ref()?;
    let (member, since, cause) = (&failure.member, clock(&failure.since), &failure.cause);
    let level = level_word(&array.level);
    let stop = format!("braid stop {word}");
    Some(if failure.out_of_space {
        Advice {
            problem: format!("no space is left below {member} since {since}: {cause}"),
            now: "writes are refused; flushed data is safe and readable".into(),
            what: "free space, then stop the array and serve it again:".into(),
            command: Some(stop),
        }
    } else if failure.write_protected {
        Advice {
            problem: format!("{member} is write-protected since {since}: {cause}"),
            now: "writes are refused; flushed data is safe and readable".into(),
            what:
                "make it writable again (a switch, a write blocker, `blockdev --setrw`, its file \
                 system), then stop the array and serve it again:"
                    .into(),
            command: Some(stop),
        }
    } else {
        Advice {
            problem: format!(
                "{member} failed too at {since}, more than {level} tolerates: {cause}"
            ),
            now: "writes are refused; data on the other members is readable".into(),
            what: "stop the array, reconnect its members, and look at them with `braid examine`:"
                .into(),
            command: Some(stop),
        }
    })
}

fn lost(array: &Array, word: &str) -> Option<Advice> {
    let lost = array.lost?;
    let bytes = format_size(lost.bytes);
    Some(Advice {
        problem: format!(
            "{bytes} in {} range(s) were acknowledged but could not be written",
            lost.ranges
        ),
        now: "reads of them fail, and every flush fails, so that no client takes them for safe"
            .into(),
        what: "let clients check their data, then stop the array and serve it again:".into(),
        command: Some(format!("braid stop {word}")),
    })
}

fn of_slot(array: &Array, slot: &Slot, word: &str, manner: Manner) -> Option<Advice> {
    let number = slot.slot?;
    let member = slot.member.as_deref().unwrap_or_default();
    let examine = format!("braid examine {}", shell_word(member));
    let because = slot.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    let at = slot.since.as_ref().map(|since| format!(" at {}", clock(since))).unwrap_or_default();
    match slot.state {
        // Other advice covers missing members, and the failed member that made the array refuse
        // writes.
        SlotState::Ok
        | SlotState::Waiting
        | SlotState::Missing
        | SlotState::Filling
        | SlotState::Replaced => None,
        SlotState::Failed if array.failure.as_ref().is_some_and(|last| last.member == member) => {
            None
        }
        SlotState::Away => Some(Advice {
            problem: format!("{member} (slot {number}) is away{at}{because}"),
            now: format!("it returns by itself when it answers; {}", from_others(array)),
            what: match slot.link {
                Some(_) => "check its server and the network; to give it up, add another:".into(),
                None => {
                    "check its cable and its disk; to give it up, add another in its place:".into()
                }
            },
            command: Some(format!("braid add {word} DEVICE")),
        }),
        SlotState::Failed => {
            let problem = format!("{member} (slot {number}) failed{at}{because}");
            let what =
                format!("add another in its place, or the same if it answers again ({examine}):");
            Some(empty(array, problem, word, &what, format!("braid add {word} DEVICE")))
        }
        SlotState::Recovering => Some(recovering(array, (number, member), word, manner)),
        SlotState::Slow => Some(Advice {
            problem: format!("{member} (slot {number}) is slow{at}{because}"),
            now: "reads avoid it until it answers like the others again".into(),
            what: "nothing now; a member that is slow repeatedly is about to fail".into(),
            command: None,
        }),
    }
}

/// Advice about slots without a member. `what` and `command` are the advised action if the array
/// has no spare.
fn empty(array: &Array, problem: String, word: &str, what: &str, command: String) -> Advice {
    let has_spare = array.has_spare();
    let others = from_others(array);
    if !has_spare || array.state == State::Failed {
        return Advice { problem, now: others, what: what.into(), command: Some(command) };
    }
    let (spare, what, command) = if array.read_only {
        let what = "stop the array, and serve it without --read-only:";
        (
            "a spare waits, because the array is served read-only",
            what,
            Some(format!("braid stop {word}")),
        )
    } else if array.jobs_paused {
        let resume = Some(format!("braid resume {word}"));
        ("a spare waits, because jobs are paused", "start the rebuild:", resume)
    } else {
        ("a spare is about to take its place", "nothing now", None)
    };
    Advice { problem, now: format!("{spare}; {others}"), what: what.into(), command }
}

fn recovering(array: &Array, (number, member): (u16, &str), word: &str, manner: Manner) -> Advice {
    let replaced = array.replaced.iter().rfind(|one| one.slot == Some(number));
    let problem = replaced.map(|out| {
        let gone = out.member.as_deref().unwrap_or_default();
        let at =
            out.since.as_ref().map(|since| format!(" at {}", clock(since))).unwrap_or_default();
        let because = out.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{gone} (slot {number}) failed{at}{because}")
    });
    let problem = problem
        .unwrap_or_else(|| format!("{member} (slot {number}) does not hold all its data yet"));
    let JobAdvice { now, what, command } =
        job_advice(array, JobKind::Recovery, &format!("rebuilding onto {member}"), word, manner);
    let lose = can_lose_words(array.can_lose);
    let unplug = replaced.and_then(|out| out.member.as_deref()).filter(|_| command.is_none());
    let what = match unplug {
        Some(gone) => format!("{what}; {gone} can be unplugged"),
        None => what,
    };
    Advice { problem, now: format!("{now}; {} {lose} until then", array.name), what, command }
}

/// Advice about a member with more read errors than allowed and without a replacement.
fn erring(array: &Array, row: &Slot, word: &str) -> Option<Advice> {
    let (member, errors) = (row.member.as_deref()?, row.read_errors);
    let is_replaced =
        array.slots.iter().any(|slot| slot.replaces.is_some() && slot.replaces == row.slot);
    if !errors.over_limit || is_replaced {
        return None;
    }
    let problem = format!(
        "{member} (slot {}) errs repeatedly: {} read errors lately",
        place_of(row),
        errors.recent
    );
    let now = "all were corrected from the others; such a disk often fails soon".into();
    let waits = |slot: &&Slot| slot.state == SlotState::Waiting && slot.replaces.is_none();
    let spare = array.slots.iter().find(waits).and_then(|slot| slot.member.as_deref());
    let does_so = array.settings.get("on-read-errors") != Some(&"warn".into());
    let (what, command) = match spare {
        Some(spare) => {
            let names = (shell_word(member), shell_word(spare));
            (
                "copy it to the spare:",
                format!("braid replace {word} {} --with {}", names.0, names.1),
            )
        }
        None if does_so => (
            "add a spare; braid then copies the member to it:",
            format!("braid spare {word} DEVICE"),
        ),
        None => {
            let member = shell_word(member);
            ("copy it to another device:", format!("braid replace {word} {member} --with DEVICE"))
        }
    };
    Some(Advice { problem, now, what: what.into(), command: Some(command) })
}

fn bad_sectors(array: &Array, row: &Slot, word: &str) -> Option<Advice> {
    let (member, sectors) = (row.member.as_deref()?, row.bad_sectors);
    if sectors == 0 {
        return None;
    }
    let place = place_of(row);
    let problem =
        format!("{} of {member} (slot {place}) have no valid data", sectors_words(sectors));
    let now = if is_redundant(array) {
        "they are computed from the others where these are readable; elsewhere reads fail until \
         they are rewritten"
    } else {
        "reads of them fail until they are rewritten"
    };
    // A check rewrites logged sectors whose content other members have, and a second check
    // (`--retry-bad`) reads the others. Sectors that are then still in the log are lost.
    let last = array.last_job(JobKind::Check).filter(|check| check.named_sectors > 0);
    let next = match last {
        _ if !is_redundant(array) => None,
        None => {
            let what = "rewrite them from the others:";
            Some((what, format!("braid check {word}")))
        }
        // The bad-block log may be wrong: md has copied entries from member to member.
        Some(check) if !check.found.retries_bad => {
            let what = "read them anyway, and drop those from the log that agree with the others:";
            Some((what, format!("braid check {word} --retry-bad")))
        }
        Some(_) => None,
    };
    if let Some((what, command)) = next {
        let (now, what, command) = (now.into(), what.into(), Some(command));
        return Some(Advice { problem, now, what, command });
    }
    let what = match array.level.as_str() {
        "raid4" | "raid5" | "raid6" => {
            "rewrite the unreadable data from clients, in full stripes; the bad-block log lists \
             the sectors:"
        }
        _ => "rewrite the unreadable data from clients; the bad-block log lists the sectors:",
    };
    let command = Some(format!("braid examine {}", shell_word(member)));
    Some(Advice { problem, now: now.into(), what: what.into(), command })
}

/// Advice about a replacement, and about the member that serves until it is complete.
fn replacing(array: &Array, row: &Slot, word: &str, manner: Manner) -> Option<Advice> {
    let number = row.replaces?;
    let member = row.member.as_deref().unwrap_or_default();
    let old = array.slots.iter().find(|slot| slot.slot == Some(number));
    let old = old.and_then(|slot| slot.member.as_deref()).unwrap_or_default();
    let doing = format!("copying it to {member}");
    let JobAdvice { now, what, command } =
        job_advice(array, JobKind::Replace, &doing, word, manner);
    let problem = format!("{old} (slot {number}) is being replaced");
    let now = format!("{now}; {old} serves until then");
    Some(Advice { problem, now, what, command })
}

struct JobAdvice {
    now: String,
    what: String,
    command: Option<String>,
}

/// The state of a job that the array needs; `doing` is the job's name for people.
fn job_advice(array: &Array, kind: JobKind, doing: &str, word: &str, manner: Manner) -> JobAdvice {
    let nothing = "nothing now; it goes on by itself";
    let with = |now: String, what: &str, command: Option<String>| JobAdvice {
        now,
        what: what.to_owned(),
        command,
    };
    let resume = || Some(format!("braid resume {word}"));
    match array.job(kind) {
        Some(job) if job.state == JobState::Paused => {
            let percent = down_to_a_tenth(job.percent);
            let now = format!("{doing} is paused at {percent:.1} %");
            return with(now, "resume it:", resume());
        }
        Some(job) => {
            let now = format!("{doing}  {}", progress_words(job, manner));
            return with(now, nothing, None);
        }
        None => {}
    }
    if array.read_only {
        let what = "stop the array, and serve it without --read-only:";
        return with(
            format!("{doing} does not begin, because the array is served read-only"),
            what,
            Some(format!("braid stop {word}")),
        );
    }
    if array.jobs_paused {
        return with(
            format!("{doing} does not begin, because jobs are paused"),
            "start it:",
            resume(),
        );
    }
    if let Some(last) = array.refused(kind) {
        let again = Some(format!("braid rebuild {word}"));
        let at = format_size(last.done_bytes);
        return if last.result == JobResult::Unreadable {
            let now = format!(
                "{doing} ended at {at}, where more is unreadable than the level tolerates, and \
                 the new member's bad-block log has no room; finished work remains"
            );
            with(
                now,
                "save the readable data; if the members become readable again, try again:",
                again,
            )
        } else {
            let now = format!("{doing} ended at {at}: no space is left below a member");
            with(now, "free space, then try again:", again)
        };
    }
    match array.jobs.iter().find(|job| job.state != JobState::Waiting) {
        Some(Job { kind: first, .. }) => {
            let now = format!("{doing} begins when {} is over", doing_word(*first));
            with(now, nothing, None)
        }
        None => with(format!("{doing} is about to begin"), nothing, None),
    }
}

/// Advice about slots that have had no member since the array's start, or since a member's removal.
/// A member that was left out of a take-over returns by itself, and its slot is known only then.
fn missing(array: &Array, word: &str) -> Vec<Advice> {
    let missing = || array.slots.iter().filter(|slot| slot.state == SlotState::Missing);
    let never: Vec<String> = missing()
        .filter(|slot| slot.since.is_none())
        .filter_map(|slot| slot.slot)
        .map(|number| number.to_string())
        .collect();
    let gone = missing().filter_map(|slot| {
        let (number, since, cause) = (slot.slot?, slot.since.as_ref()?, slot.cause.as_ref()?);
        Some(format!("slot {number} has no member: {cause} at {}", clock(since)))
    });
    let (count, numbers) = (never.len(), never.join(", "));
    let slots = match count {
        1 => format!("slot {numbers} has had no member since {} was started", array.name),
        _ => format!("slots {numbers} have had no member since {} was started", array.name),
    };
    // A spare takes an empty slot at once. A member that returns later waits as a spare.
    let left_out = if array.has_spare() { &[] } else { &array.left_out[..] };
    let lost = count.saturating_sub(left_out.len());
    let returns = left_out.len().min(count);
    let never = match (lost, returns) {
        (0, _) => None,
        (_, 0) => Some(slots.clone()),
        (_, 1) => Some(format!("{slots}; one of them gets its member back when that answers")),
        _ => Some(format!("{slots}; {returns} of them get their members back when these answer")),
    };
    let problems: Vec<String> = gone.chain(never).collect();
    let what = match (lost, returns) {
        (0, _) | (_, 0) => "add a device, or the missing member; braid rebuilds it:",
        _ => "add a device for each of the others; braid rebuilds them:",
    };
    let command = format!("braid add {word} DEVICE");
    let for_good = || empty(array, problems.join("; "), word, what, command.clone());
    let mut all: Vec<Advice> = (!problems.is_empty()).then(for_good).into_iter().collect();
    if returns > 0 {
        let slots = if lost == 0 { format!("{slots}: ") } else { String::new() };
        all.push(returning(array, left_out, &slots, command));
    }
    all
}

/// Advice about members that were left out of a take-over.
fn returning(array: &Array, left_out: &[LeftOut], slots: &str, command: String) -> Advice {
    let one = |one: &LeftOut| match (&one.cause, one.answers) {
        (None, _) => format!("{} was left out of the take-over", one.member),
        (Some(cause), false) => format!("{} does not answer ({cause})", one.member),
        (Some(cause), true) => format!("{} answers and is not taken in: {cause}", one.member),
    };
    let words: Vec<String> = left_out.iter().map(one).collect();
    let problem = format!("{slots}{}", words.join("; "));
    let others = from_others(array);
    let refused = left_out.iter().find(|one| one.answers);
    let (now, what) = match (refused, left_out.len()) {
        (Some(refused), _) => {
            let examine = format!("braid examine {}", shell_word(&refused.member));
            let now = "braid tries again every few seconds".to_owned();
            (now, format!("mend the cause ({examine}), or add another in its place:"))
        }
        (None, 1) => (
            "it is taken in and recovered by itself when its server answers".to_owned(),
            "check its host, `braid member` there, and the network; to give it up, add another:"
                .to_owned(),
        ),
        (None, _) => (
            "each is taken in and recovered by itself when its server answers".to_owned(),
            "check their hosts, `braid member` there, and the network; to give one up, add \
             another:"
                .to_owned(),
        ),
    };
    let now = if array.state == State::Failed { others } else { format!("{now}; {others}") };
    Advice { problem, now, what, command: Some(command) }
}

/// How the array reads the content of members that are out, and how many more it can lose.
fn from_others(array: &Array) -> String {
    let lose = can_lose_words(array.can_lose);
    match array.state {
        State::Failed => "more is lost than the level tolerates".to_owned(),
        _ => format!("its data is served from the others; {} {lose}", array.name),
    }
}

fn dirty(array: &Array, word: &str, manner: Manner) -> Option<Advice> {
    if !array.dirty {
        return None;
    }
    let until = if array.parity_in_doubt {
        "until then braid computes no data from doubtful parity: the array cannot lose a member"
    } else if array.copies_in_doubt {
        "copies may differ where a write was interrupted, and data read there may change when a \
         member is lost"
    } else {
        "until then its redundancy may be wrong in places"
    };
    let JobAdvice { now, what, command } =
        job_advice(array, JobKind::Resync, "resyncing", word, manner);
    Some(Advice {
        problem: format!("{} was interrupted while writing, or has never been synced", array.name),
        now: format!("{now}; {until}"),
        what,
        command,
    })
}

fn found(array: &Array, word: &str) -> Option<Advice> {
    let last = array.last_job(JobKind::Check)?;
    // A running check reports anew, so the findings of the last check need no advice.
    let is_so = last.differing_sectors > 0
        && !last.found.is_repaired()
        && array.job(JobKind::Check).is_none();
    if is_so && last.found.located_sectors > last.found.repaired_sectors {
        return Some(Advice {
            problem: format!(
                "{} did not agree in the check at {}: {}",
                sectors_words(last.differing_sectors),
                clock(&last.ended),
                found_words(last)
            ),
            now: "reads return the members' data unchanged".into(),
            what: "rewrite the sectors that are known to be wrong from the others:".into(),
            command: Some(format!("braid check {word} --repair")),
        });
    }
    is_so.then(|| Advice {
        problem: format!(
            "{} of redundancy did not agree with the data in the check at {}",
            sectors_words(last.differing_sectors),
            clock(&last.ended)
        ),
        now: "reads return the members' data unchanged; nothing was written".into(),
        what: "let clients check their data, then check again:".into(),
        command: Some(format!("braid check {word}")),
    })
}

/// The time of day in a time stamp, as in `14:02:11 UTC`; any other text stays unchanged.
pub fn clock(moment: &str) -> String {
    let time = moment.split_once('T').and_then(|(_, time)| time.strip_suffix('Z'));
    time.map_or_else(|| moment.to_owned(), |time| format!("{time} UTC"))
}
