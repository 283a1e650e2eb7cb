//! An array has one writer, a socket has one server, and no other user reaches the socket.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use crate::kit::{Array, RAID_1, RAID_5, needs, ok};

#[test]
fn a_second_server_on_the_same_members_is_refused() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    let uri = format!("nbd+unix:///?socket={}", array.path("second.sock").display());
    let words = ["serve", "--nbd", &uri];
    let refusal = array.refused(&words, &array.members);
    refusal.is("B061", 11);
    // A second server that only reads is refused as well: it could read half-written data.
    array.refused(&["serve", "--read-only", "--nbd", &uri], &array.members).is("B061", 11);
    // A second server for writing is refused even if it names only one of the members.
    array.refused(&words, &array.members[3..]).is("B061", 11);
    served.stop();
    array.serve().stop();
}

#[test]
fn two_readers_may_share() {
    needs!("nbdinfo");
    let array = Array::create(RAID_1);
    let first = array.serve_with(&["--read-only"], &array.members);
    let other = format!("nbd+unix:///?socket={}", array.path("other.sock").display());
    let run = "nbdinfo --size \"$uri\"";
    let words = ["serve", "--read-only", "--nbd", &other, "--run", run];
    let ran = array.braid(&words, &array.members);
    assert!(ran.status.success(), "{ran:?}");
    assert!(ran.stdout.contains(&first.size_bytes.to_string()), "{ran:?}");
    // A server that only reads keeps out a server for writing.
    array.serve_refused(&[], &array.members).is("B061", 11);
    first.stop();
}

#[test]
fn a_served_array_is_not_created_over() {
    let array = Array::create(RAID_1);
    let served = array.serve();
    let refusal =
        array.refused(&["create", "other", "--level", "1", "--destroy", "tank"], &array.members);
    refusal.is("B061", 11);
    served.stop();
}

#[test]
fn a_socket_is_for_its_user_only() {
    let array = Array::create(RAID_1);
    let served = array.serve();
    let mode = std::fs::metadata(&served.socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    served.stop();
}

#[test]
fn a_busy_socket_is_refused_and_keeps_working() {
    needs!("nbdinfo");
    let first = Array::create(RAID_1);
    let served = first.serve();
    let second = Array::create(RAID_1);
    let words = ["serve", "--nbd", &served.uri];
    second.refused(&words, &second.members).is("B070", 11);
    assert_eq!(ok("nbdinfo", ["--size", &served.uri]).trim(), served.size_bytes.to_string());
    served.stop();
    second.serve().stop();
}

#[test]
fn a_stale_socket_is_replaced() {
    needs!("nbdinfo");
    let array = Array::create(RAID_1);
    let served = array.serve();
    let socket = served.socket.clone();
    served.kill();
    assert!(socket.exists(), "a kill leaves the socket");
    let served = array.serve();
    assert_eq!(ok("nbdinfo", ["--size", &served.uri]).trim(), served.size_bytes.to_string());
    served.stop();
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let array = Array::create(RAID_1);
    let file = array.path("precious");
    std::fs::write(&file, b"text").expect("a file");
    let uri = format!("nbd+unix:///?socket={}", file.display());
    array.refused(&["serve", "--nbd", &uri], &array.members).is("B070", 11);
    assert_eq!(std::fs::read(&file).expect("it"), b"text");
    // A socket at which another process listens is refused, too.
    let other = array.path("other.sock");
    let listener = UnixListener::bind(&other).expect("a socket");
    let uri = format!("nbd+unix:///?socket={}", other.display());
    array.refused(&["serve", "--nbd", &uri], &array.members).is("B070", 11);
    drop(listener);
}
