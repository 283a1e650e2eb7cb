//! Finds the members of a configuration file's array, by path or among devices, and waits for
//! absent members.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_discovery::devices::{
    MemberDevice, all_devices, is_complete, look, matching, stable_name,
};
use braid_discovery::ready::choice;

use super::Config;

/// Interval of looking for absent members.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The members of a file's array. Waits for missing members as long as the file says.
///
/// # Errors
/// No member of the array is present.
pub(crate) fn members(config: &Config, state_dir: &Path) -> Result<Vec<PathBuf>, CliError> {
    let choice = choice(config.array.as_deref());
    let (began, patience) = (Instant::now(), Duration::from_secs(config.wait_seconds));
    loop {
        let devices = match (config.members.is_empty(), config.devices.is_empty()) {
            (false, _) => config
                .members
                .iter()
                .filter(|path| braid_member::may_be_there(path))
                .cloned()
                .collect(),
            (true, true) => all_devices(),
            (true, false) => matching(&config.devices)?,
        };
        // A later opening of the members reports any error in them.
        if !config.members.is_empty() && devices.len() == config.members.len() {
            return Ok(devices);
        }
        let looked = look(&devices);
        let of_it: Vec<&MemberDevice> = looked.iter().filter(|one| one.is_of(&choice)).collect();
        if is_complete(&of_it, &choice, state_dir) || began.elapsed() >= patience {
            if devices.is_empty() || config.members.is_empty() && of_it.is_empty() {
                return Err(nowhere(config, devices.len()));
            }
            let missing = config.members.iter().filter(|path| !devices.contains(path));
            missing.for_each(|path| {
                let waited = began.elapsed().as_secs();
                errln!("{} is not here after {waited} s: starting with the others", path.display());
            });
            if !config.members.is_empty() {
                return Ok(devices);
            }
            return Ok(of_it.into_iter().map(|one| stable_name(&one.path)).collect());
        }
        sleep(LOOK_INTERVAL.min(patience.saturating_sub(began.elapsed())));
    }
}

fn nowhere(config: &Config, looked_at: usize) -> CliError {
    let waited = config.wait_seconds;
    let (what, about) = match (&config.array, config.members.first()) {
        (_, Some(member)) => {
            (format!("{} is not here, nor any other member", member.display()), None)
        }
        (array, None) => {
            let array = array.as_deref().expect("a file says which array, or its members");
            (format!("no member of the array {array} is here"), Some(array))
        }
    };
    let error = CliError::new(Code::MemberMissing, what);
    let error = about.into_iter().fold(error, CliError::about);
    let error = error.because(format!("{looked_at} devices were searched, for {waited} s"));
    let error = error.because(format!("{} names it", config.path.display()));
    error.remedy(Risk::Look, "See which arrays exist", "braid scan").remedy(
        Risk::Look,
        "See the disks",
        "lsblk",
    )
}
