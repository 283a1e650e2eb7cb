//! The NBD server of one or several arrays: its addresses, and the listeners to its notices.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_frontend_nbd::tls::Tls;
use braid_frontend_nbd::{
    BindError, Export, Listener, NoticeListener, Server, Settings, StartError,
};
use braid_ring::Workers;
use tempfile::TempDir;

use super::address::{Address, ListenEndpoint, bind_error, own_endpoint};
use super::config::ServerConfig;
use super::descriptors;
use super::report::Reporter;

pub(super) struct Endpoints {
    listened: Vec<ListenEndpoint>,
    /// The folder of a socket that exists for one command only; removed on drop.
    _folder: Option<TempDir>,
}

impl Endpoints {
    /// The requested addresses. Without requested addresses, a socket of the server's own with the
    /// name `name`, if there is a name.
    pub(super) fn new(
        config: &ServerConfig,
        tls: Option<&Tls>,
        (socket_name, uuid): (Option<&str>, &str),
    ) -> Result<Self, CliError> {
        if config.nbd.is_empty()
            && let Some(name) = socket_name
        {
            let (listened, folder) = own_endpoint((name, uuid), config.run.is_some())?;
            return Ok(Self { listened: vec![listened], _folder: folder });
        }
        let listened = config.nbd.iter().map(|address| place_of(address, tls)).collect();
        Ok(Self { listened, _folder: None })
    }

    /// Listens at these addresses and at sockets from the service manager, if there are file
    /// descriptors for at least one client.
    pub(super) fn listen(
        &self,
        config: &ServerConfig,
        exports: Vec<Arc<dyn Export>>,
        (inherited, settings): (Vec<OwnedFd>, Settings),
        (workers, reporter): (Option<&Arc<Workers>>, &Arc<Reporter>),
    ) -> Result<Server, CliError> {
        let (sender, notices) = std::sync::mpsc::channel();
        let told = Arc::clone(reporter);
        // Reports notices on a thread of its own: the output may be slow, and the threads that
        // raise notices serve clients.
        let tell = move || notices.iter().for_each(|notice| told.client_notice(notice));
        let thread = std::thread::Builder::new().name("braid-notices".into()).spawn(tell);
        thread.map_err(|error| system("the server could not be started", &error))?;
        // If the reporting thread has ended, the notice is dropped.
        let listener: NoticeListener = Arc::new(move |notice| {
            let _ = sender.send(notice);
        });
        let adopted = inherited.into_iter().map(|socket| Ok((Listener::adopt(socket)?, None)));
        let listeners = self.listened.iter().map(bind).chain(adopted);
        let started = listeners
            .collect::<Result<_, BindError>>()
            .map_err(StartError::from)
            .and_then(|listeners| {
                Server::start_listening(workers, exports, listeners, (settings, listener))
            });
        let server = started.map_err(|error| start_error(&error, config))?;
        let fit = descriptors::room(settings.connections_max)?;
        if fit < settings.connections_max {
            reporter.few_descriptors(fit, settings.connections_max);
        }
        Ok(server)
    }
}

/// Listens at one address.
pub(super) fn listener(
    address: &Address,
    tls: Option<&Tls>,
) -> Result<(Listener, Option<Tls>), BindError> {
    bind(&place_of(address, tls))
}

fn place_of(address: &Address, tls: Option<&Tls>) -> ListenEndpoint {
    let tls = tls.filter(|_| address.is_tls).cloned();
    ListenEndpoint { endpoint: address.endpoint.clone(), tls, otherwise: None }
}

fn bind(place: &ListenEndpoint) -> Result<(Listener, Option<Tls>), BindError> {
    let ListenEndpoint { endpoint, tls, otherwise } = place;
    let listener = match (tls, otherwise) {
        (Some(_), _) => Listener::bind_open(endpoint)?,
        (None, None) => Listener::bind(endpoint)?,
        (None, Some(otherwise)) => match Listener::bind(endpoint) {
            Err(BindError::InUse(_)) => Listener::bind(otherwise)?,
            listener => listener?,
        },
    };
    Ok((listener, tls.clone()))
}

fn start_error(error: &StartError, config: &ServerConfig) -> CliError {
    match error {
        StartError::Bind(bind) => bind_error(bind),
        StartError::System(error) => system("the server could not be started", error),
        StartError::NoExports
        | StartError::NoEndpoints
        | StartError::Name(_)
        | StartError::DuplicateName(_) => {
            let member = config.members.first();
            let member = member.map_or_else(String::new, |path| path.display().to_string());
            let look = format!("braid examine {}", shell_word(&member));
            CliError::new(Code::ArrayNameInvalid, "the array's name cannot be served")
                .caused_by(error)
                .remedy(Risk::Look, "See its name", look)
        }
    }
}
