//! `braid member`: a server for devices that are members of an array on another host.
//!
//! ```text
//!   FILE ─▶ Member ─▶ FencedMember ─┬─ MemberExport, of no owner: reads; writes while unowned
//!                      │            └─ MemberExport, of a claim: the owner's connections
//!                      └─ MarkFile: the highest epoch, durable
//! ```
//!
//! The server knows nothing of arrays. An owner claims a member with words after the export's name
//! ([`braid_ownership::Claim`]). The server refuses older owners. It answers a new owner once the
//! device has answered all requests of older owners ([`braid_ownership::Fence`]).
//!
//! Threads serve the clients. The thread that receives a request carries it out, since braid has
//! one request in flight on each connection.

mod export;
mod mark_file;

use std::path::PathBuf;
use std::sync::Arc;

use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_discovery::probe::open_member;
use braid_events::service;
use braid_frontend_nbd::{BindError, Export, Server, StartError};
use braid_member::Access;
use serde_json::json;

use super::address::bind_error;
use super::array::STOP_DEADLINE;
use super::config::{ServerConfig, Tuning};
use super::wait::Watch;
use super::{confine, descriptors, endpoints, io_flusher};
use export::MemberExport;
use mark_file::MarkFile;

/// File descriptors that one member may have open.
const DESCRIPTORS_PER_MEMBER: usize = 4;

/// Serves the files and devices of `config` as members, until a signal.
///
/// # Errors
/// A file cannot be opened, its epoch cannot be read, or an address cannot be used.
pub fn serve_members(config: &ServerConfig, globals: &Globals) -> Result<Exit, CliError> {
    io_flusher::declare(false);
    let confinement = confine::begin(config, globals)?;
    let watch = Watch::new().map_err(|error| system("signals cannot be watched", &error))?;
    let tls = config.tls.load(&config.nbd)?;
    let settings = Tuning::default().take_memory(&config.settings)?;
    descriptors::raise(settings.connections_max + config.members.len() * DESCRIPTORS_PER_MEMBER);
    let mut exports: Vec<Arc<dyn Export>> = Vec::new();
    for path in &config.members {
        let name = name_of(path)?;
        if exports.iter().any(|export| export.name() == name) {
            let what =
                format!("two files are called {name}, and a client could not tell them apart");
            let error = CliError::new(Code::Usage, what).because("exports have the files' names");
            let look = format!("braid examine {}", words_of(&config.members));
            return Err(error.remedy(Risk::Look, "See what they are", look));
        }
        let member = open_member(path, Access::ReadWrite)?;
        let mark_file = MarkFile::of(&globals.state_dir, path);
        let mark = mark_file.read()?;
        let said =
            mark.map_or_else(|| "unowned".to_owned(), |mark| format!("epoch {}", mark.epoch));
        let size_bytes = member.size_bytes();
        exports.push(Arc::new(MemberExport::new(name.clone(), Arc::from(member), mark_file, mark)));
        match globals.json {
            true => outjson!(&json!({
                "event": "member", "name": name, "size_bytes": size_bytes,
                "epoch": mark.map(|mark| mark.epoch),
            })),
            false => outln!("{name}: {}, {said}", format_size(size_bytes)),
        }
    }
    let names: Vec<String> = exports.iter().map(|export| export.name().to_owned()).collect();
    let listeners = config.nbd.iter().map(|address| endpoints::listener(address, tls.as_ref()));
    let listeners = listeners.collect::<Result<Vec<_>, BindError>>();
    let listeners = listeners.map_err(|error| bind_error(&error))?;
    let quiet = Arc::new(|_| {});
    let server = Server::start_listening(None, exports, listeners, (settings, quiet));
    let server = server.map_err(|error| match &error {
        StartError::Bind(bind) => bind_error(bind),
        StartError::System(error) => system("the server could not be started", error),
        other => unreachable!("names and addresses are there: {other}"),
    })?;
    confinement.finish()?;
    let uris: Vec<String> =
        names.iter().flat_map(|name| server.uris(name)).map(|uri| uri.to_string()).collect();
    match globals.json {
        true => {
            outjson!(&json!({ "event": "serving", "uris": uris, "confined": confinement.words() }))
        }
        false => uris.iter().for_each(|uri| outln!("{uri}")),
    }
    // If the service manager cannot be notified, it still sees that the process is alive.
    let _ = service::ready(&format!("serving {} at {}", names.join(", "), uris.join(", ")));
    watch.wait(|_| {});
    let _ = service::stopping();
    let stopped = server.stop(STOP_DEADLINE);
    Ok(if stopped.cut == 0 { Exit::Done } else { Exit::Attention })
}

fn words_of(paths: &[PathBuf]) -> String {
    let word = |path: &PathBuf| shell_word(&path.to_string_lossy()).into_owned();
    paths.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The export's name: the name of the file without its folder.
fn name_of(path: &PathBuf) -> Result<String, CliError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.filter(|name| !name.contains('?') && !braid_member::is_uri(path));
    name.map(str::to_owned).ok_or_else(|| {
        let what = format!("{} cannot be served as a member", path.display());
        let error = CliError::new(Code::Usage, what);
        let why =
            "a member server serves files and devices of this host, with UTF-8 names and no '?'";
        let look = format!("braid examine {}", words_of(std::slice::from_ref(path)));
        error.because(why).remedy(Risk::Look, "See what they are", look)
    })
}
