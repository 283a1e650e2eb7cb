//! Server state and reports for an operator's changes of members.
//!
//! The control API ([`super::control`]) decides on and performs the changes. A member gets its name
//! before the array gets the member, so every listener has the name. The report of a change
//! precedes all notices of the array about that member.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use braid_events::links::{LinkLook, Links};
use braid_events::membership;
use braid_ondisk::Role;
use braid_runtime::{
    AddError, Direct, JournalError, MemberId, MemberLook, Newcomer, RemoveError, Volume,
};

use super::event_delivery::MemberEvents;
use super::health::{Health, absolute};
use super::links::{LinkGuard, LinkWatch};
use super::report::Reporter;
use braid_console::output::shell::shell_argument;
use braid_discovery::running;
use braid_events::Change;
use serde_json::json;

pub(crate) struct Membership {
    reporter: Arc<Reporter>,
    health: Arc<Health>,
    events: MemberEvents,
    /// The queue of lines to report: a slow reader must not delay a request.
    lines: Sender<Line>,
    /// Whether to bypass the page cache for devices that become members.
    pub(super) direct: Direct,
    /// The folder for saved first and last bytes of devices.
    pub(super) state_dir: PathBuf,
    /// The server may open no files, so clients pass new devices open.
    pub(super) opens_nothing: bool,
    /// A lock that each request for a change of members holds.
    changing: Mutex<()>,
    links: Arc<LinkWatch>,
    /// Path of the control socket; the file with the command to serve the array again may lie next
    /// to this socket.
    control: Mutex<Option<PathBuf>>,
}

pub(super) struct JoinOptions<'a> {
    /// The array has no free slot for the new member.
    pub(super) is_spare: bool,
    /// The device was a member before.
    pub(super) returns: bool,
    pub(super) moved_from: Option<&'a str>,
}

enum Line {
    Change(Box<Change>),
    /// A kind of message, a member, and why an action on the member was not done.
    Aside(&'static str, String, String),
}

impl Membership {
    /// Makes the state for an array that is being started.
    ///
    /// # Errors
    /// The thread could not start.
    pub(super) fn start(
        (reporter, health): (&Arc<Reporter>, &Arc<Health>),
        events: MemberEvents,
        (direct, state_dir, opens_nothing): (Direct, PathBuf, bool),
    ) -> std::io::Result<Self> {
        let (lines, said) = channel::<Line>();
        let saying = Arc::clone(reporter);
        let say = move || {
            said.iter().for_each(|line| match line {
                Line::Change(change) => saying.change(&change),
                Line::Aside(event, member, text) => {
                    saying.aside(event, &json!({ "member": member }), &text);
                }
            });
        };
        std::thread::Builder::new().name("braid-members".into()).spawn(say)?;
        Ok(Self {
            reporter: Arc::clone(reporter),
            health: Arc::clone(health),
            events,
            lines,
            direct,
            state_dir,
            opens_nothing,
            changing: Mutex::default(),
            links: Arc::default(),
            control: Mutex::default(),
        })
    }

    pub(super) fn set_control(&self, control: PathBuf) {
        *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Some(control);
    }

    /// While the guard is held, no other request changes members.
    pub(super) fn alone(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(
        &self,
        volume: &Volume,
        (device, newcomer): (Box<dyn braid_member::Member>, &Newcomer<'_>),
        how: &JoinOptions<'_>,
    ) -> Result<MemberId, AddError> {
        let JoinOptions { is_spare, returns, moved_from } = *how;
        let path = device.identity().path.clone();
        let is_remote = device.link().is_some();
        let (label, name) = (path.display().to_string(), self.reporter.name());
        let named = |id| self.reporter.name_member(id, label.clone());
        let (id, change) = self.events.around(
            || volume.add_member(device, newcomer, named),
            |_| match moved_from {
                Some(from) => membership::moved(name, &absolute(&label), from),
                None => membership::added(name, &absolute(&label), (is_spare, returns)),
            },
        )?;
        let word = shell_argument(&absolute(&label)).into_owned();
        self.note(
            |command| if has_word(&command, &word) { command } else { command + " " + &word },
        );
        self.say(change);
        if is_remote && let Err(error) = self.links.start() {
            errln!("no event will tell of lost connections of {name}: {error}");
        }
        Ok(id)
    }

    pub(super) fn add_journal(
        &self,
        volume: &Volume,
        device: Box<dyn braid_member::Member>,
        identity: ([u8; 16], u32),
    ) -> Result<MemberId, JournalError> {
        let label = device.identity().path.display().to_string();
        let name = self.reporter.name();
        let named = |id| self.reporter.name_member(id, label.clone());
        let (id, change) = self.events.around(
            || volume.add_journal(device, identity, named),
            |_| membership::journaled(name, &absolute(&label)),
        )?;
        let word = shell_argument(&absolute(&label)).into_owned();
        self.note(
            |command| if has_word(&command, &word) { command } else { command + " " + &word },
        );
        self.say(change);
        Ok(id)
    }

    /// Whether the array has reported that this spare failed.
    pub(super) fn is_lost_spare(&self, id: MemberId) -> bool {
        let label = absolute(&self.reporter.label(id));
        self.health.replaced().iter().any(|(slot, out)| slot.is_none() && out.member == label)
    }

    pub(super) fn remove(
        &self,
        volume: &Volume,
        id: MemberId,
        slot: Option<u16>,
    ) -> Result<(), RemoveError> {
        // Removes the member outside of `around`, which holds a lock: the removal may take a while,
        // and must not delay other reports.
        volume.remove_member(id)?;
        self.note_removed(id, slot);
        Ok(())
    }

    /// Removes a spare of an array that has no use for spares, and removes the spare's superblock.
    pub(super) fn let_go(&self, volume: &Volume, id: MemberId) -> Result<(), RemoveError> {
        volume.let_go_spare(id)?;
        self.note_removed(id, None);
        Ok(())
    }

    fn note_removed(&self, id: MemberId, slot: Option<u16>) {
        let (label, name) = (self.reporter.label(id), self.reporter.name());
        let told: Result<_, RemoveError> =
            self.events.around(|| Ok(()), |()| membership::removed(name, &absolute(&label), slot));
        let ((), change) = told.expect("there is nothing to be refused");
        self.health.note_removed(&label);
        let word = shell_argument(&absolute(&label)).into_owned();
        self.note(|command| without_word(&command, &word));
        self.say(change);
    }

    /// Reports each loss and renewal of a connection to a member on another host, until the guard
    /// is dropped.
    ///
    /// # Errors
    /// The thread could not start.
    pub(super) fn watch_links(self: &Arc<Self>, volume: &Arc<Volume>) -> io::Result<LinkGuard> {
        let has_links = !looks(volume).is_empty();
        let (this, volume) = (Arc::clone(self), Arc::clone(volume));
        let (mut links, begun) = (Links::default(), Instant::now());
        let guard = self.links.set(move || {
            for change in links.changes(this.reporter.name(), begun.elapsed(), &looks(&volume)) {
                let told: Result<_, RemoveError> = this.events.around(|| Ok(()), |()| change);
                let ((), change) = told.expect("there is nothing to be refused");
                this.say(change);
            }
        });
        if has_links {
            self.links.start()?;
        }
        Ok(guard)
    }

    /// Queues the report of a change, so that a slow reader does not delay the caller.
    fn say(&self, change: Change) {
        // The receiving thread runs as long as this sender exists.
        let _ = self.lines.send(Line::Change(Box::new(change)));
    }

    /// Reports why a spare of another array did not become a spare of this array.
    pub(super) fn say_not_moved(&self, member: &str, why: String) {
        let _ = self.lines.send(Line::Aside("spare-not-moved", member.to_owned(), why));
    }

    /// Records the new bitmap file in the note with the command that serves the array again.
    pub(super) fn note_bitmap_file(&self, old: Option<&Path>, new: Option<&Path>) {
        let option = |file: &Path| {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
            let file = file.display().to_string();
            format!(" --bitmap-file {}", shell_argument(&file))
        };
        self.note(|command| {
            let without = old.map_or(command.clone(), |old| command.replace(&option(old), ""));
            let serve = |new| format!(" serve{} ", option(new));
            new.map_or(without.clone(), |new| without.replacen(" serve ", &serve(new), 1))
        });
    }

    /// Updates the note with the command that serves the array again, if the note exists. A failure
    /// loses only a hint.
    fn note(&self, change: impl FnOnce(String) -> String) {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(control) = control.as_deref() else { return };
        let Some(command) = running::command_again(control) else { return };
        let _ = std::fs::write(running::note_path(control), change(command) + "\n");
    }
}

/// The connections to members on other hosts, for members that are in the array or away.
fn looks(volume: &Volume) -> Vec<LinkLook> {
    // Asks for the members that are away both before and after: a member may go away or return
    // between two of these calls.
    let mut away = volume.away();
    let looks = volume.look_at_members();
    away.extend(volume.away());
    let is_counted = |look: &MemberLook| look.is_in || away.contains(&look.id);
    let looks = looks.into_iter().filter(is_counted);
    let link = |look: MemberLook| {
        let link = look.link?;
        let slot = match look.superblock.state.role {
            Role::Active(slot) => Some(slot),
            _ => None,
        };
        let member = absolute(&look.path.to_string_lossy());
        let (is_up, reconnects) = (link.is_up, link.reconnects);
        let (last_loss, mean_latency) = (link.last_loss, link.mean_latency);
        Some(LinkLook { member, slot, is_up, reconnects, last_loss, mean_latency })
    };
    looks.filter_map(link).collect()
}

/// The byte position in a command line at which a separate word begins, counted from the space
/// before the word.
fn find_word(command: &str, word: &str) -> Option<usize> {
    let whole = format!(" {word}");
    let mut at = 0;
    while let Some(found) = command[at..].find(&whole) {
        let end = at + found + whole.len();
        if command[end..].is_empty() || command[end..].starts_with(' ') {
            return Some(at + found);
        }
        at = end;
    }
    None
}

fn has_word(command: &str, word: &str) -> bool {
    find_word(command, word).is_some()
}

fn without_word(command: &str, word: &str) -> String {
    match find_word(command, word) {
        Some(at) => command[..at].to_owned() + &command[at + 1 + word.len()..],
        None => command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_where_it_stands_alone() {
        let command = "braid serve /a/m10 /a/m1 '/b c/m1'";
        assert!(has_word(command, "/a/m1") && has_word(command, "'/b c/m1'"));
        assert!(!has_word(command, "/a/m"));
        assert_eq!(without_word(command, "/a/m1"), "braid serve /a/m10 '/b c/m1'");
        assert_eq!(without_word(command, "'/b c/m1'"), "braid serve /a/m10 /a/m1");
        assert_eq!(without_word(command, "/c"), command);
    }
}
