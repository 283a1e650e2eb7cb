//! The text of `braid status` for arrays in each state.

use braid_control::model::{
    Advice, Array, Failure, Found, FoundFate, FoundKind, FoundRun, Job, JobKind, JobResult,
    JobState, LastJob, LeftOut, Link, Slot, SlotState, Spread, State,
};

use super::array as rendered;
use braid_console::output::colour::Paint;
use braid_discovery::status::advice::{advice as advised, is_well};
use braid_discovery::status::sample::{slot, spare, tank};
use braid_discovery::status::words::Manner;

/// 2026-11-22 15:48:00 UTC.
const NOW: Manner = Manner { is_unicode: true, utc_seconds: 1_795_362_480 };

fn array(array: &Array, word: &str, paint: Paint) -> String {
    rendered(array, word, paint, NOW)
}

fn advice(array: &Array, word: &str) -> Vec<Advice> {
    advised(array, word, NOW)
}

use SlotState::{Failed, Missing, Ok, Recovering, Slow};

#[test]
fn what_could_not_be_made_is_told_with_what_to_type() {
    let mut array = tank(&[Ok, Ok, Ok, Ok]);
    array.slots[1].bad_sectors = 8;
    let advice = advice(&array, "tank");
    assert!(advice[0].problem.contains("8 sectors (4 KiB) of /dev/sdc (slot 1)"), "{advice:?}");
    assert!(advice[0].now.contains("until they are rewritten"), "{advice:?}");
    assert_eq!(advice[0].command.as_deref(), Some("braid check tank"));
    // The other members cannot return the remaining listed sectors: the advice is `--retry-bad`.
    let check = LastJob { named_sectors: 8, ..last(JobKind::Check, JobResult::Completed, 0) };
    array.last_jobs = vec![check];
    let advice = self::advice(&array, "tank");
    assert_eq!(advice[0].command.as_deref(), Some("braid check tank --retry-bad"));
    array.last_jobs[0].found.retries_bad = true;
    let advice = self::advice(&array, "tank");
    assert_eq!(advice[0].command.as_deref(), Some("braid examine /dev/sdc"));
    assert!(!is_well(&array));
}

#[test]
fn a_failed_member_is_told_with_what_to_type() {
    let text = array(&tank(&[Ok, Failed, Ok, Ok]), "tank", Paint::plain());
    let expected = "\
tank  RAID-6  4 GiB  DEGRADED (can lose 1 more member)  nbd+unix:///tank?socket=/run/braid/tank.sock
  problem  /dev/sdc (slot 1) failed at 14:02:11 UTC: write of 8 sectors at sector 8 failed
  now      its data is served from the others; tank can lose 1 more member
  do       add another in its place, or the same if it answers again (braid examine /dev/sdc):  braid add tank DEVICE
  check    none is known of
  layout   4 slots, left-symmetric, chunk 512 KiB, md 1.2, uuid a1:b2:c3:d4
  cache    3 MiB answered and not on the members yet
  clients  0 connected, 0 B of payloads; 0 B read, 0 B written
  server   process 7, since 2026-11-22T14:00:00Z; asked at /run/braid/tank.control
  slot  member    state   since
  0     /dev/sdb  ok
  1     /dev/sdc  FAILED  14:02:11 UTC
  2     /dev/sdd  ok
  3     /dev/sde  ok
  md: [U_UU]
";
    assert_eq!(text, expected);
}

#[test]
fn every_trouble_is_told_and_health_is_not() {
    assert!(is_well(&tank(&[Ok, Ok, Ok, Ok])));
    for (state, word) in
        [(Failed, "failed"), (Missing, "no member"), (Recovering, "not hold all"), (Slow, "slow")]
    {
        let said = advice(&tank(&[Ok, Ok, state]), "tank");
        assert_eq!(said.len(), 1, "{state:?}");
        assert!(said[0].problem.contains(word), "{said:?}");
        assert!(!said[0].now.is_empty() && !said[0].what.is_empty(), "{said:?}");
    }
    let said = advice(&tank(&[Missing, Ok, Missing, Ok]), "tank");
    assert_eq!(said.len(), 1, "one line for all of them: {said:?}");
    assert!(said[0].problem.starts_with("slots 0, 2 have had no member"), "{said:?}");
    let dirty = Array { dirty: true, parity_in_doubt: true, ..tank(&[Ok, Ok]) };
    assert!(advice(&dirty, "tank")[0].now.contains("cannot lose a member"));
    let lost = Array { lost: Some(Spread { ranges: 2, bytes: 4096 }), ..tank(&[Ok]) };
    assert!(advice(&lost, "tank")[0].problem.starts_with("4 KiB in 2 range(s)"));
    for (out_of_space, write_protected) in [(false, false), (true, false), (false, true)] {
        let failure = Failure {
            member: "/dev/sdb".into(),
            since: "2026-11-22T14:02:11Z".into(),
            out_of_space,
            write_protected,
            cause: "why".into(),
        };
        let failed = Array { state: State::Failed, failure: Some(failure), ..tank(&[Failed, Ok]) };
        let said = advice(&failed, "'my tank'");
        assert_eq!(said.len(), 1, "the member that was too many is told once: {said:?}");
        assert!(said[0].now.contains("writes are refused"), "the worst comes first: {said:?}");
        assert_eq!(said[0].command.as_deref(), Some("braid stop 'my tank'"));
    }
}

#[test]
fn a_member_that_was_left_out_of_a_take_over_needs_no_device() {
    let left_out = |member: &str, cause: Option<&str>, answers| LeftOut {
        member: member.into(),
        answers,
        cause: cause.map(str::to_owned),
    };
    let (first, second) = ("nbds://h1/disk", "nbds://h2/disk");
    let silent = |member| left_out(member, Some("no answer"), false);
    let mut one = tank(&[Ok, Missing, Ok, Ok]);
    one.left_out = vec![silent(first)];
    let expected = Advice {
        problem: "slot 1 has had no member since tank was started: nbds://h1/disk does not answer \
                  (no answer)"
            .into(),
        now: "it is taken in and recovered by itself when its server answers; its data is served \
              from the others; tank can lose 1 more member"
            .into(),
        what: "check its host, `braid member` there, and the network; to give it up, add another:"
            .into(),
        command: Some("braid add tank DEVICE".into()),
    };
    assert_eq!(advice(&one, "tank"), [expected]);
    one.left_out = vec![left_out(first, None, false)];
    assert!(
        advice(&one, "tank")[0].problem.ends_with("nbds://h1/disk was left out of the take-over")
    );
    one.left_out = vec![left_out(first, Some("it is too small"), true)];
    let refused = advice(&one, "tank").remove(0);
    assert!(refused.problem.ends_with("answers and is not taken in: it is too small"));
    assert!(refused.what.contains("braid examine nbds://h1/disk"), "{refused:?}");
    // Both slots can get their members back.
    let mut two = tank(&[Missing, Ok, Missing, Ok]);
    two.left_out = vec![silent(first), silent(second)];
    let both = advice(&two, "tank");
    assert_eq!(both.len(), 1, "{both:?}");
    assert!(both[0].problem.starts_with("slots 0, 2 have had no member"), "{both:?}");
    assert!(both[0].now.starts_with("each is taken in"), "{both:?}");
    // The store's record no longer names a member that failed under an earlier owner.
    two.left_out = vec![silent(second)];
    let said = advice(&two, "tank");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].problem.ends_with("one of them gets its member back when that answers"));
    assert!(said[0].what.starts_with("add a device for each of the others"), "{said:?}");
    assert!(said[1].problem.starts_with(second), "{said:?}");
    assert!(said[1].now.starts_with("it is taken in"), "{said:?}");
    // A member that was removed does not return.
    let gone = Slot {
        since: Some("2026-11-22T14:02:11Z".into()),
        cause: Some("/dev/sdb was taken away".into()),
        ..slot(0, Missing)
    };
    two.slots[0] = gone;
    let said = advice(&two, "tank");
    assert!(said[0].problem.starts_with("slot 0 has no member: /dev/sdb was taken"), "{said:?}");
    assert!(said[0].what.starts_with("add a device, or the missing member"), "{said:?}");
    assert!(said[1].problem.starts_with("slot 2 has had no member"), "{said:?}");
    // A spare takes the slot before the slot's member answers.
    one.slots.push(spare("/dev/sdx"));
    let said = advice(&one, "tank");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].now.starts_with("a spare is about to take its place"), "{said:?}");
}

#[test]
fn a_member_on_another_host_has_its_connection_beside_its_state() {
    let mut one = tank(&[Ok, Ok]);
    let link = Link { is_up: true, reconnects: 0, last_loss: None, mean_latency_us: 260 };
    one.slots[0].link = Some(link.clone());
    one.slots[1].link = Some(Link { is_up: false, reconnects: 2, ..link });
    let text = array(&one, "tank", Paint::plain());
    assert!(text.contains("  0     /dev/sdb  ok, 0.3 ms\n"), "{text}");
    let cut = "  1     /dev/sdc  ok, not connected, connected anew 2 times, 0.3 ms\n";
    assert!(text.contains(cut), "{text}");
}

fn job(kind: JobKind, state: JobState) -> Job {
    Job {
        kind,
        state,
        from_bytes: 0,
        done_bytes: 412,
        total_bytes: 1000,
        percent: 41.2,
        bytes_per_second: Some(312 << 20),
        seconds_left: (state == JobState::Running).then_some(6720),
        differing_sectors: 0,
        written_sectors: 0,
        unmade_sectors: 0,
        named_sectors: 0,
        found: Found::default(),
    }
}

fn last(kind: JobKind, result: JobResult, differing_sectors: u64) -> LastJob {
    LastJob {
        number: 1,
        kind,
        result,
        began: "2026-11-22T14:00:00Z".into(),
        ended: "2026-11-22T14:10:00Z".into(),
        took_ms: 600_000,
        from_bytes: 0,
        done_bytes: 4 << 20,
        total_bytes: 8 << 20,
        differing_sectors,
        written_sectors: 0,
        unmade_sectors: 0,
        named_sectors: 0,
        found: Found::default(),
    }
}

#[test]
fn a_spare_that_is_rebuilt_onto_is_told_with_the_member_that_it_stands_for() {
    let mut one = tank(&[Ok, Recovering, Ok, Ok]);
    one.replaced = vec![Slot { member: Some("/dev/sdx".into()), ..slot(1, Failed) }];
    one.jobs = vec![job(JobKind::Recovery, JobState::Running)];
    let text = array(&one, "tank", Paint::plain());
    let expected = "\
tank  RAID-6  4 GiB  DEGRADED (can lose 1 more member)  nbd+unix:///tank?socket=/run/braid/tank.sock
  problem  /dev/sdx (slot 1) failed at 14:02:11 UTC: write of 8 sectors at sector 8 failed
  now      rebuilding onto /dev/sdc  41.2 %  ████████▏···········  312 MiB/s  1h 52m left (done about 17:40 UTC); tank can lose 1 more member until then
  do       nothing now; it goes on by itself; /dev/sdx can be unplugged
";
    assert!(text.starts_with(expected), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("  1 ")).collect();
    assert!(rows[0].contains("/dev/sdx  REPLACED") && rows[1].contains("rebuilding"), "{text}");
    assert!(text.ends_with("md: [U_UU]\n"), "{text}");
}

#[test]
fn a_job_that_does_not_go_on_is_told_with_what_to_type() {
    let recovering = || tank(&[Ok, Recovering]);
    let said = |array: &Array| {
        let one = advice(array, "tank").remove(0);
        (one.now, one.command.unwrap_or_default())
    };
    let paused = Array { jobs: vec![job(JobKind::Recovery, JobState::Paused)], ..recovering() };
    let begun = Array { jobs_paused: true, ..recovering() };
    let read_only = Array { read_only: true, ..recovering() };
    let refused =
        |result| Array { last_jobs: vec![last(JobKind::Recovery, result, 0)], ..recovering() };
    let behind = Array { jobs: vec![job(JobKind::Resync, JobState::Running)], ..recovering() };
    let dirty = Array { dirty: true, jobs_paused: true, ..tank(&[Ok, Ok]) };
    for (array, now, command) in [
        (paused, "is paused at 41.2 %", "braid resume tank"),
        (begun, "jobs are paused", "braid resume tank"),
        (read_only, "read-only", "braid stop tank"),
        (refused(JobResult::Unreadable), "ended at 4 MiB, where more is", "braid rebuild tank"),
        (refused(JobResult::Unwritten), "no space", "braid rebuild tank"),
        (behind, "begins when resyncing is over", ""),
        (recovering(), "about to begin", ""),
        (dirty, "resyncing does not begin", "braid resume tank"),
    ] {
        let (told, typed) = said(&array);
        assert!(told.contains(now) && typed == command, "{now}: {told} / {typed}");
    }
}

#[test]
fn a_check_is_told_and_what_it_found_is_a_problem() {
    let said = |array: &Array| {
        let text = rendered(array, "tank", Paint::plain(), NOW);
        text.lines().find(|line| line.starts_with("  check")).unwrap_or_default().to_owned()
    };
    let with =
        |jobs: Vec<Job>, last_jobs: Vec<LastJob>| Array { jobs, last_jobs, ..tank(&[Ok, Ok]) };
    let running = with(vec![job(JobKind::Check, JobState::Running)], Vec::new());
    assert!(said(&running).contains("41.2 %") && is_well(&running), "{}", said(&running));
    let paused = with(vec![job(JobKind::Check, JobState::Paused)], Vec::new());
    assert!(said(&paused).ends_with("paused, go on with  braid resume tank"), "{}", said(&paused));
    let well = with(Vec::new(), vec![last(JobKind::Check, JobResult::Completed, 0)]);
    assert_eq!(said(&well), "  check    2026-11-22 14:10:00 UTC: all of it agrees");
    let next = |moment: &str| Array { next_check: Some(moment.into()), ..well.clone() };
    assert_eq!(
        said(&next("2026-12-22T14:10:00Z")),
        "  check    2026-11-22 14:10:00 UTC: all of it agrees; the next one at 2026-12-22 14:10:00 UTC"
    );
    assert!(said(&next("2026-11-22T15:48:00Z")).contains("is due since 2026-11-22 15:48:00 UTC"));
    assert!(is_well(&well));
    let found = with(Vec::new(), vec![last(JobKind::Check, JobResult::Completed, 16)]);
    assert!(said(&found).ends_with("16 sectors (8 KiB) do not agree"), "{}", said(&found));
    assert_eq!(advice(&found, "tank")[0].command.as_deref(), Some("braid check tank"));
    // Stripes whose wrong member is known can be repaired; repaired stripes are no problem.
    let mut known = found;
    known.last_jobs[0].found = Found {
        located_sectors: 8,
        runs: vec![FoundRun {
            kind: FoundKind::Data,
            slot: Some(1),
            member: Some("/dev/sdb".into()),
            candidate_slots: Vec::new(),
            member_offset_bytes: 2 << 20,
            array_offset_bytes: Some(3 << 20),
            length_bytes: 4096,
            fate: FoundFate::Left,
        }],
        ..Found::default()
    };
    assert!(said(&known).ends_with("8 sectors (4 KiB) are wrong, and their members are known"));
    assert_eq!(advice(&known, "tank")[0].command.as_deref(), Some("braid check tank --repair"));
    let text = rendered(&known, "tank", Paint::plain(), NOW);
    let run = "4 KiB of data at 2 MiB of the data of /dev/sdb (slot 1), at 3 MiB of the array: left as it is";
    assert!(text.contains(run), "{text}");
    known.last_jobs[0].found.repairs = true;
    known.last_jobs[0].found.repaired_sectors = 8;
    assert!(is_well(&known) && said(&known).ends_with("were wrong, and are repaired"));
    let cut = with(Vec::new(), vec![last(JobKind::Check, JobResult::Interrupted, 0)]);
    assert!(said(&cut).contains("ended at 50.0 %"), "{}", said(&cut));
    let striped = Array { level: "raid0".into(), ..tank(&[Ok, Ok]) };
    assert_eq!(said(&striped), "", "there is nothing to check");
}

#[test]
fn an_array_says_all_the_places_where_it_is() {
    let (file, device) = (Some("/tmp/disk".into()), Some("/dev/ublkb0".into()));
    let vhost_user = Some("/run/braid/tank.vhost".into());
    let text =
        array(&Array { file, device, vhost_user, ..tank(&[Ok, Ok]) }, "tank", Paint::plain());
    let headline = text.lines().next().unwrap_or_default();
    assert!(
        headline.ends_with("/run/braid/tank.sock  /tmp/disk  /dev/ublkb0  /run/braid/tank.vhost"),
        "{headline}"
    );
}

#[test]
fn no_name_of_a_member_or_an_array_reaches_the_terminal_or_the_shell() {
    let mut forged = tank(&[Ok, Failed]);
    forged.name = "a\u{1b}[2Jb".into();
    forged.slots[1].member = Some("/dev/x; rm -rf \u{1b}[2J".into());
    forged.uris = vec!["nbd://\u{202e}".into()];
    let text = array(&forged, "tank", Paint::plain());
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    assert!(text.contains("braid examine '"), "{text}");
}
