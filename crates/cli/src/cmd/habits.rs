//! Words from mdadm, ZFS, LVM and other commands, and braid's word for each.
//!
//! This table of foreign words is searched before braid's verbs with similar spelling, which may
//! mean the opposite (`detail`, `fail`).

use braid_console::error::{CliError, Risk};

/// A foreign word and its braid command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Habit {
    words: &'static [&'static str],
    /// braid's command for the same action.
    command: &'static str,
    /// The subject of the command, for the advice.
    what: &'static str,
    risk: Risk,
}

const fn look(words: &'static [&'static str], command: &'static str, what: &'static str) -> Habit {
    Habit { words, command, what, risk: Risk::Look }
}

const fn change(
    words: &'static [&'static str],
    command: &'static str,
    what: &'static str,
) -> Habit {
    Habit { risk: Risk::Change, ..look(words, command, what) }
}

const HABITS: [Habit; 25] = [
    change(
        &[
            "assemble",
            "start",
            "run",
            "import",
            "up",
            "activate",
            "incremental",
            "auto-detect",
            "open",
            "online",
        ],
        "braid serve MEMBER...",
        "Assemble an array and serve it",
    ),
    change(
        &[
            "export",
            "shutdown",
            "down",
            "deactivate",
            "close",
            "unmount",
            "umount",
            "kill",
            "halt",
            "destroy",
        ],
        "braid stop NAME",
        "Stop an array; nothing on its members is destroyed",
    ),
    look(
        &["detail", "info", "show", "inspect", "mdstat", "health", "stats", "state", "display"],
        "braid status NAME",
        "See the state of an array",
    ),
    look(&["ls", "ps", "pools", "arrays"], "braid list", "List the arrays that are served"),
    look(
        &["query", "probe", "print", "dump", "identify"],
        "braid examine MEMBER...",
        "See what is on members",
    ),
    look(
        &["examine-bitmap", "bitmap"],
        "braid examine MEMBER...",
        "See what is on members, their bitmaps too",
    ),
    change(
        &["mount"],
        "braid serve --fuse FILE MEMBER...",
        "Serve an array as a file that can be mounted",
    ),
    look(&["build", "init", "initialize", "make", "new"], "braid create --help", "Make an array"),
    look(
        &["resize", "expand", "extend", "reshape", "size", "shrink"],
        "braid grow --help",
        "Give an array more or fewer members, another size, level, chunk or layout",
    ),
    look(&["monitor", "follow", "watch", "tail"], "braid events -f", "See what happens"),
    look(&["log", "logs", "journal"], "braid history NAME", "See what happened"),
    look(&["iostat", "perf", "stat"], "braid top", "Watch arrays at work"),
    change(
        &["scrub", "verify", "fsck", "sync_action", "action"],
        "braid check NAME",
        "Compare all of an array with its redundancy",
    ),
    change(
        &["repair", "fix", "correct"],
        "braid check NAME --repair",
        "Rewrite the sectors that are known to be wrong",
    ),
    change(
        &["resilver", "resync", "sync", "clear"],
        "braid rebuild NAME",
        "Rebuild missing members",
    ),
    change(
        &["re-add", "readd", "attach", "hotadd", "insert", "add-spare"],
        "braid add NAME DEVICE",
        "Add a device as a member, or a former member again",
    ),
    change(&["offline", "faulty", "set-faulty"], "braid fail NAME DEVICE", "Fail a member"),
    change(
        &["detach", "delete", "del", "rm", "eject", "hotremove"],
        "braid remove NAME DEVICE",
        "Remove a failed member",
    ),
    change(
        &["swap", "exchange", "move", "pvmove"],
        "braid replace NAME MEMBER --with DEVICE",
        "Replace a member by another device",
    ),
    look(
        &["recover", "restore", "salvage", "force", "solve"],
        "braid rescue MEMBER...",
        "Read back an array that does not start",
    ),
    look(
        &["rollback", "undelete", "back"],
        "braid undo -n",
        "See which overwritten bytes can be put back",
    ),
    change(
        &["clone", "copy", "dd", "ddrescue", "backup"],
        "braid image DISK IMAGE",
        "Copy a failing disk",
    ),
    look(
        &["config", "configure", "settings", "change", "manage", "edit"],
        "braid get NAME",
        "See the settings of an array; `braid set` changes them",
    ),
    change(
        &["readonly", "readwrite", "read-only", "ro", "rw"],
        "braid serve --read-only MEMBER...",
        "Serve an array without writing to it",
    ),
    look(
        &["zero-superblock", "zero", "wipe", "labelclear", "format"],
        "wipefs DEVICE",
        "Braid does not wipe former members; see which signatures would go",
    ),
];

/// mdadm's short options that choose its mode.
const SHORT: [(&str, &str); 9] = [
    ("-A", "assemble"),
    ("-B", "build"),
    ("-C", "create"),
    ("-D", "detail"),
    ("-E", "examine"),
    ("-F", "monitor"),
    ("-G", "grow"),
    ("-I", "incremental"),
    ("-Q", "query"),
];

/// braid's command for a word, with mdadm's dashes or without. `verbs` are braid's verbs.
pub(crate) fn meant(error: CliError, word: &str, verbs: &[&str]) -> Option<CliError> {
    const WORDS: &str = "braid help mdadm";
    let long = SHORT.iter().find(|(short, _)| *short == word).map(|(_, long)| *long);
    let bare = long.unwrap_or_else(|| word.trim_start_matches('-')).to_lowercase();
    if let Some(verb) = verbs.iter().find(|verb| **verb == bare).filter(|_| word.starts_with('-')) {
        let error = error.because(format!("'{verb}' is a verb here, and has no dashes"));
        return Some(error.remedy(Risk::Look, "See how", format!("braid {verb} --help")));
    }
    let habit = HABITS.iter().find(|habit| habit.words.contains(&bare.as_str()))?;
    let error = match habit.command == WORDS {
        true => error,
        false => error.because(format!("`{WORDS}` lists mdadm's words with braid's")),
    };
    Some(error.remedy(habit.risk, habit.what, habit.command))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cmd::Cli;
    use braid_console::error::code::Code;

    fn first(word: &str) -> Option<String> {
        let command = Cli::command();
        let verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let error = meant(CliError::new(Code::Usage, "x"), word, &verbs)?;
        error.remedies().first().map(|remedy| remedy.command.clone())
    }

    #[test]
    fn a_word_of_mdadm_or_zfs_leads_to_what_it_means() {
        assert_eq!(first("detail").as_deref(), Some("braid status NAME"));
        assert_eq!(first("--detail").as_deref(), Some("braid status NAME"));
        assert_eq!(first("-D").as_deref(), Some("braid status NAME"));
        assert_eq!(first("--stop").as_deref(), Some("braid stop --help"));
        assert_eq!(first("-E").as_deref(), Some("braid examine --help"));
        assert_eq!(first("Scrub").as_deref(), Some("braid check NAME"));
        assert_eq!(first("offline").as_deref(), Some("braid fail NAME DEVICE"));
        assert_eq!(first("--grow").as_deref(), Some("braid grow --help"));
        assert_eq!(first("frobnicate"), None);
    }

    #[test]
    fn each_word_is_there_once_and_is_no_verb_and_each_command_is_one() {
        let mut seen = BTreeSet::new();
        let command = Cli::command();
        for habit in &HABITS {
            for word in habit.words {
                assert!(seen.insert(word), "{word} is there twice");
                assert!(command.find_subcommand(word).is_none(), "{word} is a verb");
            }
            let words: Vec<&str> = habit.command.split(' ').collect();
            if words[0] == "braid" {
                let kind = Cli::try_parse_from(&words).err().map(|error| error.kind());
                let is_help = kind == Some(clap::error::ErrorKind::DisplayHelp);
                assert!(kind.is_none() || is_help, "{}: {kind:?}", habit.command);
            }
        }
    }
}
