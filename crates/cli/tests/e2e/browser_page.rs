//! The page for browsers: over the control socket, on the port of metrics, and in a browser.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::control::check;
use crate::kit::{Array, Background, Client, RAID_5, RAID_6, ServerProcess, needs, ok};

const LIMIT: Duration = Duration::from_secs(60);

/// A served array and the port of its page.
fn on_a_port(array: &Array) -> (ServerProcess, String) {
    // The operating system chooses a port that is free for a moment.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    (array.serve_with(&["--metrics", &address], &array.members), address)
}

fn ask(address: &str, (method, path): (&str, &str), host: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("a server");
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        .expect("a server");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn the_page_is_strict_and_the_port_only_looks() {
    needs!("curl");
    let array = Array::create(RAID_5);
    let (served, address) = on_a_port(&array);
    let (head, page) = ask(&address, ("GET", "/"), &address);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    for part in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; script-src 'sha256-",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
    assert!(!page.contains("tank"), "it is the same for every array");
    let control = array.path("run/tank.control").display().to_string();
    let same = ok("curl", ["-sS", "--fail", "--unix-socket", &control, "http://braid/"]);
    assert_eq!(same, page);
    let json = |path: &str| -> Value {
        let (head, body) = ask(&address, ("GET", path), "localhost:8080");
        assert!(head.starts_with("http/1.1 200") && !head.contains("access-control"), "{head}");
        serde_json::from_str(&body).expect("JSON")
    };
    check("Array", &json("/v1/array"));
    check("Elevators", &json("/v1/elevators"));
    // DNS rebinding: the name of a foreign page resolves to this machine.
    for path in ["/", "/v1/array", "/v1/elevators", "/metrics"] {
        let (head, body) = ask(&address, ("GET", path), "evil.example:9101");
        assert!(head.starts_with("http/1.1 421") && !body.contains("tank"), "{head}");
    }
    for (method, path, status) in [
        ("GET", "/v1/settings", "404"),
        ("PATCH", "/v1/settings", "404"),
        ("POST", "/v1/stop", "404"),
        ("POST", "/v1/jobs", "404"),
        ("GET", "/v1/events", "404"),
        ("POST", "/", "405"),
        ("POST", "/v1/array", "405"),
    ] {
        let (head, _) = ask(&address, (method, path), "localhost");
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{method} {path}: {head}");
    }
    assert!(ask(&address, ("GET", "/metrics"), "localhost").0.starts_with("http/1.1 200"));
    served.stop();
}

/// The page as a headless browser shows it, after a few of its requests.
fn browsed(url: &str, profile: &Path, more: &[&str]) -> String {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--no-first-run", "--virtual-time-budget=7000", "--window-size=1200,1000"]);
    command.arg(format!("--user-data-dir={}", profile.display())).args(more).arg(url);
    Background::spawn_command(command, "").wait_ok()
}

/// An array whose name could be markup is served under its UUID; a member has its file's name.
#[test]
fn a_browser_shows_the_array_and_runs_nothing_of_it() {
    needs!("chromium");
    let mut array = Array::create(RAID_6);
    let name = b"<script>document.title=1<script>";
    for slot in 0..RAID_6.members {
        array.patch_superblock(slot, 32, name, true);
    }
    for (slot, name) in [(1, "<img src=x onerror=document.title=1>"), (2, "<script>alert(1)&lt;")] {
        let path = array.path(name);
        std::fs::rename(&array.members[slot], &path).expect("a member");
        array.members[slot] = path;
    }
    let (mut served, address) = on_a_port(&array);
    served.lose(&array, 1);
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(0, &[7; 1 << 20]);
    let url = format!("http://{address}/");
    let shown = browsed(&url, &array.path("browser"), &["--dump-dom"]);
    for part in [
        ": degraded</title>",
        "DEGRADED",
        "can lose 1 more member",
        "class=\"problem\"",
        "connected, 0 requests/s",
        "/&lt;img src=x onerror=document.title=1&gt;</td>",
        "/&lt;script&gt;alert(1)&amp;lt;</td>",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(shown.matches("<script").count(), 1, "the page's own");
    assert!(!shown.contains("<img"), "{shown}");
    assert!(shown.contains("id=\"trouble\" role=\"alert\" hidden"), "it was answered: {shown}");
    drop(client);
    served.stop();
}
