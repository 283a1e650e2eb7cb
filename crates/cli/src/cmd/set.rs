//! `braid set`, alias `braid tune`: changes settings of a running array, all of them or none.
//!
//! `kernel-compat` is no setting of a running array: it changes the superblocks of a stopped array
//! (`kernel_compat.rs`).

mod kernel_compat;

use braid_control::model::{Settings, SettingsAnswer};

use super::Globals;
use super::get::{self, value_words};
use super::members;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_discovery::running::{self, unanswered};
use braid_server::{BITMAP_FILE_KEY, NO_BITMAP_FILE};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Say what would change, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Settings: cache=writeback|writethrough, cache-size=SIZE, bypass-threshold=COUNT,
    /// dirty-limit=SIZE, dirty-age=MS; sit-out=on|off, sit-out-factor=TIMES, sit-out-min-ms=MS,
    /// away-after-ms=MS|never, away-spare-after-ms=MS; read-errors-max=COUNT|off,
    /// on-read-errors=warn|replace|fail; job-latency-factor=TIMES|any, job-floor=SIZE,
    /// job-ceiling=SIZE|none; elevator=auto|deadline|none, elevator:SLOT=... for one member;
    /// multiplexer=auto|on|off, multiplexer-period=MS, multiplexer-share=MIN-MAX; read-expiry=MS,
    /// write-expiry=MS, writes-starved=COUNT, batch=COUNT, depth=COUNT; connections=COUNT,
    /// payload-memory=SIZE, idle-limit=SECONDS; consistency=bitmap|log|ppl|resync,
    /// bitmap-chunk=SIZE (written to the members), bitmap-file=PATH|none (created; to be named at
    /// the next start); jobs=on|paused, spare-group=NAME|off, check-every=TIME|off (such as 30d;
    /// kept over restarts). By itself: write-mostly=MEMBER,...|none, members by slot or path that
    /// are read only if no other copy is available (raid1, raid10; written to the members). Without
    /// any, the current settings are printed. Of a stopped array: kernel-compat MEMBER..., which
    /// clears the logical block size in its superblocks, so that kernels before 6.19 accept it.
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    if let Some((first, members)) = args.settings.split_first()
        && first == kernel_compat::WORD
    {
        return kernel_compat::run(&args.array, members, args.dry_run, globals);
    }
    if let [setting] = args.settings.as_slice()
        && let Some(("write-mostly", members)) = setting.split_once('=')
    {
        return members::set_write_mostly(&args.array, members, args.dry_run, globals);
    }
    let mut wanted = Settings::new();
    for setting in &args.settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            let error = CliError::new(Code::Usage, format!("'{setting}' is not KEY=VALUE"));
            error.remedy(Risk::Look, "See the settings", "braid set --help")
        })?;
        // The bitmap file's path is made absolute, because the server runs in another folder.
        let path = (key == BITMAP_FILE_KEY && value != NO_BITMAP_FILE)
            .then(|| std::path::absolute(value).ok())
            .flatten();
        let path = path.map(|path| path.display().to_string());
        let value = path.as_deref().unwrap_or(value);
        if wanted.insert(key.to_owned(), value.into()).is_some() {
            let error = CliError::new(Code::Usage, format!("{key} is set twice")).about(key);
            return Err(error.remedy(Risk::Look, "See the settings", "braid set --help"));
        }
    }
    if wanted.is_empty() {
        return get::get(&args.array, None, globals);
    }
    let running = running::find(&args.array)?;
    let target = if args.dry_run { "/v1/settings?dry_run=true" } else { "/v1/settings" };
    let answer = running.client().patch::<SettingsAnswer>(target, &wanted);
    let answer = answer.map_err(|error| unanswered(&running.control, &error))?;
    if globals.json {
        get::tell(&answer, globals);
        return Ok(Exit::Done);
    }
    if answer.changed.is_empty() {
        outln!("nothing to change: it is set so already");
    }
    for (key, change) in &answer.changed {
        let words = |value: &Option<_>| {
            value.as_ref().map_or_else(|| "not set".to_owned(), |value| value_words(key, value))
        };
        let (from, to) = (words(&change.from), words(&change.to));
        let would = if answer.dry_run { "would change" } else { "changed" };
        outln!("{:<18} {would} from {from} to {to}", printable(key));
    }
    Ok(Exit::Done)
}
