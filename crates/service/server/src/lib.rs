//! The service: serves one or several arrays over NBD, as a file, as a block device and to virtual
//! machines. A control socket shows and changes the arrays, a service manager watches the server,
//! and a stop ends the arrays in order.
//!
//! ```text
//!   ServerConfig ─ prepare ─▶ PreparedServer ─ serve ─▶ [`several`] ─▶ [`array`]
//!   opened by rescue ─ serve_rescued ─┬▶ [`array`]
//!                                     └▶ [`device_service`]: a device that stands for an array
//! ```
//!
//! `several` groups members into arrays by their superblocks. `array` serves one array from its
//! start to its stop.
//!
//! This crate reads neither a command line nor a file of settings. Its input is a [`ServerConfig`];
//! its result is an exit status or an error with a code.

#![forbid(unsafe_code)]

#[macro_use]
extern crate braid_console;

mod address;
mod answered_writes;
mod array;
mod array_export;
mod cache;
mod client_addresses;
mod clients;
mod command_line;
mod config;
mod confine;
mod control;
mod descriptors;
mod device;
mod device_service;
mod doors;
mod endpoints;
mod event_delivery;
mod export;
mod fuse;
mod health;
mod hook_process;
mod io;
mod io_flusher;
mod job_pace;
mod jobs;
mod links;
mod lost_ranges;
mod member_server;
mod membership;
mod metrics;
mod notice_listeners;
mod open_errors;
mod other_arrays;
mod owner;
mod parts;
mod patience;
mod read_errors;
mod report;
mod scheduling;
mod service;
mod setting_words;
mod several;
mod shape_changes;
mod sit_out;
mod spare_group;
mod start_advice;
mod stop;
mod tls;
mod ublk;
mod vhost_user;
mod wait;

use braid_console::Globals;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit};

pub use address::{Address, own_folder};
use array::{Context, Origin, RescuedOthers, one};
pub use braid_store::StoreUri;
pub use config::{Confine, Io, IoConfig, OwnerConfig, ServerConfig};
pub use control::consistency::{FILE as BITMAP_FILE_KEY, NO_FILE as NO_BITMAP_FILE};
pub use device::Device;
pub use event_delivery::{EventConfig, Hooks};
pub use export::DiskExport;
pub use jobs::run as found_run;
pub use member_server::serve_members;
pub use metrics::MetricsConfig;
use other_arrays::OtherArrays;
pub use owner::has_host_letters;
pub use parts::{ArrayOrDevice, Part, RescuedArrays};
pub use setting_words::SettingWords;
pub use tls::TlsConfig;
use wait::Watch;

/// Whether arrays can share spares under this name; the error says why not.
///
/// # Errors
/// The name is too long or has other characters.
pub fn check_spare_group(name: &str) -> Result<String, String> {
    spare_group::SpareGroup::checked(name)
}

/// A server that has given up its privileges before it examines any member.
pub struct PreparedServer<'a> {
    config: &'a ServerConfig,
    globals: &'a Globals,
    hooks: Hooks,
    confinement: confine::Confinement,
}

/// Starts hooks, and gives up capabilities and access to files if configured. The process still has
/// one thread.
///
/// # Errors
/// A hook's address is invalid; the server cannot be confined as configured.
pub fn prepare<'a>(
    config: &'a ServerConfig,
    globals: &'a Globals,
) -> Result<PreparedServer<'a>, CliError> {
    let hooks = match config.confine {
        Confine::Off => config.events.hooks(globals)?,
        Confine::Auto | Confine::Full => config.events.hook_processes(globals)?,
    };
    // Hooks run as programs of their own: they come before, and the right is dropped afterwards.
    io_flusher::declare(config.file.is_some());
    let confinement = confine::begin(config, globals)?;
    Ok(PreparedServer { config, globals, hooks, confinement })
}

impl PreparedServer<'_> {
    /// Serves until a signal, a stop request or the end of the command of `--run`.
    ///
    /// # Errors
    /// The array cannot be assembled, opened or reached, or did not stop in order.
    pub fn serve(self) -> Result<Exit, CliError> {
        let Self { config, globals, hooks, confinement } = self;
        if let Some(metrics) = &config.metrics {
            metrics.check()?;
        }
        let context = Context { config, globals, confinement: &confinement };
        // A confined server examines the members of one array, and none before it is confined.
        if config.confine == Confine::Off
            && config.owner.is_none()
            && let Some(groups) = several::groups(config)?
        {
            return several::run(context, groups);
        }
        let watch = Watch::new().map_err(|error| system("signals cannot be watched", &error))?;
        one(context, Origin::Named(&config.members), &watch, hooks, None)
    }
}

/// Serves an array that `braid rescue` has opened: members are only read, and writes go into an
/// overlay. The server has no control socket, since no member may be added to a rescued array; a
/// signal stops the server.
///
/// # Errors
/// As for [`PreparedServer::serve`].
pub fn serve_rescued(
    config: &ServerConfig,
    found: RescuedArrays,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let hooks = config.events.hooks(globals)?;
    io_flusher::declare(config.file.is_some());
    let confinement = confine::begin(config, globals)?;
    let watch = Watch::new().map_err(|error| system("signals cannot be watched", &error))?;
    let context = Context { config, globals, confinement: &confinement };
    let RescuedArrays { first, others, parts } = found;
    match first {
        ArrayOrDevice::Array(ready) => {
            let others = RescuedOthers { others, parts };
            one(context, Origin::Rescued(ready, others), &watch, hooks, None)
        }
        ArrayOrDevice::Device(device) => {
            let others = OtherArrays::open(others, &array::options_of_rescue(config))?;
            device_service::serve(context, &device, (others, &parts), &watch)
        }
    }
}
