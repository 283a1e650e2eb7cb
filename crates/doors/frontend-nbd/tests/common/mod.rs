//! A served export, a blocking client on braid's own client session, and exports that misbehave.

#![allow(dead_code, unreachable_pub, missing_docs)] // each test file uses its own part
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests: a panic is a failure

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::{
    BlockSizes, ClientRequest, Completion, Endpoint, Export, Notice, NoticeListener, Outcome,
    Server, Settings, StartError,
};
use braid_nbd_proto::{
    ClientEvent, ClientPlan, ClientSession, Command, ErrorCode, ExportInfo, Goal, Style,
};
use braid_ring::Workers;
use braid_test_needs::{Need, skip};

pub struct TestServer {
    pub server: Server,
    pub socket: PathBuf,
    pub folder: tempfile::TempDir,
}

pub fn serve(exports: Vec<Arc<dyn Export>>, settings: Settings) -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nbd.sock");
    let server = start(exports, &[Endpoint::Unix(socket.clone())], settings).unwrap();
    TestServer { server, socket, folder }
}

/// Whether workers serve the connections: true in `over_the_ring`.
pub fn is_over_the_ring() -> bool {
    env!("CARGO_CRATE_NAME") == "over_the_ring"
}

/// Workers for all servers of this process; `None` if io_uring is not available.
pub fn workers() -> Option<&'static Arc<Workers>> {
    static WORKERS: OnceLock<Option<Arc<Workers>>> = OnceLock::new();
    let start = || match Workers::start(&braid_ring::Settings::default()) {
        Ok(workers) => Some(Arc::new(workers)),
        Err(error) if error.is_lack() => {
            skip(Need::Rings, &format!("over threads instead of rings: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    };
    WORKERS.get_or_init(start).as_ref()
}

/// A server over the transport that is being tested.
pub fn start(
    exports: Vec<Arc<dyn Export>>,
    endpoints: &[Endpoint],
    settings: Settings,
) -> Result<Server, StartError> {
    match workers().filter(|_| is_over_the_ring()) {
        Some(workers) => Server::start_on(workers, exports, endpoints, settings),
        None => Server::start(exports, endpoints, settings),
    }
}

/// Starts a server, and collects its notices.
pub fn serve_heard(exports: Vec<Arc<dyn Export>>, settings: Settings) -> (TestServer, NoticeLog) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nbd.sock");
    let told = NoticeLog::default();
    let ears = Arc::clone(&told);
    let listener: NoticeListener = Arc::new(move |notice| ears.lock().unwrap().push(notice));
    let workers = workers().filter(|_| is_over_the_ring());
    let endpoints = [Endpoint::Unix(socket.clone())];
    let server = Server::start_heard(workers, exports, &endpoints, (settings, listener)).unwrap();
    (TestServer { server, socket, folder }, told)
}

/// Notices that the server has raised so far.
pub type NoticeLog = Arc<Mutex<Vec<Notice>>>;

pub fn serve_memory(size_bytes: usize) -> (TestServer, Arc<MemoryExport>) {
    let export = Arc::new(MemoryExport::new("array", size_bytes));
    (serve(vec![export.clone()], Settings::default()), export)
}

/// A blocking client, which has one request in flight, or many with `send` and `wait`.
pub struct Client {
    pub stream: UnixStream,
    session: ClientSession,
    input: Vec<u8>,
    pub info: ExportInfo,
    cookie: u64,
}

impl Client {
    pub fn connect(socket: &Path) -> Self {
        Self::try_connect(socket, "", true).expect("the server lets a client in")
    }

    /// Connects; `None` if the server ends the connection before transmission.
    pub fn try_connect(socket: &Path, export: &str, structured: bool) -> Option<Self> {
        let style = if structured { Style::Structured } else { Style::Simple };
        Self::connect_as(socket, export, style)
    }

    /// Connects as `try_connect` does, in any message style.
    pub fn connect_as(socket: &Path, export: &str, style: Style) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let session = ClientSession::new(ClientPlan {
            export: export.into(),
            goal: Goal::Transmit,
            start_tls: false,
            structured_replies: style == Style::Structured,
            extended_headers: style.is_extended(),
            allocation_context: style.has_chunks(),
        });
        let info = ExportInfo::default();
        let mut client = Self { stream, session, input: Vec::new(), info, cookie: 0 };
        loop {
            match client.next_event()? {
                ClientEvent::Transmit(bytes) => client.stream.write_all(&bytes).ok()?,
                ClientEvent::Ready(info) => {
                    client.info = info;
                    return Some(client);
                }
                ClientEvent::Close(_) => return None,
                other => panic!("{other:?}"),
            }
        }
    }

    /// The client's next event; `None` when the server has closed the connection.
    pub fn next_event(&mut self) -> Option<ClientEvent> {
        loop {
            if let Some(event) = self.session.poll_event() {
                return Some(event);
            }
            if self.input.is_empty() {
                let mut buffer = [0; 16 * 1024];
                let received = self.stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
                self.input.extend_from_slice(&buffer[..received]);
            }
            let taken = self.session.handle_bytes(&self.input);
            self.input.drain(..taken);
        }
    }

    fn receive_payload(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut payload: Vec<u8> = self.input.drain(..length.min(self.input.len())).collect();
        let buffered = payload.len();
        payload.resize(length, 0);
        self.stream.read_exact(&mut payload[buffered..]).ok()?;
        self.session.payload_consumed(length as u32);
        Some(payload)
    }

    /// Sends a request without waiting; returns its cookie.
    pub fn send(&mut self, command: Command, payload: &[u8]) -> u64 {
        self.cookie += 1;
        let header = self.session.submit(self.cookie, command).unwrap();
        self.stream.write_all(&header).unwrap();
        self.stream.write_all(payload).unwrap();
        self.cookie
    }

    /// Sends a disconnect request (DISC).
    pub fn say_goodbye(&mut self) {
        self.stream.write_all(&self.session.disconnect()).unwrap();
    }

    /// Waits for one request to end: its cookie, its result, and the data of a READ.
    pub fn wait(&mut self) -> Option<(u64, Result<Vec<u8>, ErrorCode>)> {
        let mut data = Vec::new();
        loop {
            match self.next_event()? {
                ClientEvent::Data { length, .. } => data = self.receive_payload(length as usize)?,
                ClientEvent::Completed { cookie, result } => {
                    return Some((cookie, result.map(|()| data)));
                }
                ClientEvent::BlockStatus { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn call(&mut self, command: Command, payload: &[u8]) -> Result<Vec<u8>, ErrorCode> {
        let sent = self.send(command, payload);
        let (cookie, result) = self.wait().expect("the server answers");
        assert_eq!(cookie, sent);
        result
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, ErrorCode> {
        self.call(Command::Read { offset, length, dont_fragment: false }, &[])
    }

    pub fn write(&mut self, offset: u64, payload: &[u8]) -> Result<(), ErrorCode> {
        let length = payload.len() as u32;
        self.call(Command::Write { offset, length, fua: false }, payload).map(drop)
    }
}

/// The closure that carries out an [`OddExport`]'s operations.
pub type Handler = Box<dyn Fn(ClientRequest, Completion) + Send + Sync>;

/// An export of 1 MiB whose `submit` is a closure.
pub struct OddExport(pub Handler);

impl OddExport {
    pub fn shared(
        handler: impl Fn(ClientRequest, Completion) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self(Box::new(handler)))
    }
}

impl Export for OddExport {
    fn name(&self) -> &str {
        "odd"
    }

    fn size_bytes(&self) -> u64 {
        1 << 20
    }

    fn read_only(&self) -> bool {
        false
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::BYTE_GRANULAR
    }

    fn submit(&self, operation: ClientRequest, done: Completion) {
        (self.0)(operation, done);
    }
}

/// Completes a request with success and the request's own payload.
pub fn succeed(operation: ClientRequest, done: Completion) {
    let payload = match operation {
        ClientRequest::Read { payload, .. } | ClientRequest::Write { payload, .. } => Some(payload),
        _ => None,
    };
    done.complete(Outcome { result: Ok(()), payload });
}

/// Operations that are held until a test releases them.
pub type Shelf = Arc<Mutex<Vec<(ClientRequest, Completion)>>>;

/// An export that answers no request until the test empties the shelf.
pub fn shelving() -> (Arc<OddExport>, Shelf) {
    let shelf = Shelf::default();
    let inner = Arc::clone(&shelf);
    let export = OddExport::shared(move |operation, done| {
        inner.lock().unwrap().push((operation, done));
    });
    (export, shelf)
}

pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came to be that {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
