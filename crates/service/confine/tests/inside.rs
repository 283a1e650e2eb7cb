//! Tests confinement from inside: a confined and an unconfined process try the same forbidden
//! operations.
//!
//! The test runs itself as a child, because confinement is permanent. An operation that the
//! unconfined process cannot do either proves nothing, and is not counted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;

use braid_confine::files::{Enforcement, Grant};
use braid_confine::{calls, capabilities, files, proof};
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::unistd::Pid;

const ROLE: &str = "BRAID_CONFINE_ROLE";
const FOLDER: &str = "BRAID_CONFINE_FOLDER";

type Try = (&'static str, fn(&Path) -> io::Result<()>);

/// Operations that must fail once calls and files are closed off.
const TRIES: [Try; 13] = [
    ("open /etc/passwd", |_| File::open("/etc/passwd").map(drop)),
    ("write a file beside", |folder| std::fs::write(folder.join("beside"), "x")),
    ("look at all files", |_| std::fs::read_dir("/").map(drop)),
    ("run a program", |_| Command::new("/bin/true").status().map(drop)),
    ("connect by TCP", |folder| {
        let port = std::fs::read_to_string(folder.join("granted/port"))?;
        TcpStream::connect(("127.0.0.1", port.parse().expect("a port"))).map(drop)
    }),
    ("listen by TCP", |_| TcpListener::bind("127.0.0.1:0").map(drop)),
    ("connect to a Unix socket", |folder| UnixStream::connect(folder.join("socket")).map(drop)),
    // Seizes the process instead of attaching: attaching would stop the process, for good if this
    // process ends first.
    ("trace another process", |_| {
        Ok(nix::sys::ptrace::seize(Pid::from_raw(victim()), nix::sys::ptrace::Options::empty())?)
    }),
    ("signal another process", |_| Ok(nix::sys::signal::kill(Pid::from_raw(victim()), None)?)),
    ("mount", |folder| {
        let none: Option<&str> = None;
        Ok(nix::mount::mount(
            Some("x"),
            &folder.join("granted"),
            Some("tmpfs"),
            MsFlags::MS_RDONLY,
            none,
        )?)
    }),
    ("have a name space of its own", |_| Ok(nix::sched::unshare(CloneFlags::CLONE_NEWNS)?)),
    ("raise a limit", |_| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Core);
        Ok(rustix::process::setrlimit(rustix::process::Resource::Core, limit)?)
    }),
    (MEMORY, |_| memory_file()),
];

const MEMORY: &str = "make a file that is memory";

fn memory_file() -> io::Result<()> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    File::from(rustix::fs::memfd_create("memory", flags)?).set_len(4096)
}

/// The process that the tests try to trace, which is the parent process.
fn victim() -> i32 {
    std::os::unix::process::parent_id().cast_signed()
}

fn main() {
    match std::env::var(ROLE).as_deref() {
        Ok("free") => tell_all(&folder(), ""),
        Ok("confined") => confined(&folder()),
        Ok("with-memory") => with_memory(),
        _ => compare(),
    }
}

fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os(FOLDER).expect("the test gives one"))
}

/// Tries every forbidden operation, and prints the results.
fn tell_all(folder: &Path, who: &str) {
    for (name, attempt) in TRIES {
        let came =
            attempt(folder).map_or_else(|error| error.to_string(), |()| "possible".to_owned());
        println!("{who}{name}: {came}");
    }
}

fn confined(folder: &Path) {
    let granted = folder.join("granted");
    let held = granted.join("held");
    std::fs::write(&held, "held").expect("a file");
    // Opens the sockets before confinement, which leaves open sockets usable.
    let (told, hears) = UnixDatagram::pair().expect("sockets");
    capabilities::keep(&[&held], true).expect("capabilities");
    let closed = files::restrict(&[Grant::Folder(granted.clone())], false).expect("landlock");
    if closed == Enforcement::NotAtAll {
        println!("no landlock");
    }
    // The filter must also cover a thread that was started before the restriction.
    let (go, begins) = channel::<()>();
    let early = std::thread::spawn({
        let folder = folder.to_path_buf();
        move || {
            begins.recv().expect("it is told");
            tell_all(&folder, "early ");
        }
    });
    calls::restrict(calls::AllowedCalls::default()).expect("seccomp");
    proof::calls_are_closed().expect("they are closed");
    if closed != Enforcement::NotAtAll {
        proof::files_are_closed().expect("they are closed");
    }
    tell_all(folder, "");
    go.send(()).expect("it waits");
    early.join().expect("it ends");
    let late = folder.to_path_buf();
    std::thread::spawn(move || tell_all(&late, "late "))
        .join()
        .expect("threads can still be started");
    // A confined server can still do the operations that it needs.
    assert_eq!(std::fs::read_to_string(&held).expect("granted"), "held");
    std::fs::rename(&held, granted.join("moved")).expect("granted");
    std::fs::create_dir(granted.join("folder")).expect("granted");
    told.send(b"word").expect("open before");
    assert_eq!(hears.recv(&mut [0; 8]).expect("open before"), 4);
    let memory = vec![1_u8; 64 << 20];
    assert_eq!(memory.iter().map(|one| u64::from(*one)).sum::<u64>(), 64 << 20);
    let status = std::fs::read_to_string("/proc/self/status");
    assert!(status.is_err(), "/proc was not granted");
    println!("all that is needed is possible");
}

/// A process that shares memory may make memory files, and do nothing else beyond the common list.
fn with_memory() {
    let allowed = calls::AllowedCalls { memory_files: true, ..calls::AllowedCalls::default() };
    calls::restrict(allowed).expect("seccomp");
    proof::calls_are_closed().expect("they are closed");
    let refused = UnixStream::connect("/nonexistent").expect_err("it is closed");
    assert_eq!(refused.raw_os_error(), Some(1), "{refused}");
    println!("{:?}", memory_file());
}

fn compare() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("granted")).expect("a folder");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("an address").port();
    std::fs::write(folder.path().join("granted/port"), port.to_string()).expect("a file");
    let _unix = UnixListener::bind(folder.path().join("socket")).expect("a socket");
    let said = |role: &str| {
        let mut command = Command::new(std::env::current_exe().expect("ourselves"));
        let output = command.env(ROLE, role).env(FOLDER, folder.path()).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{role}: {text}\n{errors}");
        text
    };
    // The child has its own namespaces, so that the child's mounts vanish with it.
    let free = said("free");
    let _ = nix::mount::umount(&folder.path().join("granted"));
    let text = said("confined");
    assert!(text.ends_with("all that is needed is possible\n"), "{text}");
    assert_eq!(said("with-memory"), "Ok(())\n");
    if text.starts_with("no landlock") {
        println!("skipped, in part: this kernel has no landlock");
    }
    let lines = |text: &str| -> BTreeMap<String, String> {
        let pairs = text
            .lines()
            .filter_map(|line| line.rsplit_once(": ").or_else(|| line.split_once(": ")));
        pairs.map(|(name, came)| (name.to_owned(), came.to_owned())).collect()
    };
    let (free, confined) = (lines(&free), lines(&text));
    let is_open = |name: &&str| free.get(*name).is_some_and(|came| came == "possible");
    let counted: Vec<&str> = TRIES.iter().map(|(name, _)| *name).filter(is_open).collect();
    for must in
        ["open /etc/passwd", "run a program", "connect by TCP", "connect to a Unix socket", MEMORY]
    {
        assert!(counted.contains(&must), "{must} is not possible for anybody here: {free:?}");
    }
    let of_files = ["open /etc/passwd", "write a file beside", "look at all files"];
    for name in &counted {
        for who in ["", "early ", "late "] {
            let came = &confined[&format!("{who}{name}")];
            let is_refused = came.contains("os error 1)") || came.contains("os error 13)");
            let is_excused = of_files.contains(name) && text.starts_with("no landlock");
            assert!(is_refused || is_excused, "{who}{name}: {came}");
        }
    }
    println!(
        "{} of {} tries are possible when free, and none when confined",
        counted.len(),
        TRIES.len()
    );
}
