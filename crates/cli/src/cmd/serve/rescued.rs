//! Serving an array that `braid rescue` has opened: its members are only read, and what is written goes into an overlay.
//!
//! What it does not do: open anything (`cmd/rescue`). There is no control socket: nothing is added to an array that is rescued, and a
//! signal stops it.

use super::parts::Rescued;
use super::place::address;
use super::wait::Watch;
use super::{Args, Origin, confine, one};
use crate::cmd::Globals;
use crate::error::system::system;
use crate::error::{CliError, Exit};
use crate::log::Log;

/// Serves until it is told to stop.
pub(crate) fn serve(args: &Args, found: Rescued, globals: &Globals) -> Result<Exit, CliError> {
    let addresses = args.uris.iter().map(|uri| address(uri)).collect::<Result<Vec<_>, _>>()?;
    let ways = args.telling.ways(globals)?;
    let confining = confine::begin(args, &addresses, globals)?;
    let _log = Log::start(&args.log)?;
    let watch = Watch::new().map_err(|error| system("signals cannot be watched", &error))?;
    one(args, Origin::Rescued(Box::new(found)), (&watch, globals), (ways, &confining), None)
}
