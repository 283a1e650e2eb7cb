//! `braid events`: prints recent events of arrays, and with `-f` new ones.
//!
//! `events` reads the history in the state folder, so it needs no server. With `-f` it also listens
//! to running arrays over their control sockets, which needs no history.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_control::Client;
use braid_events::history::{self, folders};
use braid_events::{Event, Moment, Severity};

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::colour::Style;
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::stdout;
use braid_console::output::utc::format_utc;
use braid_discovery::running;

/// Interval of checking for new lines in history files and for new running arrays.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name or UUID, or the path of its control socket; without it, all that were
    /// served here.
    #[arg(value_name = "ARRAY")]
    array: Option<String>,
    /// Go on, and print events as they happen, until interrupted.
    #[arg(short, long)]
    follow: bool,
    /// The number of past events to begin with.
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 20)]
    count: usize,
}

/// The history of one array.
pub(super) struct ArrayHistory {
    pub(super) events: Vec<Event>,
}

/// A message of a thread that follows a running array.
enum StreamMessage {
    /// The thread receives every event after this message.
    Began,
    Event(Box<Event>),
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let path = args.array.as_deref().filter(|word| word.contains('/'));
    // The UUID of an array named by its socket is known only to the server at this socket.
    let uuid = path.map(|path| running::find(path).map(|found| found.array.uuid)).transpose()?;
    let (state_dir, array) = (&globals.state_dir, uuid.as_deref().or(args.array.as_deref()));
    let kept = match histories(state_dir, array) {
        // With `--follow`, an array that has no history yet may start later.
        Err(error) if args.follow && error.code() == Code::NoHistory => Vec::new(),
        kept => kept?,
    };
    let mut seen = ShownEvents::default();
    let mut last: Vec<Event> = kept.into_iter().flat_map(|kept| seen.unseen(kept.events)).collect();
    last.sort_by_key(|event| event.change.time);
    let mut names = ArrayNames::default();
    last.iter().for_each(|event| names.add(event));
    let first = last.len().saturating_sub(args.count);
    last[first..].iter().for_each(|event| show(event, &names, globals));
    if !args.follow {
        return Ok(Exit::Done);
    }
    let (sender, heard) = channel();
    let named = path.map(PathBuf::from);
    let sockets = move || named.clone().map_or_else(running::sockets, |path| vec![path]);
    let own = sender.clone();
    let search = std::thread::Builder::new().spawn(move || follow_all(&sockets, &own));
    search.map_err(|error| {
        system("the thread that follows running arrays could not be started", &error)
    })?;
    let mut looked = Instant::now();
    loop {
        stdout::flush();
        // The reader of standard output is gone, so more output is of no use.
        if stdout::has_failed() {
            return Ok(Exit::Done);
        }
        let next = heard.recv_timeout(LOOK);
        // Events written before a stream began are shown before the stream's own events.
        if !matches!(next, Ok(StreamMessage::Event(_))) || looked.elapsed() >= LOOK {
            let kept = histories(state_dir, array).unwrap_or_default();
            let new = kept.into_iter().flat_map(|kept| seen.unseen(kept.events));
            new.for_each(|event| {
                names.add(&event);
                show(&event, &names, globals);
            });
            looked = Instant::now();
        }
        if let Ok(StreamMessage::Event(event)) = next
            && array.is_none_or(|array| is_called(&event, array))
        {
            seen.unseen(vec![*event]).iter().for_each(|event| {
                names.add(event);
                show(event, &names, globals);
            });
        }
    }
}

/// Follows every running array, also an array that starts later. The threads end with the process.
fn follow_all(sockets: &dyn Fn() -> Vec<PathBuf>, sender: &Sender<StreamMessage>) {
    let followed = Arc::<Mutex<BTreeSet<PathBuf>>>::default();
    loop {
        for socket in sockets() {
            if !lock(&followed).insert(socket.clone()) {
                continue;
            }
            let (sender, all, again) = (sender.clone(), Arc::clone(&followed), socket.clone());
            let follow = move || {
                follow(&socket, &sender);
                lock(&all).remove(&socket);
            };
            if std::thread::Builder::new().spawn(follow).is_err() {
                lock(&followed).remove(&again);
            }
        }
        std::thread::sleep(LOOK);
    }
}

fn lock(followed: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    followed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Follows one array until it stops or does not answer. The error does not matter, because the
/// array's history is read in any case.
fn follow(socket: &Path, sender: &Sender<StreamMessage>) {
    let client = Client::new(socket, Some(running::PATIENCE));
    let tell = |heard| sender.send(heard).is_ok();
    let began = || {
        let _ = tell(StreamMessage::Began);
    };
    let _ = client.follow("/v1/events", began, |line| match serde_json::from_slice(line) {
        Ok(event) => tell(StreamMessage::Event(event)),
        // Skips an event that this version does not understand.
        Err(_) => true,
    });
}

/// Events that were shown, by array: history files and streams both contain them.
#[derive(Default)]
struct ShownEvents(BTreeMap<String, BTreeSet<(Moment, u64)>>);

/// Most events to remember of an array: more than any history has.
const SEEN_MAX: usize = 1 << 16;

impl ShownEvents {
    /// The events of `events` that were not shown yet.
    fn unseen(&mut self, mut events: Vec<Event>) -> Vec<Event> {
        events.retain(|event| {
            let seen = self.0.entry(event.uuid.clone()).or_default();
            let is_new = seen.insert((event.change.time, event.id));
            if seen.len() > SEEN_MAX {
                seen.pop_first();
            }
            is_new
        });
        events
    }
}

/// The history of the array with this name or UUID, or all histories.
pub(super) fn histories(
    state_dir: &Path,
    array: Option<&str>,
) -> Result<Vec<ArrayHistory>, CliError> {
    let unreadable = |error: std::io::Error| {
        let what = format!("the history in {} cannot be read", state_dir.display());
        let look = format!("ls -lR {}", shell_word(&state_dir.display().to_string()));
        CliError::new(Code::StateFolder, what).caused_by(&error).remedy(
            Risk::Look,
            "See who may",
            look,
        )
    };
    let mut kept = Vec::new();
    for folder in folders(state_dir).map_err(unreadable)? {
        let events = history::read(&folder).map_err(unreadable)?;
        if events.last().is_some_and(|last| array.is_none_or(|array| is_called(last, array))) {
            kept.push(ArrayHistory { events });
        }
    }
    match array {
        Some(array) if kept.is_empty() => Err(unknown(state_dir, array)),
        _ => Ok(kept),
    }
}

fn is_called(event: &Event, array: &str) -> bool {
    let digits = |text: &str| text.replace([':', '-'], "").to_lowercase();
    event.array == array || digits(&event.uuid) == digits(array)
}

fn unknown(state_dir: &Path, array: &str) -> CliError {
    let what = format!("there is no history of an array called '{array}'");
    CliError::new(Code::NoHistory, what)
        .about(array)
        .because(format!(
            "this user did not serve it, or used another state folder than {}",
            state_dir.display()
        ))
        .remedy(Risk::Look, "See which arrays have a history", "braid events")
}

/// The names of each array. Several arrays may have had one name, one after the other.
#[derive(Default)]
pub(super) struct ArrayNames(BTreeMap<String, BTreeSet<String>>);

impl ArrayNames {
    /// Notes the array's name in an event that was shown, or is about to be shown.
    pub(super) fn add(&mut self, event: &Event) {
        self.0.entry(event.array.clone()).or_default().insert(event.uuid.clone());
    }

    /// The array's name in this event, with its UUID if several arrays had this name.
    fn word(&self, event: &Event) -> String {
        match self.0.get(&event.array).is_some_and(|uuids| uuids.len() > 1) {
            true => format!("{} ({})", event.array, event.uuid),
            false => event.array.clone(),
        }
    }
}

/// Prints one event, as words or JSON.
pub(super) fn show(event: &Event, names: &ArrayNames, globals: &Globals) {
    if globals.json {
        let value = serde_json::to_value(event).expect("text and numbers");
        return outjson!(&value);
    }
    let change = &event.change;
    let time = format_utc(change.time.since_unix().as_secs());
    let kind = printable(&change.kind.to_string()).into_owned();
    let kind = match event.severity {
        Severity::Critical => globals.paint_out.paint(Style::Error, &kind),
        Severity::Warning => globals.paint_out.paint(Style::Warning, &kind),
        Severity::Info => kind,
    };
    let array = names.word(event);
    outln!("{time}  {}  {kind}  {}", printable(&array), printable(&change.message));
}

#[cfg(test)]
mod tests {
    use braid_events::{Change, Identity, Kind};

    use super::*;

    fn event(id: u64, array: &str, uuid: &str) -> Event {
        let identity = Identity { array: array.to_owned(), uuid: uuid.to_owned() };
        Event::new(id, &identity, Change::now(Kind::Fail, "m"))
    }

    #[test]
    fn an_array_is_found_by_its_name_and_its_uuid() {
        let uuid = "0a1b2c3d:11111111:22222222:33333333";
        let tank = event(1, "tank", uuid);
        for name in ["tank", uuid, "0A1B2C3D111111112222222233333333"] {
            assert!(is_called(&tank, name), "{name}");
        }
        for name in ["", "Tank", "0a1b2c3d"] {
            assert!(!is_called(&tank, name), "{name}");
        }
    }

    #[test]
    fn arrays_of_one_name_are_told_apart() {
        let mut names = ArrayNames::default();
        let (one, other, alone) =
            (event(1, "tank", "u"), event(1, "tank", "v"), event(1, "pool", "w"));
        names.add(&one);
        names.add(&alone);
        assert_eq!(names.word(&one), "tank");
        names.add(&other);
        assert_eq!(
            [&one, &other, &alone].map(|one| names.word(one)),
            ["tank (u)", "tank (v)", "pool"]
        );
    }

    /// Event numbers begin at 1 again after a history was deleted, and at a second server without a
    /// history.
    #[test]
    fn each_event_is_shown_once_from_wherever_it_comes() {
        let mut seen = ShownEvents::default();
        let mut look = |events: &[(u64, u64)]| -> Vec<u64> {
            let at = |(id, second): &(u64, u64)| {
                let mut event = event(*id, "tank", "u");
                event.change.time = Moment::from_unix(Duration::from_secs(*second));
                event
            };
            seen.unseen(events.iter().map(at).collect()).iter().map(|event| event.id).collect()
        };
        assert_eq!(look(&[(1, 10), (2, 11)]), [1, 2]);
        assert_eq!(look(&[(3, 9)]), [3], "heard, and the clock was set back");
        assert_eq!(look(&[(1, 10), (2, 11), (3, 9), (4, 12)]), [4], "read");
        assert_eq!(look(&[(1, 20)]), [1], "another history");
        assert!(look(&[(2, 11), (3, 9), (4, 12), (1, 20)]).is_empty());
    }
}
