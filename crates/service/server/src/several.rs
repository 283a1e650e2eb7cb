//! Several arrays in one server: groups members by array, and runs all arrays at a time.
//!
//! This module calls [`super::array`], which serves each array on a thread of its own. The arrays
//! share workers, listeners and memory for payloads. Each has its own control socket, notices, jobs
//! and records.
//!
//! ```text
//!   members ─ by superblocks ─▶ groups ─▶ a thread each: assemble, open ─▶ [`shared_server`]
//!                                              │ cannot be served
//!                                              └─▶ reported; other arrays go on
//! ```
//!
//! The shared server joins the arrays into one server with an export each. A signal stops all
//! arrays, and `braid stop` stops one array.
//!
//! Without further options, several arrays are served only if each has all its members: in that
//! case the operator named a whole list of devices. A missing member may be the operator's mistake,
//! and an array that starts without the member must recover it later. The server refuses that
//! (B033) unless `--all` is given.
//!
//! Invariants
//! - An array that cannot be served, fails or is stopped leaves other arrays as they are:
//!   `tests/e2e/several_arrays.rs`.

mod shared_server;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use braid_assembly::{Assembly, Choice, Options, ProbedMember, assemble};
use braid_events::sockets::InheritedSockets;
use braid_member::Access;
use braid_ondisk::format_uuid;

use super::address::Address;
use super::array::{Context, Origin, Shared, one};
use super::config::{ServerConfig, Tuning};
use super::service;
use super::wait::Watch;
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::probe::{open_member, probe_member};
use braid_discovery::ready::served_name;
pub(super) use shared_server::{Clients, SharedServer};

pub(super) struct Group {
    name: String,
    members: Vec<PathBuf>,
}

/// Groups the members by array, if they belong to several arrays and the configuration chooses none
/// of them.
///
/// An unreadable member goes to the first array, whose start will report the error.
pub(super) fn groups(config: &ServerConfig) -> Result<Option<Vec<Group>>, CliError> {
    if config.members.len() < 2 || config.names_array() || config.bitmap_file.is_some() {
        return Ok(None);
    }
    let mut groups: Vec<([u8; 16], Group)> = Vec::new();
    let mut probed: BTreeMap<[u8; 16], Vec<ProbedMember>> = BTreeMap::new();
    let mut of_none = Vec::new();
    for path in &config.members {
        let label = path.to_string_lossy();
        let found = open_member(path, Access::ReadOnly);
        let found = found.and_then(|device| probe_member(&*device, &label)).ok();
        let array = found.as_ref().and_then(|found| {
            let array = &found.probe.newest()?.array;
            Some((array.uuid, served_name(&array.name, &format_uuid(&array.uuid))))
        });
        let (Some(found), Some((uuid, name))) = (found, array) else {
            of_none.push(path.clone());
            continue;
        };
        probed.entry(uuid).or_default().push(found);
        match groups.iter_mut().find(|(known, _)| *known == uuid) {
            Some((_, group)) => group.members.push(path.clone()),
            None => groups.push((uuid, Group { name, members: vec![path.clone()] })),
        }
    }
    if groups.len() < 2 {
        return Ok(None);
    }
    if !config.all {
        // If an array lacks a member, the usual refusal follows, whose remedies name each array by
        // itself.
        let is_whole = |uuid: &[u8; 16]| {
            let choice = Choice { uuid: Some(*uuid), ..Choice::default() };
            let options = Options { choice, read_only: true, ..Options::default() };
            let Assembly { array, .. } = assemble(&probed[uuid], &options);
            array.is_ok_and(|array| array.degraded == 0)
        };
        if !of_none.is_empty() || !groups.iter().all(|(uuid, _)| is_whole(uuid)) {
            return Ok(None);
        }
    }
    for (index, (uuid, group)) in groups.iter().enumerate() {
        if groups[..index].iter().any(|(_, earlier)| earlier.name == group.name) {
            let what = format!("two of these arrays are called {}", group.name);
            let members = group.members.iter().map(|path| path.to_string_lossy());
            let members: Vec<_> = members.map(|path| shell_word(&path).into_owned()).collect();
            let command = format!("braid serve {}", members.join(" "));
            return Err(CliError::new(Code::SeveralArrays, what)
                .because("clients ask for an array by its name")
                .remedy(Risk::Change, format!("Serve {} by itself", format_uuid(uuid)), command));
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
    groups[0].members.extend(of_none);
    Ok(Some(groups))
}

/// Rejects options that apply to one array only.
fn check(config: &ServerConfig, inherited: &InheritedSockets) -> Result<(), CliError> {
    let names_one = |address: &Address| !address.export.is_empty();
    let for_one = [
        ("a URI with a name", config.nbd.iter().any(names_one)),
        ("--accept-risk", config.assembly.accept_risk.is_some()),
        ("--accept-older", config.assembly.accept_older),
        ("--without-journal", config.assembly.without_journal),
        ("--layout", config.assembly.raid0_layout.is_some()),
        ("--run", config.run.is_some()),
        ("--fuse", config.file.is_some()),
        ("--ublk", config.device.is_some()),
        ("--vhost-user", config.vhost_user.is_some()),
        ("--control", config.control.is_some()),
        ("--metrics", config.metrics.is_some()),
        ("a control socket that was passed on", !inherited.control.is_empty()),
    ];
    let Some((what, _)) = for_one.iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let what = format!("these members belong to several arrays, and {what} is for one array");
    let error = CliError::new(Code::SeveralArrays, what);
    Err(error.because("serve each array by itself with it").remedy(
        Risk::Look,
        "Choose one of them",
        "braid serve --array NAME MEMBER...",
    ))
}

pub(super) fn run(context: Context<'_>, groups: Vec<Group>) -> Result<Exit, CliError> {
    let Context { config, globals, .. } = context;
    let inherited = service::inherited()?;
    check(config, &inherited)?;
    let watch = Watch::new().map_err(|error| system("signals cannot be watched", &error))?;
    let settings = Tuning::of(&config.settings)?.take_memory(&config.settings)?;
    let socket_name = Some(groups[0].name.clone()).filter(|_| inherited.nbd.is_empty());
    let shared_server = Arc::new(SharedServer::new(groups.len(), inherited.nbd));
    let own: Vec<Watch> = groups.iter().map(|_| Watch::without_signals()).collect();
    let stoppers: Vec<_> = own.iter().map(Watch::stopper).collect();
    let (alive, ended) = (AtomicUsize::new(groups.len()), watch.stopper());
    let outcomes = thread::scope(|scope| {
        let (shared_server, alive, ended) = (&shared_server, &alive, &ended);
        let serve = |(index, (group, watch)): (usize, (Group, Watch))| {
            let (place, socket_name) = ((Arc::clone(shared_server), index), socket_name.clone());
            let body = move || {
                let shared = Shared { settings, place, socket_name };
                let outcome = config.events.hooks(globals).and_then(|hooks| {
                    one(context, Origin::Named(&group.members), &watch, hooks, Some(&shared))
                });
                shared_server.leave(index);
                let is_last = alive.fetch_sub(1, Ordering::AcqRel) == 1;
                if let Err(error) = &outcome
                    && !is_last
                {
                    say(error, globals);
                }
                if is_last {
                    ended.stop();
                }
                outcome
            };
            thread::Builder::new().name("braid-array".into()).spawn_scoped(scope, body)
        };
        let threads: Vec<_> = groups.into_iter().zip(own).enumerate().map(serve).collect();
        let watchdog = shared_server.wait_until_served().and_then(|(volumes, reporter, uris)| {
            service::ready(&volumes, shared_server.workers().as_ref(), (&reporter, &uris))
        });
        // Returns on a signal, or when the last array has ended.
        watch.wait(|number| shared_server.note_ignored(number));
        service::stopping();
        drop(watchdog);
        stoppers.iter().for_each(super::wait::Stopper::stop);
        let join = |(index, thread): (usize, std::io::Result<thread::ScopedJoinHandle<'_, _>>)| {
            let thread = thread.map_err(|error| {
                shared_server.leave(index);
                system("an array could not be started", &error)
            });
            thread.and_then(|thread| thread.join().expect("the thread of an array does not panic"))
        };
        threads.into_iter().enumerate().map(join).collect::<Vec<Result<Exit, CliError>>>()
    });
    let (served, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    if let (true, Some(error)) = (served.is_empty(), failed.into_iter().next_back()) {
        return error;
    }
    let all_done = served.len() == stoppers.len();
    let all_done = all_done && served.iter().all(|exit| matches!(exit, Ok(Exit::Done)));
    if all_done { Ok(Exit::Done) } else { Ok(Exit::Attention) }
}

/// Reports that an array cannot be served or did not end in order, while others go on.
fn say(error: &CliError, globals: &Globals) {
    if globals.json {
        outjson!(&error.to_json());
    } else {
        err!("{}", error.to_text(globals.paint_err));
    }
}
