//! Tests the server from outside: with real sockets, hand-written requests, and answers checked
//! against the document.

use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use braid_control::model::{
    Array, Clients, Elevators, Found, Job, JobEffect, JobKind, JobRequest, JobState, JobsAnswer,
    JobsWanted, MemberChanged, MemberEffect, MemberRequest, MembersAnswer, MembersWanted, Problem,
    ProblemRemedy, ReadErrors, RemedyRisk, Role, SettingValue, Settings, SettingsAnswer,
    ShapeAnswer, ShapeWanted, Slot, SlotState, State, StopPlan, Stopped, VERSION,
};
use braid_control::{
    Client, ClientError, DESCRIPTORS_MAX, Limits, Misuse, PassedDescriptors, Refusal, ServedArray,
    Server, StopTeller, routes, stopping,
};
use braid_test_needs::{Need, skip};
use serde_json::Value;

const LIMIT: Duration = Duration::from_millis(600);

#[derive(Default)]
struct Fake {
    settings: Mutex<Settings>,
    stops: AtomicUsize,
    delay: Duration,
    /// Content of the files whose descriptors came with requests.
    read: Mutex<Vec<String>>,
}

fn refusal(status: StatusCode, title: &str) -> Refusal {
    let remedy = ProblemRemedy {
        label: "See how".into(),
        command: "braid --help".into(),
        risk: RemedyRisk::Look,
    };
    let problem = Problem {
        code: "B001".into(),
        title: title.into(),
        cause: "the test wanted it".into(),
        subject: None,
        remedies: vec![remedy],
    };
    Refusal { status, problem: Box::new(problem) }
}

impl Fake {
    fn answer(&self, from: &Settings, to: &Settings, dry_run: bool) -> SettingsAnswer {
        SettingsAnswer {
            version: VERSION,
            name: "tank".into(),
            uuid: "0:0:0:0".into(),
            settings: to.clone(),
            changed: SettingsAnswer::changes(from, to),
            dry_run,
        }
    }
}

impl ServedArray for Fake {
    fn array(&self) -> Result<Array, Refusal> {
        std::thread::sleep(self.delay);
        let slot = Slot {
            slot: Some(0),
            replaces: None,
            member: Some("/dev/sdb".into()),
            role: Role::Active,
            state: SlotState::Ok,
            since: None,
            cause: None,
            bad_sectors: 0,
            write_mostly: false,
            read_errors: ReadErrors::default(),
            link: None,
        };
        Ok(Array {
            reshape: None,
            whole_size_bytes: None,
            version: VERSION,
            name: "tank".into(),
            uuid: "0:0:0:0".into(),
            level: "raid1".into(),
            layout: None,
            metadata: "1.2".into(),
            chunk_bytes: None,
            size_bytes: 1 << 20,
            state: State::Ok,
            read_only: false,
            dirty: false,
            can_lose: 1,
            parity_in_doubt: false,
            copies_in_doubt: false,
            slots: vec![slot],
            replaced: Vec::new(),
            left_out: Vec::new(),
            jobs: Vec::new(),
            last_jobs: Vec::new(),
            next_check: None,
            jobs_paused: false,
            pace: None,
            advice: Vec::new(),
            failure: None,
            lost: None,
            uris: Vec::new(),
            file: None,
            device: None,
            vhost_user: None,
            settings: self.settings.lock().expect("no panic under it").clone(),
            dirty_bytes: 0,
            bitmap: None,
            parity_logs: None,
            journal: None,
            clients: Clients::default(),
            confined: Vec::new(),
            sat_out_ms: 0,
            counters: BTreeMap::new(),
            server: braid_control::model::Server {
                pid: 1,
                version: "0".into(),
                control: "/run/braid/tank.control".into(),
                log: None,
                since: "2026-11-22T00:00:00Z".into(),
                stopping: false,
            },
        })
    }

    fn settings(&self) -> Result<SettingsAnswer, Refusal> {
        let settings = self.settings.lock().expect("no panic under it").clone();
        Ok(self.answer(&settings, &settings, false))
    }

    fn set(&self, wanted: &Settings, dry_run: bool) -> Result<SettingsAnswer, Refusal> {
        if wanted.contains_key("wrong") {
            return Err(refusal(StatusCode::BAD_REQUEST, "there is no setting called wrong"));
        }
        let mut settings = self.settings.lock().expect("no panic under it");
        let from = settings.clone();
        let mut to = from.clone();
        to.extend(wanted.clone());
        if !dry_run {
            settings.clone_from(&to);
        }
        Ok(self.answer(&from, &to, dry_run))
    }

    fn elevators(&self) -> Result<Elevators, Refusal> {
        Ok(Elevators {
            version: VERSION,
            name: "tank".into(),
            uuid: "0:0:0:0".into(),
            settings: Settings::new(),
            is_multiplexed: false,
            elevators: Vec::new(),
            slices: Vec::new(),
        })
    }

    fn change_members(
        &self,
        wanted: &MembersWanted,
        passed: &PassedDescriptors,
        dry_run: bool,
    ) -> Result<MembersAnswer, Refusal> {
        for descriptor in passed.take() {
            let mut text = String::new();
            std::fs::File::from(descriptor).read_to_string(&mut text).expect("a file");
            self.read.lock().expect("no panic under it").push(text);
        }
        let changed = |member: &String| MemberChanged {
            member: member.clone(),
            slot: None,
            effect: MemberEffect::Waits,
            returns: false,
            kept_sectors: 0,
        };
        if wanted.members.is_empty() {
            return Err(refusal(StatusCode::BAD_REQUEST, "no member was named"));
        }
        Ok(MembersAnswer {
            version: VERSION,
            name: "tank".into(),
            uuid: "0:0:0:0".into(),
            request: wanted.request,
            members: wanted.members.iter().map(changed).collect(),
            destroyed: wanted.destroy.clone(),
            saved_in: None,
            can_lose: 1,
            free_slots: 0,
            spares: 1,
            jobs_paused: false,
            dry_run,
        })
    }

    fn request_job(&self, request: JobRequest, dry_run: bool) -> Result<JobsAnswer, Refusal> {
        if request == JobRequest::EndCheck {
            return Err(refusal(StatusCode::CONFLICT, "there is no check"));
        }
        Ok(JobsAnswer {
            version: VERSION,
            name: "tank".into(),
            uuid: "0:0:0:0".into(),
            request,
            effect: JobEffect::Begins,
            jobs: vec![Job {
                kind: JobKind::Recovery,
                state: JobState::Running,
                from_bytes: 0,
                done_bytes: 512,
                total_bytes: 1024,
                percent: 50.0,
                bytes_per_second: Some(1),
                seconds_left: None,
                differing_sectors: 0,
                written_sectors: 1,
                unmade_sectors: 0,
                named_sectors: 0,
                found: Found::default(),
            }],
            last_jobs: Vec::new(),
            dry_run,
        })
    }

    fn change_shape(
        &self,
        _: &ShapeWanted,
        _: &PassedDescriptors,
        _: bool,
    ) -> Result<ShapeAnswer, Refusal> {
        unreachable!("no test asks for it")
    }

    fn plan_stop(&self, _: Option<&str>) -> Result<StopPlan, Refusal> {
        Ok(StopPlan {
            version: VERSION,
            name: "tank".into(),
            uuid: "0:0:0:0".into(),
            connections: 0,
            dirty_bytes: 0,
            dry_run: false,
        })
    }

    fn stop(&self, _: Option<&str>) {
        self.stops.fetch_add(1, Ordering::SeqCst);
    }

    fn misused(&self, misuse: &Misuse) -> Refusal {
        refusal(misuse.status(), &misuse.to_string())
    }
}

struct TestServer {
    server: Option<Server>,
    fake: Arc<Fake>,
    teller: Option<StopTeller>,
    path: PathBuf,
    document: Value,
    _folder: tempfile::TempDir,
}

impl TestServer {
    fn new() -> Self {
        Self::with(Fake::default(), Limits { head_deadline: LIMIT, ..Limits::default() })
    }

    fn with(fake: Fake, limits: Limits) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let listener = OwnedFd::from(UnixListener::bind(&path).expect("a socket"));
        let fake = Arc::new(fake);
        let served: Arc<dyn ServedArray> = fake.clone();
        let (teller, listener_of_stop) = stopping();
        let api = routes::api(&served, &listener_of_stop);
        let document = api.document();
        let router = routes::router(api, &served);
        let server = Server::start(listener, router, served, limits).expect("a thread");
        let (server, teller) = (Some(server), Some(teller));
        Self { server, fake, teller, path, document, _folder: folder }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).expect("a listener")
    }

    /// Sends `bytes`, and returns the server's answer up to the end of the connection.
    fn say(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may cut the connection before it has read all bytes.
        let _ = stream.write_all(bytes);
        heard(&mut stream)
    }

    fn ask(&self, method: &str, target: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let text = format!(
            "{method} {target} HTTP/1.1\r\nHost: braid\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let said = self.say(text.as_bytes());
        let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{said:?}"));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{said:?}"));
        (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("{said:?}")))
    }

    fn client(&self) -> Client<'_> {
        Client::new(&self.path, Some(Duration::from_secs(20)))
    }

    /// Checks that an answer's status and body match the document.
    fn check(&self, method: &str, path: &str, status: u16, body: &Value) {
        let operation = &self.document["paths"][path][method.to_ascii_lowercase()];
        let responses = &operation["responses"];
        let response = &responses[status.to_string()];
        let (response, media) = if response.is_null() {
            (&responses["default"], "application/problem+json")
        } else {
            (response, "application/json")
        };
        let mut schema = response["content"][media]["schema"].clone();
        assert!(schema.is_object(), "{method} {path} {status}: {responses}");
        schema["components"] = self.document["components"].clone();
        let validator = jsonschema::draft202012::new(&schema).expect("a schema");
        let errors: Vec<String> =
            validator.iter_errors(body).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{method} {path}: {errors:?}\n{body}");
    }
}

fn heard(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    // The connection may end by a reset if the server did not read all bytes.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn every_answer_is_as_the_document_says() {
    let test = TestServer::new();
    for (method, target, body, status) in [
        ("GET", "/v1/array", "", 200),
        ("GET", "/v1/settings", "", 200),
        ("GET", "/v1/elevators", "", 200),
        ("PATCH", "/v1/settings", r#"{"a":1,"b":"2K"}"#, 200),
        ("PATCH", "/v1/settings?dry_run=true", r#"{"a":3}"#, 200),
        ("PATCH", "/v1/settings", r#"{"wrong":1}"#, 400),
        ("PATCH", "/v1/settings", r#"{"a":-1}"#, 400),
        ("PATCH", "/v1/settings", r#"{"a":[]}"#, 400),
        ("PATCH", "/v1/settings", "[]", 400),
        ("PATCH", "/v1/settings", "", 400),
        ("PATCH", "/v1/settings?dry_run=maybe", "{}", 400),
        ("PATCH", "/v1/settings?dry-run=true", "{}", 400),
        ("GET", "/v1/array?what=all", "", 400),
        ("POST", "/v1/jobs", r#"{"request":"check"}"#, 200),
        ("POST", "/v1/jobs?dry_run=true", r#"{"request":"pause"}"#, 200),
        ("POST", "/v1/jobs", r#"{"request":"end-check"}"#, 409),
        ("POST", "/v1/jobs", r#"{"request":"dance"}"#, 400),
        ("POST", "/v1/jobs", r#"{"request":"check","limit":1}"#, 400),
        ("POST", "/v1/jobs", "", 400),
        ("POST", "/v1/members", r#"{"request":"add","members":["/dev/sde"]}"#, 200),
        ("POST", "/v1/members?dry_run=true", r#"{"request":"fail","members":["1"]}"#, 200),
        ("POST", "/v1/members", r#"{"request":"spare","members":["/a"],"destroy":["b"]}"#, 200),
        ("POST", "/v1/members", r#"{"request":"remove","members":[]}"#, 400),
        ("POST", "/v1/members", r#"{"request":"grow","members":["1"]}"#, 400),
        ("POST", "/v1/members", r#"{"request":"add"}"#, 400),
        ("POST", "/v1/stop?dry_run=true", "", 202),
        ("POST", "/v1/stop?detach=true", "", 202),
    ] {
        let (found, answer) = test.ask(method, target, body);
        assert_eq!(found, status, "{method} {target} {body}: {answer}");
        test.check(method, target.split('?').next().unwrap(), found, &answer);
    }
    assert_eq!(test.fake.stops.load(Ordering::SeqCst), 1, "a dry run stops nothing");
    let settings: SettingsAnswer = test.client().get("/v1/settings").unwrap();
    let text = |text: &str| SettingValue::Text(text.into());
    assert_eq!(settings.settings["a"], SettingValue::Number(1), "a dry run changes nothing");
    assert_eq!(settings.settings["b"], text("2K"));
}

#[test]
fn an_array_of_an_older_server_is_understood() {
    let test = TestServer::new();
    let (_, mut answer) = test.ask("GET", "/v1/array", "");
    for new in ["replaced", "jobs", "last_jobs", "jobs_paused"] {
        answer.as_object_mut().unwrap().remove(new).expect("a field");
    }
    let array: Array = serde_json::from_value(answer).unwrap();
    assert!(array.jobs.is_empty() && !array.jobs_paused);
}

#[test]
fn descriptors_come_with_the_request_that_they_are_sent_with() {
    let test = TestServer::new();
    let wanted = |count| MembersWanted {
        request: MemberRequest::Add,
        members: vec!["/dev/sde".into()],
        with: None,
        destroy: Vec::new(),
        write_mostly: false,
        descriptors: vec![count; usize::from(count > 0)],
    };
    let file = |text: &str| {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text.as_bytes()).and_then(|()| file.rewind()).expect("a file");
        file
    };
    let read = || std::mem::take(&mut *test.fake.read.lock().expect("no panic under it"));
    let post = |files: &[std::fs::File], count| {
        let descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        test.client().post_passing::<MembersAnswer>("/v1/members", &wanted(count), &descriptors)
    };
    post(&[file("a"), file("b")], 2).expect("an answer");
    assert_eq!(read(), ["a", "b"]);
    post(&[], 0).expect("an answer");
    assert_eq!(read(), [""; 0]);
    let many: Vec<_> = (0..DESCRIPTORS_MAX).map(|number| file(&number.to_string())).collect();
    post(&many, 128).expect("an answer");
    assert_eq!(read().len(), DESCRIPTORS_MAX);
    let too_many: Vec<_> = (0..=DESCRIPTORS_MAX).map(|_| file("x")).collect();
    assert!(post(&too_many, 129).is_err());
    // The next request gets none of the descriptors that came with the earlier request.
    let array = test.client().get::<Array>("/v1/array");
    assert!(array.is_ok() && read().is_empty());
}

#[test]
fn what_is_no_request_is_answered_and_the_next_client_is_served() {
    let test = TestServer::new();
    for (method, target, status) in [
        ("DELETE", "/", 405),
        ("GET", "/v1/nothing", 404),
        ("DELETE", "/v1/array", 405),
        ("POST", "/v1/settings", 405),
    ] {
        let (found, answer) = test.ask(method, target, "");
        assert_eq!((found, &answer["code"]), (status, &"B001".into()), "{answer}");
        assert!(answer["title"].as_str().unwrap().contains(target), "{answer}");
    }
    let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1000));
    for (bytes, status) in [
        (&b"\xff\xfe\x80\r\n\r\n"[..], "400"),
        (b"{}\n\r\n\r\n", "400"),
        (long.as_bytes(), "431"),
        (many.as_bytes(), "431"),
    ] {
        let said = test.say(bytes);
        assert!(said.starts_with("HTTP/1.1 ") && said.contains(status), "{said:?}");
        assert_eq!(test.ask("GET", "/v1/array", "").0, 200);
    }
    let body = format!("{{\"a\":\"{}\"}}", "b".repeat(1 << 20));
    let (status, answer) = test.ask("PATCH", "/v1/settings", &body);
    assert_eq!(status, 413, "{answer}");
}

/// The tests of `origin_check` test each header by itself.
#[test]
fn a_page_of_another_site_does_not_stop_the_array() {
    let test = TestServer::new();
    let post = |target: &str, more: &str| {
        let said = test
            .say(format!("POST {target} HTTP/1.1\r\nConnection: close\r\n{more}\r\n").as_bytes());
        said.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0_u16)
    };
    let (here, json) = ("Host: localhost:8080\r\n", "Content-Type: application/json\r\n");
    let stop = "/v1/stop?detach=true";
    assert_eq!(post(stop, &format!("{here}Content-Type: text/plain\r\n")), 415);
    assert_eq!(post(stop, &format!("{here}{json}Origin: http://evil.example\r\n")), 403);
    assert_eq!(post(stop, &format!("Host: evil.example\r\n{json}")), 421);
    assert_eq!(post(stop, &format!("{here}{here}{json}")), 400);
    let said =
        test.say(b"GET /v1/array HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert!(said.contains(" 421 ") && !said.contains("tank"), "{said}");
    assert_eq!(test.fake.stops.load(Ordering::SeqCst), 0);
    assert_eq!(post(stop, &format!("{here}{json}")), 202, "through a port that ssh leads here");
    assert_eq!(test.fake.stops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_refusal_comes_to_the_client_as_it_is() {
    let test = TestServer::new();
    let wanted = Settings::from([("wrong".to_owned(), SettingValue::Number(1))]);
    let refused = test.client().patch::<SettingsAnswer>("/v1/settings", &wanted);
    let Err(ClientError::Refused(problem)) = refused else { panic!("{refused:?}") };
    assert_eq!((problem.code.as_str(), problem.remedies.len()), ("B001", 1));
    let wanted = JobsWanted { request: JobRequest::EndCheck };
    let refused = test.client().post_with::<JobsAnswer>("/v1/jobs", &wanted);
    assert!(matches!(refused, Err(ClientError::Refused(_))), "{refused:?}");
    let refused = test.client().get::<Array>("/v1/nothing");
    assert!(matches!(refused, Err(ClientError::Refused(_))), "{refused:?}");
}

#[test]
fn a_byte_now_and_then_is_no_way_to_stay() {
    let test = TestServer::new();
    let mut stream = test.connect();
    let begun = Instant::now();
    while stream.write_all(b"a").is_ok() {
        assert!(begun.elapsed() < 5 * LIMIT, "it is still there");
        std::thread::sleep(LIMIT / 10);
    }
    assert!(begun.elapsed() >= LIMIT / 2, "it was cut off before its time");
    // After a request the connection stays open for the next one, but not for ever.
    let mut stream = test.connect();
    stream.write_all(b"GET /v1/array HTTP/1.1\r\nHost: braid\r\n\r\n").unwrap();
    let begun = Instant::now();
    assert!(heard(&mut stream).contains("200 OK"));
    assert!(begun.elapsed() < 5 * LIMIT, "{:?}", begun.elapsed());
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let test = TestServer::new();
    let begun = Instant::now();
    let head = "PATCH /v1/settings HTTP/1.1\r\nHost: braid\r\nContent-Type: application/json\r\n\
                Content-Length: 9\r\n\r\n{";
    let said = test.say(head.as_bytes());
    assert!(said.contains(" 408 ") && said.contains("did not come"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn the_longest_silent_makes_room() {
    let limits = Limits { head_deadline: Duration::from_secs(600), ..Limits::default() };
    let test = TestServer::with(Fake::default(), limits);
    let mut silent: Vec<UnixStream> =
        (0..2 * limits.connections_max).map(|_| test.connect()).collect();
    assert_eq!(test.ask("GET", "/v1/array", "").0, 200);
    assert_eq!(heard(&mut silent[0]), "", "the first one was cut off");
    assert_eq!(test.ask("GET", "/v1/array", "").0, 200);
}

#[test]
fn a_client_that_does_not_read_keeps_no_other_waiting() {
    let test = TestServer::new();
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: braid\r\n\r\n";
    let deaf: Vec<UnixStream> = (0..8)
        .map(|_| {
            let mut stream = test.connect();
            stream.set_write_timeout(Some(LIMIT)).unwrap();
            while stream.write_all(request).is_ok() {}
            stream
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(test.ask("GET", "/v1/array", "").0, 200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(deaf);
}

/// Regression: a client failed with "Resource temporarily unavailable" while other clients were in
/// the socket's queue.
#[test]
fn a_client_waits_for_room_in_the_queue_of_the_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("full");
    let listener = UnixListener::bind(&path).expect("a socket");
    rustix::net::listen(&listener, 0).expect("the socket listens already");
    let _first = UnixStream::connect(&path).expect("a queue of one");
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        let _accepted = listener.accept().expect("the first");
        let (mut stream, _) = listener.accept().expect("the client");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").expect("it reads");
        stream.read_to_end(&mut Vec::new()).expect("the request")
    });
    let client = Client::new(&path, Some(Duration::from_secs(5)));
    let answer: Result<Value, ClientError> = client.get("/v1/settings");
    assert_eq!(answer.expect("an answer"), serde_json::json!({}));
    assert!(late.join().expect("it does not panic") > 0);
}

#[test]
fn an_array_that_takes_its_time_keeps_no_other_client_waiting() {
    let slow = Fake { delay: Duration::from_secs(3), ..Fake::default() };
    let test = TestServer::with(slow, Limits::default());
    let mut waiting = test.connect();
    waiting.write_all(b"GET /v1/array HTTP/1.1\r\nHost: braid\r\n\r\n").unwrap();
    let begun = Instant::now();
    assert_eq!(test.ask("GET", "/v1/settings", "").0, 200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn a_stop_waits_for_no_client() {
    let limits = Limits { head_deadline: Duration::from_secs(600), ..Limits::default() };
    let mut test = TestServer::with(Fake::default(), limits);
    let mut silent: Vec<UnixStream> = (0..8).map(|_| test.connect()).collect();
    silent[3].write_all(b"GET /v1/arr").unwrap();
    assert_eq!(test.ask("GET", "/v1/array", "").0, 200, "all are there");
    let begun = Instant::now();
    drop(test.server.take());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(heard(&mut silent[3]), "");
}

#[test]
fn another_user_is_not_answered() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Other, "only root can become another user");
    }
    let test = TestServer::new();
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    // Acts as a careless administrator who lets every user reach the socket.
    open(&test.path);
    open(test.path.parent().unwrap());
    let path = test.path.clone();
    let said = std::thread::spawn(move || {
        let other = rustix::fs::Uid::from_raw(65_534);
        // Changes the user of this thread alone.
        rustix::thread::set_thread_res_uid(other, other, other).unwrap();
        let mut stream = UnixStream::connect(path).unwrap();
        let _ = stream.write_all(b"GET /v1/array HTTP/1.1\r\nHost: braid\r\n\r\n");
        heard(&mut stream)
    });
    let said = said.join().unwrap();
    assert!(said.starts_with("HTTP/1.1 403 ") && said.contains("user 65534"), "{said}");
    assert!(!said.contains("tank"), "{said}");
    assert_eq!(test.ask("GET", "/v1/array", "").0, 200);
}

#[test]
fn a_client_that_stops_the_array_is_answered_when_it_has_stopped() {
    let mut test = TestServer::new();
    let path = test.path.clone();
    let asking = std::thread::spawn(move || Client::new(&path, None).post::<Stopped>("/v1/stop"));
    while test.fake.stops.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!asking.is_finished(), "it has not stopped yet");
    let stopped = Stopped {
        version: VERSION,
        name: "tank".into(),
        uuid: "0:0:0:0".into(),
        in_order: true,
        clean: true,
        connections_cut: 0,
    };
    test.check("POST", "/v1/stop", 200, &serde_json::to_value(&stopped).unwrap());
    test.teller.take().unwrap().tell(Ok(stopped.clone()));
    // Ends the server right after the report, as at the end of serving: the server sends the answer
    // before it cuts the connection.
    drop(test.server.take());
    assert_eq!(asking.join().unwrap().unwrap(), stopped);
}

#[test]
fn a_server_that_goes_without_a_word_is_an_error() {
    let mut test = TestServer::new();
    let path = test.path.clone();
    let asking = std::thread::spawn(move || Client::new(&path, None).post::<Stopped>("/v1/stop"));
    while test.fake.stops.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(test.server.take());
    assert!(matches!(asking.join().unwrap(), Err(ClientError::Ended(_))));
    let gone = test.client().get::<Array>("/v1/array");
    let Err(ClientError::Connect(error)) = gone else { panic!("{gone:?}") };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}
