//! Two writers in two processes can never happen.
//!
//! The second process is this test program, started again to run only [`hold`].

use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use braid_member::{Access, Holder, OpenError, adopt, create_file, open, open_for_another};

const PATH_VARIABLE: &str = "BRAID_TEST_HOLD_PATH";
const ACCESS_VARIABLE: &str = "BRAID_TEST_HOLD_ACCESS";

/// In the second process: opens the given path, prints a line, and holds the member until its input
/// ends. In the first process: prints that it has no path to hold.
#[test]
fn hold() {
    let Some(path) = std::env::var_os(PATH_VARIABLE) else {
        assert!(std::env::var_os(ACCESS_VARIABLE).is_none());
        return;
    };
    let access = match std::env::var(ACCESS_VARIABLE).as_deref() {
        Ok("write") => Access::ReadWrite,
        _ => Access::ReadOnly,
    };
    let _member = open(Path::new(&path), access).expect("open in the second process");
    println!("\nholding");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("stdin");
}

fn start_holder(path: &Path, access: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("current_exe"))
        .args(["--exact", "two_processes::hold", "--nocapture"])
        .env(PATH_VARIABLE, path)
        .env(ACCESS_VARIABLE, access)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let output = BufReader::new(child.stdout.as_mut().expect("stdout"));
    let is_holding = output.lines().map_while(Result::ok).any(|line| line == "holding");
    assert!(is_holding, "the second process could not open the file");
    child
}

fn refusal(path: &Path, access: Access) -> Option<OpenError> {
    open(path, access).err()
}

#[test]
fn a_writer_elsewhere_is_named_and_killing_it_frees_the_file() {
    let folder = tempfile::tempdir().expect("tempdir");
    let path = folder.path().join("member");
    drop(create_file(&path, 1 << 20).expect("create_file"));
    let mut child = start_holder(&path, "write");
    let program = std::env::current_exe().expect("current_exe");
    let program = program.file_name().expect("a name").to_string_lossy();
    let whole = format!("{program} --exact two_processes::hold --nocapture");
    let cut = || format!("{}...", &whole[..60]);
    let command = Some(if whole.len() > 60 { cut() } else { whole.clone() });
    let holder = Holder::Lock { process_id: Some(child.id()), command };
    let busy = Some(OpenError::Busy { path: path.clone(), holder });
    let refusals = [Access::ReadWrite, Access::ReadOnly].map(|access| refusal(&path, access));
    let look = open(&path, Access::Examine).map(|_| ());
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert_eq!(refusals, [busy.clone(), busy]);
    assert_eq!(look, Ok(()));
    assert_eq!(refusal(&path, Access::ReadWrite), None, "a dead process holds nothing");
}

#[test]
fn a_reader_elsewhere_keeps_writers_out_and_readers_not() {
    let folder = tempfile::tempdir().expect("tempdir");
    let path = folder.path().join("member");
    drop(create_file(&path, 1 << 20).expect("create_file"));
    let mut child = start_holder(&path, "read");
    let refusals = [Access::ReadWrite, Access::ReadOnly].map(|access| refusal(&path, access));
    drop(child.stdin.take());
    let status = child.wait().expect("wait");
    assert!(status.success());
    assert!(matches!(refusals, [Some(OpenError::Busy { .. }), None]), "{refusals:?}");
}

#[test]
fn what_another_process_hands_over_keeps_its_lock() {
    let folder = tempfile::tempdir().expect("tempdir");
    let path = folder.path().join("member");
    drop(create_file(&path, 1 << 20).expect("create_file"));
    let handed = open_for_another(&path).expect("it is free");
    assert!(matches!(open(&path, Access::ReadWrite), Err(OpenError::Busy { .. })));
    let member = adopt(&path, handed).expect("it was opened for that");
    member.write_at(&[7; 512], 4096, true).expect("it is open for writing");
    assert!(matches!(open(&path, Access::ReadWrite), Err(OpenError::Busy { .. })));
    drop(member);
    drop(open(&path, Access::ReadWrite).expect("nobody has it any more"));
    // No member is made of descriptors that are not open for reading and writing, belong to two
    // files, or are missing.
    let file =
        |options: &mut std::fs::OpenOptions| OwnedFd::from(options.open(&path).expect("a file"));
    let reading = || file(std::fs::OpenOptions::new().read(true));
    let both = || file(std::fs::OpenOptions::new().read(true).write(true));
    let other = || OwnedFd::from(tempfile::tempfile().expect("a file"));
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a device"));
    for handed in [
        vec![reading(), both()],
        vec![both(), reading()],
        vec![both(), other()],
        vec![null(), null()],
        vec![both()],
    ] {
        assert!(adopt(&path, handed).is_err());
    }
    assert!(adopt(&path, vec![both(), both()]).is_ok());
}
