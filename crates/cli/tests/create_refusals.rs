//! For any fault of command line or members `braid create` prints a code and a remedy, and changes
//! nothing.

use crate::create_kit::{Folder, MEMBER_BYTES};

#[test]
fn words_that_mean_nothing_are_refused_with_those_that_do() {
    let folder = Folder::new();
    folder.files(&["a", "b", "c"]);
    for (command, code, exit, words) in [
        ("create t --level 7 a b c", "B002", 2, "Levels: linear 0 1 4 5 6 10"),
        ("create t --level 7 a b c", "B002", 2, "braid create t --level 6 a b c"),
        ("create t --level raid5e a b c", "B002", 2, "--level 5"),
        ("create t --level 5 --layout left-symetric a b c", "B003", 2, "--layout left-symmetric"),
        ("create t --level 5 --layout n2 a b c", "B003", 2, "left-asymmetric right-asymmetric"),
        ("create t --level 1 --layout n2 a b", "B003", 2, "has no layouts"),
        ("create t --level 5 --chunk 64 a b c", "B004", 2, "--chunk 64K"),
        ("create t --level 5 --chunk 64KB a b c", "B005", 2, "1000 to some"),
        ("create t --level 5 --chunk 96K a b c", "B005", 2, "--chunk 64K"),
        ("create t --level 0 --chunk 6K a b c", "B005", 2, "multiple of 4K"),
        ("create t --level 5 --chunk 0K a b c", "B005", 2, "multiple of 4K"),
        ("create t --level 5 --chunk 8E a b c", "B005", 2, "md cannot store so large"),
        ("create t --level 1 --chunk 64K a b", "B005", 2, "raid1"),
        ("create t --level 1 --member-size 8 a x", "B004", 2, "--member-size 8K"),
        ("create a/b --level 1 a b", "B006", 2, "'/'"),
        ("create a --level 1 b c", "B006", 2, "braid create NAME --level 1 a b c"),
        ("create a --level 1 b c", "B006", 2, "braid create --name a --level 1 b c"),
        ("create ./a --level 1 b c", "B006", 2, "braid create NAME --level 1 ./a b c"),
        ("create host:t --level 1 a b", "B006", 2, "no host"),
        ("create .t --level 1 a b", "B006", 2, "begins with"),
        ("create a23456789012345678901234567890123 --level 1 a b", "B006", 2, "33 bytes"),
        ("create t --level 1 --metadata 0.90 a b", "B007", 2, "Versions: 1.0 1.1 1.2"),
        ("create t --level 1 --metadata 2 a b", "B007", 2, "1.2"),
        ("create t --level 1 --assume-clean --zero a b", "B001", 2, "--zero"),
        ("create t --level 1", "B001", 2, "MEMBER"),
        ("create t --level 1 --member-size 15E x", "B005", 2, "more than any device has"),
    ] {
        folder.braid_changing_nothing(command).refused(code, exit).says(words);
    }
}

/// Regression: if the name was left out, the first file was taken for the name, and the other files
/// were in danger.
#[test]
fn a_file_in_the_place_of_the_name_is_asked_about_and_may_be_the_name() {
    let folder = Folder::new();
    folder.files(&["a", "b", "c"]);
    folder
        .braid_changing_nothing("create --level 5 a b c")
        .refused("B006", 2)
        .says("'a' is a file");
    let made = folder.braid("create --name a --level 1 b c --json").done().json();
    assert_eq!(made["array"]["name"], "a", "{made}");
}

#[test]
fn members_that_do_not_fit_are_refused() {
    let folder = Folder::new();
    folder.files(&["a", "b", "c"]);
    folder.file("tiny", 4096);
    folder.file("small", 1 << 20);
    std::os::unix::fs::symlink("a", folder.path("link")).expect("a link");
    std::os::unix::fs::symlink("nowhere", folder.path("dangling")).expect("a link");
    std::fs::hard_link(folder.path("a"), folder.path("hard")).expect("a link");
    std::fs::create_dir(folder.path("folder")).expect("a folder");
    for (command, code, exit, words) in [
        ("create t --level 5 a", "B008", 2, "2 to"),
        ("create t --level 6 a b c", "B008", 2, "4 to 255"),
        ("create t --level 10 --layout n3 a b", "B008", 2, "copies"),
        ("create t --level 5 --spare 3 a b c", "B008", 2, "none is left"),
        ("create t --level 0 --spare 1 a b c", "B008", 2, "without redundancy"),
        ("create t --level 1 --spare 1 a b missing", "B008", 2, "a spare cannot be missing"),
        ("create t --level 1 missing missing", "B008", 2, "every member is missing"),
        ("create t --level 5 a missing missing", "B030", 13, "slot 1, 2 missing"),
        ("create t --level 0 a missing", "B030", 13, "can lose 0"),
        ("create t --level linear missing a", "B030", 13, "slot 0"),
        ("create t --level 10 missing missing a b", "B030", 13, "can lose 1"),
        ("create t --level 1 a a", "B011", 12, "named twice"),
        ("create t --level 1 a ./a", "B011", 12, "same file"),
        ("create t --level 1 a link", "B011", 12, "same file"),
        ("create t --level 1 a hard", "B011", 12, "ls -li a hard"),
        ("create t --level 1 --member-size 8M x ./x", "B011", 12, "named twice"),
        ("create t --level 1 a x", "B050", 1, "--member-size 1G"),
        ("create t --level 1 --member-size 8M a no/x", "B050", 1, "mkdir -p no"),
        ("create t --level 1 --member-size 8M a /dev/sdx", "B050", 1, "no files in /dev"),
        ("create t --level 1 a dangling", "B050", 1, "symbolic link"),
        ("create t --level 1 a folder", "B051", 1, "directory"),
        ("create t --level 1 a /dev/null", "B051", 1, "character device"),
        ("create t --level 1 a tiny", "B052", 12, "4096"),
        ("create t --level 5 a b small", "B052", 12, "short by"),
        ("create t --level 5 --chunk 64M a b c", "B052", 12, "too small"),
    ] {
        folder.braid_changing_nothing(command).refused(code, exit).says(words);
    }
}

#[test]
fn a_member_that_somebody_uses_is_refused() {
    let folder = Folder::new();
    folder.files(&["a", "b"]);
    let held = std::fs::File::open(folder.path("b")).expect("it is there");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive)
        .expect("no other process has it");
    folder.braid_changing_nothing("create t --level 1 a b").refused("B061", 11).says("ps -fp");
}

#[test]
fn the_error_is_an_object_with_json() {
    let folder = Folder::new();
    folder.files(&["a", "b"]);
    let outcome = folder.braid_changing_nothing("create t --level 7 --json a b");
    let error = outcome.json();
    assert_eq!((outcome.exit, outcome.err.as_str(), &error["code"]), (2, "", &"B002".into()));
    assert_eq!(error["remedies"][0]["command"], "braid create t --level 6 --json a b");
}

#[test]
fn what_was_made_goes_away_if_the_rest_fails() {
    let folder = Folder::new();
    folder.braid("create old --level 1 --member-size 8M a b").done();
    // The state folder is a file: the old superblocks cannot be saved, after new files were made.
    folder.file("state", 1);
    folder
        .braid_changing_nothing("create new --level 1 --destroy old --member-size 8M x a b")
        .refused("B080", 1)
        .says("nothing was changed");
    assert!(!folder.path("x").exists());
    assert_eq!(folder.read("a", MEMBER_BYTES - 1, 1), [0]);
}

#[test]
fn a_printed_command_keeps_what_every_verb_takes_and_files_that_look_like_options() {
    let folder = Folder::new();
    folder.files(&["-a", "b"]);
    folder
        .braid_changing_nothing("create t --level 7 --json --state-dir s --destroy=-x -- -a b")
        .says("braid create t --level 6 --destroy=-x --state-dir s --json ./-a b");
    folder.write("b", 0, b"something");
    let refused = folder
        .braid_changing_nothing("create t -l 1 --state-dir s -- -a b")
        .refused("B012", 12)
        .says("braid create t --level 1 --destroy data --state-dir s ./-a b");
    let command = refused.err.lines().last().expect("a command");
    let words = command.split_once("braid ").expect("our command").1.replace('\'', "");
    folder.braid(&words).done().says("Created t");
    assert!(folder.path("s/undo").is_dir());
}
