//! Servers that run a command and end with it (`--run`), and servers on TCP.

use std::time::Duration;

use rustix::process::Signal;

use crate::kit::{Array, Mount, Need, RAID_1, RAID_5, needs, ok, random_bytes, run, skip};

#[test]
fn a_command_is_run_with_the_uri() {
    needs!("nbdinfo", "qemu-img");
    let array = Array::create(RAID_5);
    let words = ["serve", "--run", "nbdinfo --size \"$uri\" && qemu-img info \"$uri\""];
    let ran = array.braid(&words, &array.members);
    assert!(ran.status.success(), "{ran:?}");
    assert!(ran.stdout.contains("virtual size:"), "{ran:?}");
    let stopped = ran.stdout.lines().last().unwrap_or_default();
    assert!(stopped.contains("\"stopped\"") && stopped.contains("\"clean\":true"), "{ran:?}");
    // The server's socket was in a folder of its own, which no longer exists either.
    let serving = ran.stdout.lines().find(|line| line.contains("\"serving\"")).expect("serving");
    let serving: serde_json::Value = serde_json::from_str(serving).expect("JSON");
    let uri = serving["uris"][0].as_str().expect("a URI");
    let socket = uri.split("socket=").nth(1).expect("a socket");
    let folder = std::path::Path::new(socket).parent().expect("a folder");
    assert!(!folder.exists(), "{folder:?} is left behind");
}

#[test]
fn a_command_that_fails_is_said_and_the_array_is_clean() {
    let array = Array::create(RAID_1);
    let refusal = array.braid(&["serve", "--run", "exit 7"], &array.members);
    assert_eq!(refusal.status.code(), Some(1), "{refusal:?}");
    assert!(refusal.stdout.contains("\"B073\""), "{refusal:?}");
    assert!(refusal.stdout.contains("exit status: 7"), "{refusal:?}");
    assert!(refusal.stdout.contains("\"clean\":true"), "{refusal:?}");
    array.serve().stop();
}

/// After ^C the command ends, the array stops, and the exit status shows the signal.
#[test]
fn a_signal_ends_the_command_too() {
    let array = Array::create(RAID_1);
    let pid_file = array.path("pid");
    let command = format!("echo $$ > {}; exec sleep 60", pid_file.display());
    let mut served = array.serve_with(&["--run", &command], &array.members);
    crate::kit::wait_until("the command", Duration::from_secs(5), || {
        std::fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n'))
    });
    served.signal(Signal::INT);
    assert_eq!(served.wait().code(), Some(130));
    assert_eq!(served.wait_for("stopped")["clean"], true);
    let pid = std::fs::read_to_string(&pid_file).expect("a pid");
    let process = std::path::Path::new("/proc").join(pid.trim());
    crate::kit::wait_until("the command to end", Duration::from_secs(5), || !process.exists());
}

#[test]
fn tcp_picks_a_free_port_on_loopback() {
    needs!("nbdinfo", "qemu-io");
    let array = Array::create(RAID_5);
    let mut served = array.serve_with(&["--nbd", "nbd://127.0.0.1:0/"], &array.members);
    let serving = served.wait_for("serving");
    let uris = serving["uris"].as_array().expect("URIs");
    assert_eq!(uris.len(), 2, "{serving}");
    let tcp = uris[1].as_str().expect("a URI").to_string();
    assert!(tcp.starts_with("nbd://127.0.0.1:") && !tcp.contains(":0/"), "{tcp}");
    assert_eq!(ok("nbdinfo", ["--size", &tcp]).trim(), served.size_bytes.to_string());
    // The TCP address and the socket lead to the same array.
    ok("qemu-io", ["-f", "raw", "-c", "write -P 9 12345 54321", tcp.as_str()]);
    ok("qemu-io", ["-f", "raw", "-c", "read -P 9 12345 54321", served.uri.as_str()]);
    served.stop();
    assert!(!run("nbdinfo", ["--size", &tcp]).status.success(), "a server still listens");
}

#[test]
fn the_network_is_refused() {
    let array = Array::create(RAID_1);
    for uri in ["nbd://0.0.0.0:0/", "nbd://[::]:0/", "nbd://192.0.2.1:0/", "nbd://example.org/"] {
        array.refused(&["serve", "--nbd", uri], &array.members).is("B072", 12);
    }
    for uri in ["http://127.0.0.1/", "nbd+unix:///"] {
        array.refused(&["serve", "--nbd", uri], &array.members).is("B009", 2);
    }
}

/// Every block marked `sh` in docs/clients.md, unchanged.
#[test]
fn the_recipes_in_the_documentation_work() {
    needs!("nbdinfo", "nbdcopy", "qemu-img", "qemu-io", "qemu-storage-daemon", "fio", "mke2fs");
    let text = include_str!("../../../../docs/clients.md");
    let mut recipes: Vec<&str> = text.split("```sh\n").skip(1).collect();
    if !Mount::is_possible() {
        skip(Need::Fuse, "no /dev/fuse for recipes that export by it");
        recipes.retain(|recipe| !recipe.contains("--export fuse"));
    }
    assert!(recipes.len() > 4, "the documentation has {} recipes", recipes.len());
    let array = Array::create(RAID_5);
    let served = array.serve();
    let size = usize::try_from(served.size_bytes).expect("small");
    let image = array.path("disk.img");
    std::fs::write(&image, random_bytes(50, size)).expect("an image");
    let folder = image.parent().expect("a folder").display().to_string();
    for recipe in recipes {
        let recipe = recipe.split("```").next().expect("its end");
        let recipe = recipe.replace("/tmp/tank.sock", &served.socket.display().to_string());
        let script = format!("set -e\ncd {folder}\nuri='{}'\n{recipe}", served.uri);
        ok("sh", ["-c", &script]);
    }
    served.stop();
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    assert!(!mounts.contains(&folder), "a recipe leaves a mount behind: {mounts}");
}
