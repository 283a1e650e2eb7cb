//! Signals that stop the server, those without effect, and the signals of the `--run` command.

use rustix::process::Signal;

use crate::kit::{Array, RAID_1, RAID_5, needs};

/// All signals except the uncatchable ones, and those that mean a fault of the process.
fn sendable() -> impl Iterator<Item = i32> {
    const NOT_OURS: [i32; 12] = [
        Signal::KILL.as_raw(),
        Signal::STOP.as_raw(),
        Signal::TSTP.as_raw(),
        Signal::TTIN.as_raw(),
        Signal::TTOU.as_raw(),
        Signal::ILL.as_raw(),
        Signal::TRAP.as_raw(),
        Signal::ABORT.as_raw(),
        Signal::BUS.as_raw(),
        Signal::FPE.as_raw(),
        Signal::SEGV.as_raw(),
        Signal::SYS.as_raw(),
    ];
    (1..=64).filter(|number| !NOT_OURS.contains(number) && !matches!(number, 32 | 33))
}

#[test]
fn no_signal_ends_the_server_uncleanly() {
    let array = Array::create(RAID_5);
    let stops = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::POWER, Signal::XCPU];
    for signal in stops {
        let mut served = array.serve();
        served.signal(signal);
        assert!(served.wait().success(), "{signal:?}");
        assert_eq!(served.wait_for("stopped")["clean"], true, "{signal:?}");
    }
    // Sends all signals that do not stop a server, one after the other, to one server.
    let mut served = array.serve();
    let stops = stops.map(Signal::as_raw);
    for number in sendable().filter(|number| !stops.contains(number)) {
        crate::kit::ok("sh", ["-c", &format!("kill -{number} {}", served.process_id())]);
    }
    served.wait_for("signal-ignored");
    let told = |name: &str| {
        let events = served.events("signal-ignored");
        events.iter().filter(|event| event["signal"] == name).count()
    };
    crate::kit::wait_until("each to be told", std::time::Duration::from_secs(10), || {
        ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGIO", "signal 64"].iter().all(|name| told(name) == 1)
    });
    served.stop();
}

#[test]
fn the_command_has_its_signals_as_a_shell_gives_them() {
    let array = Array::create(RAID_1);
    let ran = array.braid(&["serve", "--run", "grep Sig /proc/self/status"], &array.members);
    assert!(ran.status.success(), "{ran:?}");
    let own = std::fs::read_to_string("/proc/self/status").expect("our own status");
    let mask = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        u64::from_str_radix(line.trim(), 16).expect("a mask")
    };
    // Rust programs ignore SIGPIPE, and signals 32 and 33 belong to the C library.
    let apart = 1 << 12 | 1 << 31 | 1 << 32;
    // Signals that the test process inherited as ignored (nohup) may stay ignored.
    let ignored = mask(&ran.stdout, "SigIgn:") & !mask(&own, "SigIgn:");
    assert_eq!(ignored & !apart, 0, "{ran:?}");
    assert_eq!(mask(&ran.stdout, "SigIgn:") & 1 << 12, 0, "SIGPIPE is ignored: {ran:?}");
    assert_eq!(mask(&ran.stdout, "SigBlk:"), 0, "{ran:?}");
}

/// Members are sparse files of 32 MiB, and the limit on the size of files is 8 MiB.
#[test]
fn a_limit_on_the_size_of_files_is_no_space_and_no_signal() {
    needs!("qemu-io");
    for io in ["ring", "threads"] {
        let array = Array::create_sized(RAID_5, "32M");
        let write = "qemu-io -f raw -c 'write -P 1 0 64k' -c flush -c 'write -P 2 60M 1M' -c flush \"$uri\"; \
                     qemu-io -f raw -c 'read -P 1 0 64k' \"$uri\"";
        let ran = array.braid_after(
            "ulimit -f 16384",
            &["serve", "--io", io, "--run", write],
            &array.members,
        );
        assert_eq!(ran.status.code(), Some(3), "{io}: {ran:?}");
        assert!(ran.stdout.contains("\"OutOfSpace\""), "{io}: {ran:?}");
        assert!(ran.stdout.contains("read 65536/65536"), "what was flushed is there: {ran:?}");
        assert!(!ran.stdout.contains("\"Fail\""), "no member is at fault: {ran:?}");
        // Once the limit is raised, no member is missing.
        let mut served = array.serve();
        assert_eq!(served.wait_for("assembled")["degraded_slots"], 0);
        served.stop();
    }
}

#[test]
fn making_members_beyond_a_limit_on_files_is_an_error_and_leaves_none() {
    let array = Array::create(RAID_1);
    let member = array.path("x");
    let words = ["create", "x", "--level", "1", "--member-size", "64M"];
    let ran = array.braid_after("ulimit -f 16384", &words, std::slice::from_ref(&member));
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert!(ran.stdout.contains("File too large"), "{ran:?}");
    assert!(!member.exists(), "a file is left behind");
}
