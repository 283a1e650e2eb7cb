//! Every kind of file that must not be opened, and the error with which it is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use braid_member::{
    Access, FileKind, Holder, Member, MemberError, MemberKind, OpenError, create_file, open,
};
use braid_test_needs::{Need, needs, skip};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

const SIZE_BYTES: u64 = 64 * 1024;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("tempdir"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        drop(create_file(&path, SIZE_BYTES).expect("create_file"));
        path
    }
}

fn refusal(path: &Path, access: Access) -> OpenError {
    match open(path, access) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

fn assert_not_a_member(path: &Path, kind: FileKind) {
    for access in [Access::Examine, Access::ReadOnly, Access::ReadWrite] {
        assert_eq!(refusal(path, access), OpenError::NotAMember { path: path.into(), kind });
    }
}

#[test]
fn directories_pipes_sockets_and_character_devices_are_refused_by_name() {
    let folder = Folder::new();
    assert_not_a_member(folder.0.path(), FileKind::Directory);
    assert_not_a_member(Path::new("/dev/null"), FileKind::CharacterDevice);
    let pipe = folder.path("pipe");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("mkfifo");
    assert_not_a_member(&pipe, FileKind::Fifo);
    let socket = folder.path("socket");
    let _listener = UnixListener::bind(&socket).expect("bind");
    assert_not_a_member(&socket, FileKind::Socket);
    let link = folder.path("link");
    symlink("/dev/zero", &link).expect("symlink");
    assert_not_a_member(&link, FileKind::CharacterDevice);
    let message = refusal(&pipe, Access::ReadWrite).to_string();
    assert!(message.ends_with("is a named pipe; a member is a regular file or a block device"));
}

#[test]
fn what_is_not_there_is_missing() {
    let folder = Folder::new();
    let path = folder.path("nothing");
    assert_eq!(refusal(&path, Access::ReadOnly), OpenError::Missing { path: path.clone() });
    let below = folder.file("file").join("below");
    assert_eq!(refusal(&below, Access::ReadOnly), OpenError::Missing { path: below.clone() });
    // Impossible paths, as a client of the control API may send them.
    for never in [folder.path("a\0b"), folder.path(&"a".repeat(300))] {
        assert_eq!(refusal(&never, Access::ReadWrite), OpenError::Missing { path: never.clone() });
    }
    let link = folder.path("link");
    symlink("nothing", &link).expect("symlink");
    assert_eq!(refusal(&link, Access::ReadWrite), OpenError::DanglingLink { path: link.clone() });
    assert!(!path.exists(), "opening makes nothing");
}

#[test]
fn a_file_too_small_for_a_superblock_is_refused() {
    let folder = Folder::new();
    let path = folder.path("small");
    fs::write(&path, [0; 8191]).expect("write");
    let error = OpenError::TooSmall { path: path.clone(), size_bytes: 7680, minimum_bytes: 8192 };
    assert_eq!(refusal(&path, Access::Examine), error);
    let made = create_file(&folder.path("new"), 8191).map(|_| ());
    assert!(matches!(made, Err(OpenError::TooSmall { .. })));
    assert!(!folder.path("new").exists());
}

#[test]
fn an_existing_file_is_never_made_again() {
    let folder = Folder::new();
    let path = folder.path("kept");
    fs::write(&path, "precious").expect("write");
    let made = create_file(&path, SIZE_BYTES).map(|_| ());
    assert_eq!(made, Err(OpenError::AlreadyExists { path: path.clone() }));
    assert_eq!(fs::read(&path).expect("read"), b"precious");
}

#[test]
fn a_file_that_cannot_be_made_leaves_nothing_behind() {
    let folder = Folder::new();
    let path = folder.path("huge");
    // More than ext4, XFS or btrfs allow for one file. tmpfs allows it.
    match create_file(&path, i64::MAX.cast_unsigned()) {
        Err(_) => assert!(!path.exists()),
        Ok(_) => skip(Need::Other, "this file system takes files of any size"),
    }
    let nowhere = folder.path("no/such/folder");
    assert_eq!(
        create_file(&nowhere, SIZE_BYTES).map(|_| ()),
        Err(OpenError::Missing { path: nowhere.clone() })
    );
}

#[test]
fn a_new_file_is_private_and_sparse() {
    let folder = Folder::new();
    let path = folder.path("new");
    let member = create_file(&path, (1 << 30) + 100).expect("create_file");
    assert_eq!(member.size_bytes(), 1 << 30);
    assert_eq!(member.identity().kind, MemberKind::File);
    let metadata = fs::metadata(&path).expect("metadata");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) < 1000);
}

#[test]
fn a_writer_is_alone_and_readers_are_many() {
    let folder = Folder::new();
    let path = folder.file("member");
    let own = Some(std::process::id());
    let holder = Holder::Lock { process_id: own, command: None };
    let busy = OpenError::Busy { path: path.clone(), holder };
    let writer = open(&path, Access::ReadWrite).expect("alone");
    assert_eq!(refusal(&path, Access::ReadWrite), busy);
    assert_eq!(refusal(&path, Access::ReadOnly), busy);
    open(&path, Access::Examine).expect("a look is always allowed");
    drop(writer);
    let reader = open(&path, Access::ReadOnly).expect("the writer is gone");
    let second = open(&path, Access::ReadOnly).expect("readers share");
    assert_eq!(refusal(&path, Access::ReadWrite), busy);
    drop((reader, second));
    open(&path, Access::ReadWrite).expect("the readers are gone");
}

#[test]
fn a_new_file_is_locked_from_the_start() {
    let folder = Folder::new();
    let path = folder.path("new");
    let _writer = create_file(&path, SIZE_BYTES).expect("create_file");
    assert!(matches!(refusal(&path, Access::ReadOnly), OpenError::Busy { .. }));
}

#[test]
fn one_file_under_many_names_has_one_key() {
    let folder = Folder::new();
    let path = folder.file("member");
    fs::hard_link(&path, folder.path("hard")).expect("hard_link");
    symlink(&path, folder.path("soft")).expect("symlink");
    let names = [path.clone(), folder.path("hard"), folder.path("soft"), folder.path("./member")];
    let members: Vec<Box<dyn Member>> =
        names.iter().map(|name| open(name, Access::ReadOnly).expect("open")).collect();
    for member in &members {
        assert!(member.identity().is_same_device(members[0].identity()));
    }
    let other = open(&folder.file("other"), Access::ReadOnly).expect("open");
    assert!(!other.identity().is_same_device(members[0].identity()));
    assert!(matches!(refusal(&names[1], Access::ReadWrite), OpenError::Busy { .. }));
}

#[test]
fn a_reader_cannot_write() {
    let folder = Folder::new();
    let path = folder.file("member");
    for access in [Access::Examine, Access::ReadOnly] {
        let member = open(&path, access).expect("open");
        assert_eq!(member.write_at(&[1], 0, false), Err(MemberError::ReadOnly));
        assert_eq!(member.write_at(&[1], 0, true), Err(MemberError::ReadOnly));
        assert_eq!(member.zero(0, 512, true), Err(MemberError::ReadOnly));
        member.flush().expect("there is nothing to flush");
    }
    assert!(fs::read(&path).expect("read").iter().all(|&byte| byte == 0));
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let folder = Folder::new();
    let path = folder.file("member");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("set_permissions");
    // Root may write every file, unless a thread drops that capability, as this one does.
    let capabilities = capabilities(None).expect("our own");
    let fewer = CapabilitySets {
        effective: capabilities.effective - CapabilitySet::DAC_OVERRIDE,
        ..capabilities
    };
    set_capabilities(None, fewer).expect("fewer of our own");
    let refused = refusal(&path, Access::ReadWrite);
    open(&path, Access::ReadOnly).expect("it may be read");
    set_capabilities(None, capabilities).expect("as it was");
    assert_eq!(refused, OpenError::PermissionDenied { path });
}

#[test]
fn a_file_behind_another_programs_lock_is_refused() {
    needs!("python3");
    // A POSIX lock, which the child holds, does not conflict with `flock`; `/proc/locks` shows
    // both.
    let folder = Folder::new();
    let path = folder.file("member");
    let script = "import fcntl,sys\nf=open(sys.argv[1],'r+b')\n\
                  fcntl.lockf(f,fcntl.LOCK_EX)\nprint('locked',flush=True)\nsys.stdin.read()";
    let child = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut child = child.expect("python3 is installed");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    std::io::BufRead::read_line(&mut output, &mut line).expect("read_line");
    assert_eq!(line, "locked\n");
    let error = refusal(&path, Access::ReadWrite);
    drop(child.stdin.take());
    child.wait().expect("wait");
    let OpenError::Busy { holder: Holder::Lock { process_id, command }, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(process_id, Some(child.id()));
    assert!(command.is_some_and(|command| command.contains("import fcntl")));
    open(&path, Access::ReadWrite).expect("the lock is gone");
}
