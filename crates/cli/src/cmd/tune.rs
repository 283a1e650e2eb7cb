//! `braid tune`: look at the settings of an array that is being served, and change them.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::Globals;
use super::serve::control_path;
use crate::error::code::Code;
use crate::error::{CliError, Exit, Risk};
use crate::output::printable::printable;
use crate::output::size::format_size;

/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `braid tune`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, as `braid serve` said it; or the path given to `serve --control`.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// What to set: cache=writeback|writethrough, cache-size=SIZE, bypass-threshold=COUNT,
    /// dirty-limit=SIZE, dirty-age=MS; sit-out=on|off, sit-out-factor=TIMES, sit-out-min-ms=MS; elevator=auto|deadline|none, elevator:SLOT=... for one member,
    /// multiplexer=auto|on|off, multiplexer-period=MS, multiplexer-share=MIN-MAX, read-expiry=MS,
    /// write-expiry=MS, writes-starved=COUNT, batch=COUNT, depth=COUNT; connections=COUNT,
    /// payload-memory=SIZE, idle-limit=SECONDS. Without any, what is set now is printed.
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let mut set = Map::new();
    for setting in &args.settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            let error = CliError::new(Code::Usage, format!("'{setting}' is no KEY=VALUE"));
            error.remedy(Risk::Look, "What there is to set", "braid tune --help")
        })?;
        set.insert(key.to_owned(), json!(value));
    }
    let request = if set.is_empty() { json!({}) } else { json!({ "set": set }) };
    let path = path_of(&args.array);
    let answer = ask(&path, &request).map_err(|error| unanswered(&path, &error))?;
    if let Some(why) = answer["error"].as_str() {
        let error = CliError::new(Code::Usage, "the array did not take the setting");
        let error = error.because(printable(why).to_string());
        return Err(error.remedy(Risk::Look, "What there is to set", "braid tune --help"));
    }
    if globals.json {
        outjson!(&answer);
        return Ok(Exit::Done);
    }
    let name = |key: &str| printable(key).to_string();
    for (key, value) in answer["settings"].as_object().into_iter().flatten() {
        let text = match (key.as_str(), value) {
            (
                "cache-size" | "stripe-unit" | "dirty-limit" | "payload-memory",
                Value::Number(bytes),
            ) => bytes.as_u64().map_or_else(String::new, format_size),
            (_, Value::String(text)) => name(text),
            (_, value) => name(&value.to_string()),
        };
        outln!("{:<18} {text}", name(key));
    }
    let dirty = answer["dirty_bytes"].as_u64().unwrap_or_default();
    outln!("{:<18} {}", "dirty now", format_size(dirty));
    let held = answer["clients"]["payload_bytes"].as_u64().unwrap_or_default();
    outln!("{:<18} {}", "payloads now", format_size(held));
    let connected = answer["clients"]["connections"].as_u64().unwrap_or_default();
    outln!("{:<18} {connected}", "connected now");
    Ok(Exit::Done)
}

/// Where an array is found: by its name, or by a path.
pub(super) fn path_of(array: &str) -> PathBuf {
    if array.contains('/') { PathBuf::from(array) } else { control_path(array) }
}

/// One request to a served array, and its answer.
pub(super) fn ask(path: &std::path::Path, request: &Value) -> std::io::Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !answer.contains(&b'\n') && answer.len() < ANSWER_BYTES_MAX {
        // One deadline, however many bytes the answer comes in.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(serde_json::from_slice(&answer)?)
}

pub(super) fn unanswered(path: &std::path::Path, error: &std::io::Error) -> CliError {
    let what = format!("no array answers at {}", path.display());
    CliError::new(Code::NotServed, what)
        .caused_by(error)
        .because(
            "an array is found by its name when `braid serve` chose the socket itself; served \
             elsewhere, it is found at the path given to `serve --control`",
        )
        .remedy(Risk::Look, "Which arrays are served here", "ls /run/braid $XDG_RUNTIME_DIR/braid")
}
