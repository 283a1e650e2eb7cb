//! Configuration files: `braid scan` writes them, and a unit starts `braid serve --name`.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::control::status;
use crate::kit::{
    Array, Background, Client, Need, RAID_5, RAID_6, ServerProcess, needs, ok, random_bytes, run,
    skip, wait_until,
};
use crate::members::text;
use crate::two_writers::Loops;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn configure(array: &Array, name: &str, text: &str) -> String {
    let folder = array.path("etc");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, text).expect("a file");
    // The modes of folder and file must not depend on the umask.
    mode(&folder, 0o755);
    mode(&file, 0o644);
    folder.display().to_string()
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn uuid(array: &Array) -> String {
    let ran = array.braid(&["scan"], &array.members);
    let found: Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    found["arrays"][0]["uuid"].as_str().expect("an array").to_owned()
}

fn served(array: &Array, words: &[&str]) -> ServerProcess {
    array.serve_with(words, &[])
}

#[test]
fn what_scan_writes_is_served_by_its_name() {
    needs!("nbdcopy");
    let array = Array::create(RAID_6);
    let etc = array.path("etc").display().to_string();
    let pattern = array.path("m*").display().to_string();
    let scan = |more: &[&str]| {
        let words = [&["scan", "--config-dir", &etc, &pattern], more].concat();
        let ran = array.braid(&words, &[]);
        assert!(ran.status.success(), "{ran:?}");
        serde_json::from_str::<Value>(ran.stdout.trim()).expect("JSON")
    };
    let found = scan(&[]);
    assert_eq!((&found["devices"], &found["arrays"][0]["name"]), (&5.into(), &"tank".into()));
    assert!(!array.path("etc").exists(), "a scan writes nothing unless it is asked to");
    let written = scan(&["--write"]);
    assert_eq!(written["arrays"][0]["written"], true);
    let file = array.path("etc/tank.toml");
    let text = std::fs::read_to_string(&file).expect("a file");
    assert_eq!(Some(&*text), written["arrays"][0]["text"].as_str());
    // A second `scan` leaves the configuration file unchanged.
    std::fs::write(&file, text.clone() + "[policy]\njob-floor = \"3M\"\n").expect("a file");
    assert_eq!(scan(&["--write"])["arrays"][0]["written"], false);
    let server = served(&array, &["--name", "tank", "--config-dir", &etc]);
    let bytes = random_bytes(1, server.length());
    server.write_all(&array, &bytes);
    let got = array.braid(&["get", "tank"], &[]);
    let got: Value = serde_json::from_str(got.stdout.trim()).expect("JSON");
    assert_eq!(got["settings"]["job-floor"], 3 << 20, "{got}");
    server.stop();
    // Options on the command line override the configuration file's options.
    let server = served(
        &array,
        &["--name", "tank", "--config-dir", &etc, "--job-floor", "4M", "--read-only"],
    );
    assert!(server.read_all(&array) == bytes);
    let got = array.braid(&["get", "tank"], &[]);
    assert!(got.stdout.contains(&(4 << 20).to_string()), "{got:?}");
    server.stop();
}

/// A killed server is restarted, a service's automatically, and reconnecting clients do not notice.
/// They do not repeat acknowledged writes, and a FLUSH to the next server must cover these writes.
#[test]
fn what_was_answered_without_a_flush_is_there_after_the_server_was_killed() {
    let array = Array::create(RAID_5);
    let uuid = uuid(&array);
    let text = format!("array = \"{uuid}\"\ndevices = [\"{}\"]\n", array.path("m*").display());
    let etc = configure(&array, "tank", &text);
    let words = ["--name", "tank", "--config-dir", &etc];
    const EACH: usize = 12_288;
    let mut expected = Vec::new();
    for round in 0..4 {
        let server = match round % 2 {
            0 => served(&array, &words),
            // Every second server is started by hand, without systemd.
            _ => array.serve(),
        };
        let mut client = Client::connect(&server.socket, Duration::from_secs(20));
        let had = client.read(0, expected.len().max(512)).expect("an array that can be read");
        client.flush();
        assert!(expected.is_empty() || had == expected, "round {round}: an answer was lost");
        // The write covers parts of stripes, which a cache would hold until they fill up.
        let bytes = random_bytes(round, EACH);
        client.write(expected.len() as u64, &bytes);
        expected.extend(bytes);
        server.kill();
    }
}

#[test]
fn members_are_found_by_the_uuid_and_waited_for() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let uuid = uuid(&array);
    let pattern = array.path("m*").display().to_string();
    let text = format!("array = \"{uuid}\"\ndevices = [\"{pattern}\"]\nwait-seconds = 20\n");
    let etc = configure(&array, "other", &text);
    let (hidden, member) = (array.path("hidden"), array.members[2].clone());
    std::fs::rename(&member, &hidden).expect("a member");
    // The member appears during the wait for absent members, so nothing is rebuilt.
    let comes = std::thread::spawn({
        let member = member.clone();
        move || {
            std::thread::sleep(Duration::from_secs(2));
            std::fs::rename(&hidden, &member).expect("a member");
        }
    });
    let begun = Instant::now();
    let words = ["--name", "other", "--config-dir", &etc];
    let mut server = served(&array, &words);
    comes.join().expect("it is renamed");
    let assembled = server.wait_for("assembled");
    assert!(begun.elapsed() >= Duration::from_secs(2), "it was not waited for");
    assert_eq!(assembled["degraded_slots"], 0, "{assembled}");
    server.stop();
    // If the member never appears, the array is served degraded, and the next start does not wait.
    std::fs::remove_file(&member).expect("a member");
    let short = configure(&array, "other", &text.replace("= 20", "= 1"));
    let mut server = served(&array, &["--name", "other", "--config-dir", &short]);
    assert_eq!(server.wait_for("assembled")["degraded_slots"], 1);
    // The member misses a write, and after this write superblocks record it as failed.
    server.write_all(&array, &random_bytes(3, server.length()));
    server.stop();
    configure(&array, "other", &text);
    let begun = Instant::now();
    served(&array, &words).stop();
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "a member that is known to be out was waited for"
    );
}

/// Regression: if `scan --write` listed `members`, a late mount or a missing disk was an error.
#[test]
fn a_service_starts_when_a_disk_is_missing() {
    let array = Array::create(RAID_5);
    let paths: Vec<String> =
        array.members.iter().map(|path| format!("\"{}\"", path.display())).collect();
    let text = |wait: u64| {
        let (uuid, paths) = (uuid(&array), paths.join(", "));
        format!("array = \"{uuid}\"\nmembers = [{paths}]\nwait-seconds = {wait}\n")
    };
    let (patient, hasty) = (text(20), text(0));
    let etc = configure(&array, "tank", &patient);
    let words = ["--name", "tank", "--config-dir", &etc];
    let hidden = array.path("hidden");
    std::fs::rename(&array.members[2], &hidden).expect("a member");
    let comes = std::thread::spawn({
        let (hidden, member) = (hidden.clone(), array.members[2].clone());
        move || {
            std::thread::sleep(Duration::from_millis(700));
            std::fs::rename(&hidden, &member).expect("a member");
        }
    });
    let mut server = served(&array, &words);
    comes.join().expect("it is renamed");
    assert_eq!(server.wait_for("assembled")["degraded_slots"], 0);
    server.stop();
    // The disk is gone for good, but no superblock records it as failed.
    std::fs::rename(&array.members[2], &hidden).expect("a member");
    configure(&array, "tank", &hasty);
    let mut server = served(&array, &words);
    assert_eq!(server.wait_for("assembled")["degraded_slots"], 1);
    server.stop();
    // If `serve` is typed by hand, the error offers the command without the missing member, if the
    // level tolerates its loss.
    let refusal = array.refused(&["serve"], &array.members);
    refusal.is("B050", 1);
    array.follow(&refusal.json, "If it is lost for good, start without it");
    std::fs::remove_file(&array.members[1]).expect("a member");
    let refusal = array.refused(&["serve"], &array.members);
    refusal.is("B050", 1);
    let remedies = refusal.json["remedies"].to_string();
    assert!(!remedies.contains("start without it"), "{remedies}");
}

/// Regression: two arrays had one name, from two machines or made one after the other. The second
/// array's unit ended with B070, and their histories were mixed.
#[test]
fn two_arrays_of_one_name_are_served_and_told_apart() {
    needs!("nbdinfo");
    let array = Array::create(RAID_5);
    let other = Array::create(RAID_5).found_with(&array);
    let patterns = [&array, &other].map(|one| one.path("m*").display().to_string());
    let etc = array.path("etc").display().to_string();
    let scan = ["scan", "--write", "--config-dir", &etc, &patterns[0], &patterns[1]];
    assert!(array.braid(&scan, &[]).status.success());
    // A later scan finds a third array of this name, without the file of the first array.
    let third = Array::create(RAID_5);
    let pattern = third.path("m*").display().to_string();
    let before = std::fs::read(array.path("etc/tank.toml")).expect("a file");
    let scan = ["scan", "--write", "--config-dir", &etc, &pattern];
    assert!(array.braid(&scan, &[]).status.success());
    assert!(std::fs::read(array.path("etc/tank.toml")).expect("a file") == before);
    let uuids = [&array, &other].map(uuid);
    let names = [
        "tank".to_owned(),
        uuids
            .clone()
            .map(|uuid| uuid.replace(':', ""))
            .into_iter()
            .find(|stem| array.path(&format!("etc/{stem}.toml")).exists())
            .expect("one is called by its UUID"),
    ];
    let servers = names.map(|name| {
        let words = ["serve", "--config-dir", &etc, "--name", &name];
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_braid"));
        command.args(array.command_line(&words, &[])).env("BRAID_RUNTIME_DIR", array.runtime());
        Background::spawn_command(command, "")
    });
    wait_until("both to be served", Duration::from_secs(30), || {
        uuids.iter().all(|uuid| array.braid(&["status", uuid], &[]).status.success())
    });
    let uri =
        |uuid: &String| status(&array, uuid)["uris"][0].as_str().expect("it is served").to_owned();
    let [one, two] = uuids.each_ref().map(uri);
    assert_ne!(one, two);
    for uri in [&one, &two] {
        ok("nbdinfo", ["--size", uri.as_str()]);
    }
    for uuid in &uuids {
        assert!(array.braid(&["stop", uuid], &[]).status.success());
    }
    servers.into_iter().for_each(|server| drop(server.wait_ok()));
    for verb in ["events", "history"] {
        let told = |word: &str| {
            let line =
                format!("braid --state-dir '{}' {verb} {word}", array.path("state").display());
            array.type_line(&line).stdout
        };
        let both = told("tank");
        assert!(uuids.iter().all(|uuid| both.contains(&format!("tank ({uuid})"))), "{both}");
        let times: Vec<&str> = both.lines().filter_map(|line| line.get(..20)).collect();
        assert!(times.is_sorted() && times.len() >= 4, "{both}");
        let alone = told(&uuids[0]);
        assert!(!alone.is_empty() && !uuids.iter().any(|uuid| alone.contains(uuid)), "{alone}");
    }
}

#[test]
fn a_file_that_others_may_write_runs_no_hook() {
    let array = Array::create(RAID_5);
    let ran = array.path("ran");
    let members: Vec<String> = array.members.iter().map(|path| format!("{path:?}")).collect();
    let text = format!(
        "members = [{}]\n[policy]\non-event = \"touch {}\"\n",
        members.join(", "),
        ran.display()
    );
    let etc = configure(&array, "tank", &text);
    let file = array.path("etc/tank.toml");
    let words = ["serve", "--config-dir", &etc, "--name", "tank", "--run", "true"];
    for (folder_mode, file_mode, why) in
        [(0o755, 0o666, "other users may write to it"), (0o777, 0o644, "may rename the files in")]
    {
        mode(Path::new(&etc), folder_mode);
        mode(&file, file_mode);
        let refused = array.refused(&words, &[]);
        refused.is("B119", 12);
        let cause = refused.json["cause"].as_str().expect("a cause");
        assert!(cause.contains(why), "{cause}");
        assert!(!ran.exists(), "the hook was run");
        array.follow(&refused.json, "If its content is right, make it your own");
        let served = array.braid(&words, &[]);
        assert!(served.status.success(), "{served:?}");
        std::fs::remove_file(&ran).expect("the hook was run");
    }
}

#[test]
fn files_without_an_end_are_refused_by_name() {
    let array = Array::create(RAID_5);
    let etc = configure(&array, "tank", "");
    let file = array.path("etc/tank.toml");
    let conf = text(&file).to_owned();
    for make in ["zero", "pipe"] {
        std::fs::remove_file(&file).expect("it is there");
        match make {
            "zero" => symlink("/dev/zero", &file).expect("a link"),
            _ => drop(run("mkfifo", [text(&file)])),
        }
        let refused = array.refused(&["serve", "--config-dir", &etc, "--name", "tank"], &[]);
        refused.is("B096", 2);
        let pattern = array.path("m*").display().to_string();
        array.refused(&["scan", "--mdadm-conf", &conf, &pattern], &[]).is("B095", 10);
    }
    array.refused(&["scan", "/**/m0"], &[]).is("B001", 2);
}

#[test]
fn a_name_in_the_place_of_members_leads_to_its_file() {
    let array = Array::create(RAID_5);
    let refused = array.refused(&["serve", "tank"], &[]);
    refused.is("B050", 1);
    let cause = refused.json["cause"].as_str().expect("a cause");
    assert!(cause.contains("--name takes a name"), "{cause}");
    let served = array.serve();
    let refused = array.refused(&["serve", "tank"], &[]);
    array.follow(&refused.json, "An array of this name is served; see its state");
    served.stop();
}

#[test]
fn a_file_that_cannot_be_used_says_where_and_what_was_meant() {
    let array = Array::create(RAID_5);
    let etc = configure(&array, "tank", "array = \"tank\"\n\n[policy]\nread_only = true\n");
    let words =
        |name: &'static str| ["serve", "--config-dir", &etc, "--name", name].map(str::to_owned);
    let refused = |name: &'static str| {
        let words = words(name);
        array.refused(&words.iter().map(String::as_str).collect::<Vec<_>>(), &[])
    };
    let wrong = refused("tank");
    wrong.is("B096", 2);
    let cause = wrong.json["cause"].as_str().expect("a cause");
    assert!(cause.contains("line 4") && cause.contains("is 'read-only' meant?"), "{cause}");
    // A scan does not overwrite an existing configuration file.
    let file = array.path("etc/tank.toml");
    let before = std::fs::read_to_string(&file).expect("a file");
    let pattern = array.path("m*").display().to_string();
    std::fs::write(&file, before.replace("array = ", "aray = ")).expect("a file");
    let ran = array.braid(&["scan", "--config-dir", &etc, &pattern, "--write"], &[]);
    assert!(ran.stderr.contains("stays unchanged"), "{ran:?}");
    assert!(std::fs::read_to_string(&file).expect("a file").starts_with("aray"), "{ran:?}");
    let missing = refused("tnak");
    missing.is("B095", 10);
    assert!(missing.json["cause"].as_str().expect("a cause").contains("is 'tank' meant?"));
    configure(&array, "tank", "array = \"tank\"\n[policy]\nworkers = 1000\n");
    let value = refused("tank");
    value.is("B096", 2);
    assert!(value.json["cause"].as_str().expect("a cause").contains("line 3"), "{}", value.json);
    let nothing = array.path("none*").display().to_string();
    configure(
        &array,
        "tank",
        &format!("array = \"tank\"\ndevices = [\"{nothing}\"]\nwait-seconds = 0\n"),
    );
    refused("tank").is("B050", 1);
}

#[test]
fn udev_hears_of_arrays_that_have_a_file_and_of_no_other() {
    let (array, other) = (Array::create(RAID_5), Array::create(RAID_6));
    let etc = configure(&array, "house", &format!("array = \"{}\"\n", uuid(&array)));
    let udev = |member: &Path| {
        let ran = array.braid(&["scan", "--config-dir", &etc, "--udev"], &[member.to_path_buf()]);
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
        ran.stdout
    };
    assert_eq!(udev(&array.members[1]), "BRAID_NAME=house\n");
    assert_eq!(udev(&other.members[1]), "");
    let empty = array.path("empty");
    std::fs::write(&empty, vec![0; 1 << 20]).expect("a file");
    assert_eq!(udev(&empty) + &udev(Path::new("/nonexistent")), "");
}

#[test]
fn mdadm_conf_names_arrays() {
    let array = Array::create(RAID_5);
    let conf = array.path("mdadm.conf");
    std::fs::write(&conf, format!("ARRAY /dev/md/photos metadata=1.2\n  UUID={}\n", uuid(&array)))
        .expect("a file");
    let conf = conf.display().to_string();
    let ran = array.braid(&["scan", "--mdadm-conf", &conf], &array.members);
    let found: Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    assert_eq!(found["arrays"][0]["name"], "photos", "{found}");
}

/// systemd's unit for braid in a folder, with the path of this build of braid.
fn unit(array: &Array) -> PathBuf {
    copied_unit(array, "braid@.service")
}

fn copied_unit(array: &Array, name: &str) -> PathBuf {
    let text = std::fs::read_to_string(repository().join("packaging/systemd").join(name))
        .expect("the unit");
    let text = text.replace("/usr/bin/braid", env!("CARGO_BIN_EXE_braid"));
    let unit = array.path(name);
    std::fs::write(&unit, text).expect("a file");
    unit
}

#[test]
fn the_units_are_in_order_and_expose_little() {
    needs!("systemd-analyze");
    let array = Array::create(RAID_5);
    for name in ["braid@.service", "braid-member.service"] {
        let unit = copied_unit(&array, name).display().to_string();
        let verified = run("systemd-analyze", ["verify", "--man=no", &unit]);
        assert!(verified.status.success(), "{verified:?}");
        assert_eq!((&*verified.stdout, &*verified.stderr), ("", ""), "it has something to say");
        // systemd's threshold is in tenths: 15 is an exposure of 1.5.
        let rated = run(
            "systemd-analyze",
            ["security", "--offline=true", "--threshold=15", "--no-pager", &unit],
        );
        assert!(rated.status.success(), "{rated:?}");
    }
    let careless = array.path("careless.service");
    std::fs::write(&careless, "[Service]\nExecStart=/bin/true\n").expect("a file");
    let rated = run(
        "systemd-analyze",
        [
            "security",
            "--offline=true",
            "--threshold=15",
            "--no-pager",
            &careless.display().to_string(),
        ],
    );
    assert!(!rated.status.success(), "the threshold rates nothing");
}

#[test]
fn options_of_the_unit_are_options() {
    let array = Array::create(RAID_5);
    let etc = configure(
        &array,
        "tank",
        &format!("array = \"{}\"\ndevices = [\"{}\"]\n", uuid(&array), array.path("m*").display()),
    );
    let text = std::fs::read_to_string(unit(&array)).expect("the unit");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .expect("a command")
        .replace("%i", "tank");
    let mut words = line.split_whitespace().skip(2).map(str::to_owned).collect::<Vec<_>>();
    words.extend(["--config-dir".to_owned(), etc]);
    served(&array, &words.iter().map(String::as_str).collect::<Vec<_>>()).stop();
}

/// udev's properties for a device, with braid's and md's rules, and another `/etc/braid`.
fn asked_of_udev(array: &Array, device: &Path, etc: &str) -> String {
    let rule = std::fs::read_to_string(repository().join("packaging/udev/62-braid.rules"));
    let scan = format!("{} scan --config-dir {etc}", env!("CARGO_BIN_EXE_braid"));
    let rule = rule.expect("the rule").replace("/usr/bin/braid scan", &scan);
    let file = array.path("62-braid.rules");
    std::fs::write(&file, rule.replace("\"/etc/braid\"", &format!("\"{etc}\""))).expect("a file");
    let name = device.file_name().expect("a device").to_string_lossy();
    // The udev rules are private to this run: the machine's own rules stay unchanged.
    let script = format!(
        "mount -t tmpfs none /run && mkdir -p /run/udev/rules.d && cp '{}' /run/udev/rules.d/ && exec udevadm test --action=add /sys/block/{name} 2>&1",
        file.display()
    );
    run("unshare", ["--mount", "sh", "-c", &script]).stdout
}

#[test]
fn udev_starts_the_unit_and_md_does_not_get_the_member() {
    needs!("udevadm", "unshare", "losetup");
    let array = Array::create(RAID_5);
    let Some(loops) = Loops::over(&array.members[..1]) else { return };
    let device = &loops.0[0];
    let etc = configure(&array, "house", &format!("array = \"{}\"\n", uuid(&array)));
    let said = asked_of_udev(&array, device, &etc);
    if !said.contains("62-braid.rules") {
        return skip(Need::LoopDevices, "udev cannot be asked here");
    }
    for line in ["ID_FS_TYPE=braid_member", "SYSTEMD_WANTS=braid@house.service"] {
        assert!(said.lines().any(|one| one == line), "{line}: {said}");
    }
    assert!(!said.contains("--incremental"), "mdadm was asked: {said}");
}
