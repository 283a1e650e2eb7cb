//! `braid add`, `spare`, `fail`, `remove` and `replace`: change the members of a running array.
//!
//! The server probes devices, decides on the request and changes the array. These commands make
//! paths absolute, because the server may run in another folder. They return at once; `braid wait`
//! waits for a rebuild.

mod open_descriptors;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use braid_control::model::{
    MemberChanged, MemberEffect, MemberRequest, MembersAnswer, MembersWanted,
};
use braid_geometry::SECTOR_BYTES;

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_discovery::running::{self, RunningArray, unanswered};
use braid_discovery::status::words::can_lose_words;

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    join: JoinArgs,
    /// The device becomes the write journal: it gets every write, durably, before the members do.
    #[arg(long)]
    write_journal: bool,
    /// The devices become write-mostly, as with mdadm: reads use them only if no other copy is
    /// available. For slow or distant ones (raid1, raid10).
    #[arg(long, conflicts_with = "write_journal")]
    write_mostly: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct JoinArgs {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Files or block devices.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// Name of a thing on the devices that may be destroyed; once for each.
    #[arg(long, value_name = "NAME")]
    destroy: Vec<String>,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FailArgs {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// The member, by slot number or path.
    #[arg(value_name = "SLOT|DEVICE")]
    member: PathBuf,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// The member, by slot number or path; `failed`: all failed members; `detached`: the failed
    /// members whose devices are gone.
    #[arg(value_name = "SLOT|DEVICE")]
    member: PathBuf,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplaceArgs {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// The member to replace, by slot number or path.
    #[arg(value_name = "SLOT|DEVICE")]
    member: PathBuf,
    /// The file or block device that takes its place; without it, a spare.
    #[arg(long, value_name = "DEVICE")]
    with: Option<PathBuf>,
    /// Name of a thing on the device that may be destroyed; once for each.
    #[arg(long, value_name = "NAME")]
    destroy: Vec<String>,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// Words that select members by their state.
const MANY: [&str; 2] = ["failed", "detached"];

pub(crate) fn add(args: &AddArgs, globals: &Globals) -> Result<Exit, CliError> {
    let request = if args.write_journal { MemberRequest::Journal } else { MemberRequest::Add };
    join(&args.join, (request, args.write_mostly), globals)
}

pub(crate) fn spare(args: &JoinArgs, globals: &Globals) -> Result<Exit, CliError> {
    join(args, (MemberRequest::Spare, false), globals)
}

/// `braid set NAME write-mostly=...`: makes exactly these members write-mostly. Members are given
/// as slots or paths with commas between them, or `none`.
pub(crate) fn set_write_mostly(
    array: &str,
    members: &str,
    dry_run: bool,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let running = running::find(array)?;
    let words = members.split(',').filter(|_| members != "none");
    let members = words.map(|word| member(Path::new(word), &[])).collect::<Result<_, _>>()?;
    let answer = ask(&running, &of_one(MemberRequest::WriteMostly, members), dry_run)?;
    tell(&answer, globals, || read_last(&answer));
    Ok(Exit::Done)
}

/// The answer about changed write-mostly marks, in words.
fn read_last(answer: &MembersAnswer) -> String {
    if answer.members.is_empty() {
        return "nothing to change: it is set so already".to_owned();
    }
    let line = |one: &MemberChanged| {
        let is = if answer.dry_run { "would be" } else { "is" };
        match one.effect {
            MemberEffect::WriteMostly => {
                format!(
                    "{} {is} read only if no other copy is available (write-mostly)",
                    with_slot(one)
                )
            }
            _ => format!("{} {is} read like the others", with_slot(one)),
        }
    };
    answer.members.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn join(
    args: &JoinArgs,
    (request, write_mostly): (MemberRequest, bool),
    globals: &Globals,
) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let members = args.devices.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?;
    let destroy = args.destroy.clone();
    let wanted = MembersWanted { destroy, write_mostly, ..of_one(request, members) };
    let answer = ask(&running, &wanted, args.dry_run)?;
    tell(&answer, globals, || joined(&answer, &running.word(&[])));
    Ok(Exit::Done)
}

pub(crate) fn fail(args: &FailArgs, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let members = vec![member(&args.member, &[])?];
    let wanted = of_one(MemberRequest::Fail, members);
    let answer = ask(&running, &wanted, args.dry_run)?;
    tell(&answer, globals, || failed(&answer, &running.word(&[])));
    Ok(Exit::Done)
}

pub(crate) fn remove(args: &RemoveArgs, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let members = vec![member(&args.member, &MANY)?];
    let wanted = of_one(MemberRequest::Remove, members);
    let answer = ask(&running, &wanted, args.dry_run)?;
    tell(&answer, globals, || removed(&answer, &running.word(&[])));
    Ok(Exit::Done)
}

/// The body of a request that names these devices.
pub(super) fn wanted(
    request: MemberRequest,
    devices: &[PathBuf],
    destroy: &[String],
) -> Result<MembersWanted, CliError> {
    let members = devices.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?;
    Ok(MembersWanted { destroy: destroy.to_vec(), ..of_one(request, members) })
}

fn of_one(request: MemberRequest, members: Vec<String>) -> MembersWanted {
    let (destroy, descriptors) = (Vec::new(), Vec::new());
    let write_mostly = false;
    MembersWanted { request, members, with: None, destroy, write_mostly, descriptors }
}

pub(crate) fn replace(args: &ReplaceArgs, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let wanted = MembersWanted {
        with: args.with.as_deref().map(absolute).transpose()?,
        destroy: args.destroy.clone(),
        ..of_one(MemberRequest::Replace, vec![member(&args.member, &[])?])
    };
    let answer = ask(&running, &wanted, args.dry_run)?;
    let old = args.member.display().to_string();
    tell(&answer, globals, || replaced(&answer, &old, &running.word(&[])));
    Ok(Exit::Done)
}

fn ask(
    running: &RunningArray,
    wanted: &MembersWanted,
    dry_run: bool,
) -> Result<MembersAnswer, CliError> {
    let target = if dry_run { "/v1/members?dry_run=true" } else { "/v1/members" };
    // A server confined without file access gets open descriptors instead of paths.
    let opens = running.array.confined.iter().any(|closed| closed == "files");
    let handed = if opens {
        open_descriptors::open_all(wanted)
    } else {
        open_descriptors::OpenDescriptors::default()
    };
    let wanted = MembersWanted { descriptors: handed.counts.clone(), ..wanted.clone() };
    let descriptors: Vec<_> = handed.descriptors.iter().map(AsFd::as_fd).collect();
    let answer = running.client().post_passing::<MembersAnswer>(target, &wanted, &descriptors);
    let answer = answer.map_err(|error| unanswered(&running.control, &error));
    // The error of opening the device in this process says more than the server's refusal.
    answer.map_err(|error| match handed.why {
        Some(why) if error.code() == Code::FilesClosed => why,
        _ => error,
    })
}

/// A path in the form that is sent to the server.
fn absolute(path: &Path) -> Result<String, CliError> {
    let absolute = braid_member::absolute(path);
    let label = path.display().to_string();
    absolute.into_os_string().into_string().map_err(|_| {
        let what = format!("the path {label} is not UTF-8");
        let error = CliError::new(Code::Usage, what).about(label);
        let error = error.because("requests to a server are UTF-8");
        error.remedy(
            Risk::Change,
            "Name it by a link in UTF-8; first make the link",
            "ln -s PATH NAME",
        )
    })
}

/// A member in the form that is sent to the server: a slot number, one of `words`, or a path.
fn member(path: &Path, words: &[&str]) -> Result<String, CliError> {
    let text = path.to_str().unwrap_or_default();
    let is_number = !text.is_empty() && text.chars().all(|sign| sign.is_ascii_digit());
    if is_number || words.contains(&text) {
        return Ok(text.to_owned());
    }
    absolute(path)
}

fn tell(answer: &MembersAnswer, globals: &Globals, words: impl FnOnce() -> String) {
    if globals.json {
        outjson!(&serde_json::to_value(answer).expect("it is made of text and numbers"));
    } else {
        // The lines contain commands with device names, so they are made printable.
        words().lines().for_each(|line| outln!("{}", printable(line)));
    }
}

/// The answer to an added device, in words.
fn joined(answer: &MembersAnswer, word: &str) -> String {
    let name = printable(&answer.name).into_owned();
    let mut lines: Vec<String> = Vec::new();
    let verb = if answer.dry_run { "would add" } else { "added" };
    let has = |effect| answer.members.iter().any(|one| one.effect == effect);
    for one in &answer.members {
        let label = printable(&one.member);
        let what = match (one.effect, answer.jobs_paused) {
            (MemberEffect::Rebuilds, false) => "takes a free slot, and is rebuilt",
            (MemberEffect::Rebuilds, true) => "is rebuilt once jobs are resumed",
            (MemberEffect::CatchesUp, false) => "takes its slot again (re-add), and catches up",
            (MemberEffect::CatchesUp, true) => "catches up (re-add) once jobs are resumed",
            (MemberEffect::Journals, _) if answer.dry_run => "would have the write journal",
            (MemberEffect::Journals, _) => "has the write journal from now on",
            _ => "waits as a spare: no slot is free",
        };
        lines.push(format!("{verb} {label} to {name}: it {what}"));
        if one.effect == MemberEffect::CatchesUp {
            let kept = format_size(one.kept_sectors * SECTOR_BYTES);
            lines.push(format!("  it keeps {kept}; changes while it was away are rebuilt"));
        } else if one.returns {
            let was = "it was a member before: its data may be old, and is overwritten";
            lines.push(format!("  {was}"));
        }
    }
    lines.extend(destroyed(answer));
    if answer.dry_run {
        return lines.join("\n");
    }
    let mut next: Vec<(&str, String)> = Vec::new();
    let recovers = has(MemberEffect::Rebuilds) || has(MemberEffect::CatchesUp);
    if recovers && answer.jobs_paused {
        next.push(("start the rebuild", format!("braid resume {word}")));
    } else if recovers {
        next.push(("see its progress", format!("braid status {word}")));
        next.push(("wait for the end", format!("braid wait {word} --for rebuild")));
    }
    if answer.free_slots > 0 {
        let count = answer.free_slots;
        lines.push(format!("  {count} slot(s) of {name} are still without a member"));
    }
    lines.extend(next.iter().map(|(label, command)| format!("  {label}:  {command}")));
    lines.push(NAME_IT.to_owned());
    lines.join("\n")
}

/// The advice for an array that is served from a list of its members.
const NAME_IT: &str = "  name it from now on when serving the array: braid serve, or its unit";

/// Destroyed contents of the devices, and the file that has the saved ends of the devices.
fn destroyed(answer: &MembersAnswer) -> Vec<String> {
    let gone = if answer.dry_run { "would be destroyed" } else { "was destroyed" };
    let things = answer.destroyed.iter().map(|thing| format!("  {}  {gone}", printable(thing)));
    let saved = answer.saved_in.as_ref();
    let saved = saved.map(|dir| format!("  first and last bytes saved in {}", printable(dir)));
    things.chain(saved).collect()
}

/// The answer about a member that is to be replaced, in words.
fn replaced(answer: &MembersAnswer, old: &str, word: &str) -> String {
    let name = printable(&answer.name);
    let Some(one) = answer.members.first() else { return format!("{name} was not changed") };
    let slot = one.slot.map(|slot| slot.to_string()).unwrap_or_default();
    let old = match old.parse::<u16>() {
        Ok(_) => "the member there".to_owned(),
        Err(_) => printable(old).into_owned(),
    };
    let label = printable(&one.member);
    let verb = if answer.dry_run { "would take" } else { "takes" };
    let first =
        format!("{label} {verb} slot {slot} of {name} after the copy; until then {old} serves");
    let mut lines = vec![first];
    lines.extend(destroyed(answer));
    if answer.dry_run {
        return lines.join("\n");
    }
    if answer.jobs_paused {
        lines.push(format!("  start the copy:  braid resume {word}"));
    } else {
        lines.push(format!("  see its progress:  braid status {word}"));
        lines.push(format!("  wait for the end:  braid wait {word} --for rebuild"));
    }
    lines.push(NAME_IT.to_owned());
    lines.join("\n")
}

fn with_slot(one: &MemberChanged) -> String {
    let slot = one.slot.map(|slot| format!(" (slot {slot})")).unwrap_or_default();
    format!("{}{slot}", printable(&one.member))
}

/// The answer about a failed member, in words.
fn failed(answer: &MembersAnswer, word: &str) -> String {
    let name = printable(&answer.name);
    let Some(one) = answer.members.first() else { return format!("{name} was not changed") };
    let (label, who) = (shell_word(&one.member), with_slot(one));
    let remove = format!("  remove it:  braid remove {word} {label}");
    if one.effect == MemberEffect::Nothing {
        return format!("{who} has failed already\n{remove}");
    }
    let lose = can_lose_words(answer.can_lose);
    if answer.dry_run {
        return format!("would fail {who}; {name} {lose} then");
    }
    let mut lines = vec![format!("{who} failed and is out of {name}, which {lose}")];
    match (one.slot, answer.spares, answer.jobs_paused) {
        (None, ..) => {}
        (_, 0, _) if answer.free_slots > 0 => {
            lines.push(format!("  add another in its place:  braid add {word} DEVICE"));
        }
        (_, 1.., true) => {
            lines.push(format!("  a spare waits; start the rebuild:  braid resume {word}"));
        }
        // A spare is waiting, or has taken the failed member's slot meanwhile.
        _ => {
            lines.push("  a spare takes its place by itself, and is rebuilt".to_owned());
            lines.push(format!("  wait for the end:  braid wait {word} --for rebuild"));
        }
    }
    lines.push(remove);
    lines.join("\n")
}

/// The answer about removed members, in words.
fn removed(answer: &MembersAnswer, word: &str) -> String {
    let name = printable(&answer.name);
    if answer.members.is_empty() {
        return format!("{name} has no such member: there is nothing to remove");
    }
    let verb = if answer.dry_run { "would remove" } else { "removed" };
    let line = |one: &MemberChanged| format!("{verb} {} from {name}: it is free", with_slot(one));
    let mut lines: Vec<String> = answer.members.iter().map(line).collect();
    if answer.dry_run {
        return lines.join("\n").replace(": it is free", "");
    }
    if answer.free_slots > 0 {
        lines.push(format!("  add another in its place:  braid add {word} DEVICE"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use braid_control::model::VERSION;

    use super::*;

    fn answer(request: MemberRequest, effect: MemberEffect) -> MembersAnswer {
        let member = MemberChanged {
            member: "/dev/sdc".into(),
            slot: Some(1),
            effect,
            returns: false,
            kept_sectors: 0,
        };
        MembersAnswer {
            version: VERSION,
            name: "tank".into(),
            uuid: "a:b".into(),
            request,
            members: vec![member],
            destroyed: Vec::new(),
            saved_in: None,
            can_lose: 0,
            free_slots: 0,
            spares: 0,
            jobs_paused: false,
            dry_run: false,
        }
    }

    #[test]
    fn a_word_of_digits_is_a_slot_and_anything_else_a_path() {
        let sent = |word: &str| member(Path::new(word), &MANY).expect("text");
        assert_eq!((sent("3").as_str(), sent("failed").as_str()), ("3", "failed"));
        assert_eq!(sent("/dev/sdc"), "/dev/sdc");
        for word in ["./3", "3a", "failed2"] {
            assert!(sent(word).starts_with('/'), "{word}");
        }
        assert!(member(Path::new("failed"), &[]).expect("text").starts_with('/'));
    }

    #[test]
    fn what_is_added_says_whether_it_is_rebuilt_and_how_to_see() {
        let rebuilds = answer(MemberRequest::Add, MemberEffect::Rebuilds);
        let text = joined(&rebuilds, "tank");
        assert!(text.contains("takes a free slot"), "{text}");
        assert!(text.contains("braid wait tank --for rebuild"), "{text}");
        let paused = joined(&MembersAnswer { jobs_paused: true, ..rebuilds.clone() }, "tank");
        assert!(paused.contains("braid resume tank") && !paused.contains("braid wait"), "{paused}");
        let would = joined(&MembersAnswer { dry_run: true, ..rebuilds }, "tank");
        assert_eq!(would, "would add /dev/sdc to tank: it takes a free slot, and is rebuilt");
        let waits = joined(&answer(MemberRequest::Spare, MemberEffect::Waits), "tank");
        assert!(waits.contains("waits as a spare: no slot is free"), "{waits}");
        assert!(!waits.contains("rebuild"), "{waits}");
    }

    #[test]
    fn what_fails_says_what_is_next() {
        let fails = answer(MemberRequest::Fail, MemberEffect::Fails);
        let text = |answer: &MembersAnswer| failed(answer, "tank");
        let alone = text(&MembersAnswer { free_slots: 1, ..fails.clone() });
        assert!(
            alone.contains("cannot lose a member") && alone.contains("braid add tank"),
            "{alone}"
        );
        assert!(alone.ends_with("braid remove tank /dev/sdc"), "{alone}");
        let spare = text(&MembersAnswer { spares: 1, ..fails.clone() });
        assert!(spare.contains("by itself") && spare.contains("--for rebuild"), "{spare}");
        let paused = text(&MembersAnswer { spares: 1, jobs_paused: true, ..fails.clone() });
        assert!(paused.contains("braid resume tank"), "{paused}");
        let again = text(&answer(MemberRequest::Fail, MemberEffect::Nothing));
        assert!(again.starts_with("/dev/sdc (slot 1) has failed already"), "{again}");
        let gone = removed(&answer(MemberRequest::Remove, MemberEffect::Goes), "tank");
        assert_eq!(gone, "removed /dev/sdc (slot 1) from tank: it is free");
    }
}
