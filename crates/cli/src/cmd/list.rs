//! `braid list`: prints the arrays that are being served, one line each.

use serde_json::json;

use super::Globals;
use braid_console::error::{CliError, Exit};
use braid_console::output::size::format_size;
use braid_console::output::table::{Align, Table};
use braid_discovery::running;
use braid_discovery::status::words::{level_word, state_word};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(Args {}: Args, globals: &Globals) -> Result<Exit, CliError> {
    let all = running::all();
    if globals.json {
        let arrays: Vec<_> = all
            .running
            .iter()
            .map(|running| {
                let array = &running.array;
                json!({
                    "name": array.name,
                    "uuid": array.uuid,
                    "level": array.level,
                    "size_bytes": array.size_bytes,
                    "state": array.state,
                    "control": running.control.display().to_string(),
                    "uris": array.uris,
                    "file": array.file,
                    "device": array.device,
                    "vhost_user": array.vhost_user,
                    "device": array.device,
                })
            })
            .collect();
        let unheard = super::status::unheard(&all.silent);
        outjson!(&json!({ "version": 1, "arrays": arrays, "unheard": unheard }));
        return Ok(Exit::Done);
    }
    if all.running.is_empty() && all.silent.is_empty() {
        outln!("no array is served in {}", running::folder().display());
        return Ok(Exit::Done);
    }
    let columns = [
        ("NAME", Align::Left),
        ("LEVEL", Align::Left),
        ("SIZE", Align::Right),
        ("STATE", Align::Left),
        ("UUID", Align::Left),
        ("CONTROL", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for running in &all.running {
        let array = &running.array;
        table.row([
            array.name.clone(),
            level_word(&array.level),
            format_size(array.size_bytes),
            state_word(array).to_owned(),
            array.uuid.clone(),
            running.control.display().to_string(),
        ]);
    }
    for silent in &all.silent {
        let name = silent.control.file_stem().unwrap_or_default().to_string_lossy();
        let control = silent.control.display().to_string();
        let state = braid_discovery::status::words::silent_word(&silent.error);
        table.row([&*name, "", "", state, "", &control]);
    }
    out!("{}", table.render(""));
    Ok(Exit::Done)
}
