//! Metrics rendered, served and read again.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use braid_control::Names;
use braid_runtime::{JobKind, JobProgress};

use super::*;
use crate::event::{Change, Event, Identity, Outcome};
use crate::kind::Kind;
use crate::samples::{NASTY, identity};
use crate::standing::Standing;
use crate::teller::Counts;

pub(crate) fn snapshot(name: &str) -> Snapshot {
    let member = |name: &str, slot, state| Member {
        name: name.to_owned(),
        slot,
        state,
        corrected_read_errors: 21,
        link: (slot == Some(0)).then_some(MemberLink {
            is_up: true,
            reconnects: 4,
            mean_latency: Duration::from_micros(1500),
        }),
    };
    Snapshot {
        identity: Identity { array: name.to_owned(), ..identity() },
        level: "raid6".to_owned(),
        layout: "left-symmetric".to_owned(),
        metadata: "1.2".to_owned(),
        slots: 5,
        can_lose: 2,
        is_read_only: false,
        size_bytes: 44_040_192,
        dirty_bytes: 512,
        bitmap_bits: Some((3, 63)),
        disks: Disks { active: 5, spare: 1, ..Disks::default() },
        members: vec![
            member("/dev/a", Some(0), MemberState::Active),
            member(NASTY, Some(1), MemberState::Slow),
        ],
        job: None,
        sat_out_ms: 1500,
        counters: vec![("member_reads", 7), ("member_errors", 0)],
        elevators: vec![Elevator {
            slot: 1,
            waiting_reads: 2,
            waiting_writes: 3,
            in_flight: 4,
            dispatched: 5,
        }],
        front_ends: vec![FrontEnd {
            name: "nbd",
            connections: 2,
            requests: 9,
            read_bytes: 4096,
            rejected: vec![("full", 1)],
            errors: vec![("io", 3)],
            ..FrontEnd::default()
        }],
        standing: Standing::default(),
        told: Counts {
            outlets: vec![("mail", crate::OutletCounts::default())],
            ..Counts::default()
        },
    }
}

fn value<'t>(text: &'t str, sample: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))
}

#[test]
fn each_family_stands_once_with_all_arrays_and_all_states() {
    let text = render(vec![snapshot("tank"), snapshot("pool")], true);
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let count = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), count, "a family twice");
    for array in ["tank", "pool"] {
        for state in State::ALL {
            let sample =
                format!("braid_array_state{{array=\"{array}\",state=\"{}\"}}", state.word());
            let expected = if state == State::Ok { "1.0" } else { "0.0" };
            assert_eq!(value(&text, &sample), Some(expected), "{sample}\n{text}");
        }
    }
    for (sample, expected) in [
        ("braid_array_can_lose_disks{array=\"tank\"}", "2.0"),
        ("braid_array_disks{array=\"tank\",role=\"missing\"}", "0.0"),
        ("braid_members_sat_out_seconds_total{array=\"tank\"}", "1.5"),
        (
            "braid_member_corrected_read_errors_total{array=\"tank\",member=\"/dev/a\",slot=\"0\"}",
            "21.0",
        ),
        ("braid_member_link_up{array=\"tank\",member=\"/dev/a\"}", "1.0"),
        ("braid_member_link_reconnects_total{array=\"tank\",member=\"/dev/a\"}", "4.0"),
        ("braid_member_link_latency_seconds{array=\"tank\",member=\"/dev/a\"}", "0.0015"),
        ("braid_engine_member_reads_total{array=\"pool\"}", "7.0"),
        ("braid_io_bytes_total{array=\"tank\",frontend=\"nbd\",op=\"read\"}", "4096.0"),
        ("braid_io_errors_total{array=\"tank\",frontend=\"nbd\",error=\"io\"}", "3.0"),
        ("braid_elevator_waiting_requests{array=\"tank\",slot=\"1\",op=\"write\"}", "3.0"),
        ("braid_hook_events_total{array=\"tank\",hook=\"mail\",result=\"dropped\"}", "0.0"),
        ("node_md_disks{device=\"tank\",state=\"active\"}", "5.0"),
        ("node_md_disks_required{device=\"tank\"}", "5.0"),
        ("node_md_state{device=\"pool\",state=\"active\"}", "1.0"),
        ("node_md_blocks{device=\"pool\"}", "43008.0"),
    ] {
        assert_eq!(value(&text, sample), Some(expected), "{sample}\n{text}");
    }
    assert!(!render(vec![snapshot("tank")], false).contains("node_md"));
}

/// An alert or a panel that names a missing metric would stay silent for ever.
#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let mut one = snapshot("tank");
    let ended = Change::now(Kind::CheckFinished, "").ended(Outcome::Completed, &[]);
    one.standing.take(&Event::new(1, &identity(), ended));
    one.counters = braid_runtime::Counters::default().named();
    let text = render(vec![one], false);
    let known: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let is_part = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    for shipped in [
        include_str!("../../../../../docs/monitoring/alerts.yml"),
        include_str!("../../../../../docs/monitoring/dashboard.json"),
    ] {
        let names: Vec<&str> =
            shipped.split(is_part).filter(|word| word.starts_with("braid_")).collect();
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            assert!(known.contains(&name), "{name} is not among {known:?}");
        }
    }
    let dashboard = include_str!("../../../../../docs/monitoring/dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
    assert!(dashboard["panels"].as_array().expect("panels").len() > 10);
}

#[test]
fn no_name_breaks_a_line() {
    let text = render(vec![snapshot(NASTY)], true);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (labels, number) = line.rsplit_once(' ').expect("a value");
        assert!(number.parse::<f64>().is_ok(), "{line}");
        assert!(labels.starts_with("braid_") || labels.starts_with("node_md_"), "{line}");
    }
}

#[test]
fn the_gravest_state_is_told() {
    let mut one = snapshot("tank");
    assert_eq!(one.state(), State::Ok);
    one.disks.missing = 1;
    assert_eq!(one.state(), State::Degraded);
    one.job = Some(job(JobKind::Check));
    assert_eq!(one.state(), State::Degraded, "a check makes nothing whole");
    one.job = Some(job(JobKind::Recovery));
    assert_eq!(one.state(), State::Rebuilding);
    one.is_read_only = true;
    assert_eq!(one.state(), State::ReadOnly);
    for (kind, state) in [
        (Kind::OutOfSpace, State::Failed),
        (Kind::Broken, State::Failed),
        (Kind::ArrayStopped, State::Stopped),
    ] {
        one.standing.take(&Event::new(1, &identity(), Change::now(kind, "")));
        assert_eq!(one.state(), state);
    }
    let ended =
        Change::now(Kind::CheckFinished, "").ended(Outcome::Completed, &[("differing_sectors", 4)]);
    one.standing.take(&Event::new(2, &identity(), ended));
    let text = render(vec![one], false);
    assert_eq!(value(&text, "braid_scrub_mismatches{array=\"tank\"}"), Some("4.0"));
    assert_eq!(value(&text, "braid_events_total{array=\"tank\",kind=\"Broken\"}"), Some("1.0"));
}

fn job(kind: JobKind) -> JobProgress {
    let (from, done, end) = (0, 1024, 4096);
    JobProgress {
        kind,
        from,
        done,
        end,
        differing: 8,
        written: 0,
        located: 0,
        repaired: 0,
        ambiguous: 0,
        unmade: 0,
        named: 0,
        retries: false,
        paused: true,
    }
}

#[test]
fn a_job_is_told_while_it_is_there() {
    let md = ["recovering", "resync", "check", "active"];
    for (kind, word, state) in [
        (Some(JobKind::Recovery), "recovery", md[0]),
        (Some(JobKind::Resync), "resync", md[1]),
        (Some(JobKind::Check), "check", md[2]),
        (None, "", md[3]),
    ] {
        let mut one = snapshot("tank");
        one.disks.missing = u64::from(kind == Some(JobKind::Recovery));
        one.job = kind.map(job);
        let text = render(vec![one], true);
        for (name, expected) in [
            ("progress_ratio", "0.25"),
            ("done_bytes", "524288.0"),
            ("size_bytes", "2097152.0"),
            ("differing_sectors", "8.0"),
            ("paused", "1.0"),
        ] {
            let sample = format!("braid_sync_{name}{{array=\"tank\",kind=\"{word}\"}}");
            assert_eq!(value(&text, &sample), kind.map(|_| expected), "{sample}\n{text}");
        }
        for other in md {
            let sample = format!("node_md_state{{device=\"tank\",state=\"{other}\"}}");
            let expected = if other == state { "1.0" } else { "0.0" };
            assert_eq!(value(&text, &sample), Some(expected), "{sample}");
        }
        let synced = if kind.is_some() { "10752.0" } else { "43008.0" };
        assert_eq!(value(&text, "node_md_blocks_synced{device=\"tank\"}"), Some(synced));
    }
}

struct Fixed(Option<Duration>);

impl Source for Fixed {
    fn snapshot(&self) -> Snapshot {
        std::thread::sleep(self.0.unwrap_or_default());
        snapshot("tank")
    }
}

fn get(server: &MetricsServer, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("a server");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a server");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn loopback() -> std::net::SocketAddr {
    parse_address("127.0.0.1:0", false).expect("loopback")
}

#[test]
fn a_scrape_is_answered_and_silent_clients_hold_nothing_up() {
    let server = MetricsServer::start(
        loopback(),
        vec![Arc::new(Fixed(None))],
        false,
        (Router::new(), Names::Machine),
    )
    .expect("a server");
    // Opens more connections than the server's limit.
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.address()).expect("a server")).collect();
    let answer = get(&server, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(&format!("content-type: {CONTENT_TYPE}\r\n")), "{answer}");
    assert!(answer.ends_with("# EOF\n") && !answer.contains("node_md"), "{answer}");
    assert!(get(&server, "/metrics?node_md=1").contains("node_md_disks{"));
    assert!(get(&server, "/").starts_with("HTTP/1.1 404"));
    let begun = std::time::Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(10), "the end waits for no client");
    drop(silent);
}

#[test]
fn an_array_that_does_not_answer_holds_up_no_stop() {
    let slow = Arc::new(Fixed(Some(Duration::from_secs(60))));
    let server =
        MetricsServer::start(loopback(), vec![slow], false, (Router::new(), Names::Machine))
            .expect("a server");
    let mut stream = TcpStream::connect(server.address()).expect("a server");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a server");
    std::thread::sleep(Duration::from_millis(50));
    let begun = std::time::Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn only_loopback_unless_asked_otherwise() {
    for good in
        ["127.0.0.1:9100", "[::1]:9100", "localhost:1", "[::ffff:127.0.0.1]:1", "127.0.0.2:0"]
    {
        assert!(parse_address(good, false).is_ok(), "{good}");
    }
    for bad in ["0.0.0.0:9100", "[::]:9100", "192.168.0.1:9100", "[::ffff:10.0.0.1]:1"] {
        assert!(matches!(parse_address(bad, false), Err(ServerError::NotLoopback(_))), "{bad}");
        assert!(parse_address(bad, true).is_ok(), "{bad}");
    }
    for bad in ["", "9100", "127.0.0.1", "host:9100", "localhost:x"] {
        assert!(matches!(parse_address(bad, true), Err(ServerError::Address(_))), "{bad}");
    }
    let server =
        MetricsServer::start(loopback(), Vec::new(), false, (Router::new(), Names::Machine))
            .expect("a server");
    let taken =
        MetricsServer::start(server.address(), Vec::new(), false, (Router::new(), Names::Machine));
    assert!(matches!(taken, Err(ServerError::System { .. })), "{taken:?}");
}
