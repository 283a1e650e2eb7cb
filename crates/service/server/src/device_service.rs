//! Serves a device from its listeners to its durable end.

use std::sync::Arc;

use braid_console::error::{CliError, Exit};
use braid_runtime::Disk;
use serde_json::json;

use super::address::check_export;
use super::array::{Context, Inputs, STOP_DEADLINE, serve_until_end};
use super::device::Device;
use super::doors::{DoorPlaces, Doors};
use super::endpoints::Endpoints;
use super::other_arrays::OtherArrays;
use super::parts::Part;
use super::report::Reporter;
use super::wait::Watch;
use super::{io, service};

/// Serves a device, its parts, and the other arrays of the rescue.
pub(super) fn serve(
    context: Context<'_>,
    device: &Device,
    (others, parts): (OtherArrays, &[Box<dyn Part>]),
    watch: &Watch,
) -> Result<Exit, CliError> {
    let Context { config, globals, .. } = context;
    let inputs = Inputs::take(config, None)?;
    let reporter = Arc::new(Reporter::of_device(globals, device));
    inputs.tell_little_memory(config, &reporter);
    let Inputs { inherited, tls, settings, .. } = inputs;
    config.nbd.iter().try_for_each(|address| check_export(&address.export, &device.name))?;
    let places = DoorPlaces::take(config, device.uuid, &reporter)?;
    let own = Some(&device.name).filter(|_| inherited.nbd.is_empty());
    let endpoints =
        Endpoints::new(config, tls.as_ref(), (own.map(String::as_str), reporter.uuid()))?;
    let workers = io::workers(&config.io, &reporter)?;
    let told = Arc::clone(&reporter);
    let (disk, export) = device.export(move |error| {
        let text = format!("a request of a client failed: {error}; the log has later ones");
        told.aside("device-error", &json!({ "why": error.to_string() }), &text);
    })?;
    let arrays = others.exports(&export);
    let stretches = parts.iter().map(|part| part.export(&arrays));
    let exports: Vec<_> = std::iter::once(export).chain(stretches).collect();
    let by = (workers.as_ref(), &reporter);
    let server = endpoints.listen(config, exports, (inherited.nbd, settings), by)?;
    let served = (Arc::clone(&disk) as Arc<dyn Disk>, device.logical_block_bytes);
    let doors = Doors::open(places, served, workers.as_ref(), &reporter)?;
    let uris = |name: &str| server.uris(name).map(|uri| uri.to_string()).collect::<Vec<_>>();
    let addresses = doors.addresses(uris(&device.name));
    reporter.serving((disk.size_bytes(), device.read_only), &addresses, None);
    parts.iter().for_each(|part| reporter.part(&**part, &uris(part.name())));
    tracing::info!(target: "braid::serve", array = device.name, reached = ?addresses, "serving");
    let watchdog = service::ready(&[], workers.as_ref(), (&reporter, &addresses.uris));
    let outcome = serve_until_end(context, (watch, &reporter), &addresses);
    service::stopping();
    let meter = server.meter();
    doors.close(STOP_DEADLINE, &reporter);
    let clients = server.stop(STOP_DEADLINE);
    let mut in_order = others.stop(config.stop_patience());
    let ended = disk.end(config.stop_patience());
    drop(watchdog);
    if let Err(error) = &ended {
        in_order = false;
        let text = format!("the latest writes to {} may be lost: {error}", device.name);
        reporter.aside("device-not-flushed", &json!({ "why": error.to_string() }), &text);
    }
    reporter.stopped(None, in_order, clients.cut, &meter.counts());
    let exit = outcome?;
    Ok(if in_order { exit } else { Exit::Attention })
}
