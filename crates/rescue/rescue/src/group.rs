//! The arrays to which the disks belong, and the array that the operator means.

use std::collections::BTreeMap;

use braid_assembly::Choice;
use braid_ondisk::{Superblock, format_uuid};

use super::config::RescueConfig;
use super::disks::Disks;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_discovery::ready::choice;
use braid_discovery::ready::served_name;

pub(super) struct Group {
    pub(super) name: String,
    /// The array's UUID in mdadm's form.
    pub(super) uuid: String,
    pub(super) choice: Choice,
    /// Indices of the array's members, including those whose damaged superblock names the array.
    pub(super) members: Vec<usize>,
}

impl Named for Group {
    fn name(&self) -> &str {
        &self.name
    }
}

pub(super) trait Named {
    fn name(&self) -> &str;
}

impl<T: Named> Named for &T {
    fn name(&self) -> &str {
        (*self).name()
    }
}

/// The only array of `found`; an error if there are several arrays or none.
pub(super) fn one_of<T: Named>(
    mut found: Vec<T>,
    args: &RescueConfig,
    disks: &Disks,
) -> Result<T, CliError> {
    if found.len() > 1 {
        let names: Vec<&str> = found.iter().map(Named::name).collect();
        let what = format!("these members belong to {} arrays", names.len());
        let error = CliError::new(Code::SeveralArrays, what).because(names.join(", "));
        let look = args.command_for(Some(names[0]), "");
        return Err(error.remedy(Risk::Look, "Look at one of them", look));
    }
    found.pop().ok_or_else(|| {
        let examine = format!("braid examine {}", args.words());
        let error = CliError::new(Code::NoSuperblock, "no member of an array was found")
            .because("none of them has an intact md superblock")
            .remedy(Risk::Look, "See what is on them", examine);
        let ways = disks.ways(args).into_iter();
        ways.fold(error, |error, (risk, label, command)| error.remedy(risk, label, command))
    })
}

pub(super) fn groups(disks: &Disks, args: &RescueConfig) -> Result<Vec<Group>, CliError> {
    for name in args.with.iter().chain(&args.without) {
        if disks.called(name).is_empty() {
            let labels: Vec<&str> = disks.all.iter().map(|disk| disk.label.as_str()).collect();
            let what = format!("{name} is not one of the members");
            let error =
                CliError::new(Code::Usage, what).because(format!("they are {}", labels.join(", ")));
            return Err(error.remedy(Risk::Look, "See how", "braid rescue --help"));
        }
    }
    let mut found: BTreeMap<[u8; 16], (Superblock, Vec<usize>)> = BTreeMap::new();
    let left_out: Vec<usize> = args.without.iter().flat_map(|name| disks.called(name)).collect();
    let indices = || (0..disks.all.len()).filter(|index| !left_out.contains(index));
    for index in indices() {
        if let Some(superblock) = disks.all[index].probed.probe.newest() {
            let uuid = superblock.array.uuid;
            let entry = found.entry(uuid).or_insert_with(|| (superblock.clone(), Vec::new()));
            entry.1.push(index);
        }
    }
    // A disk without a sound superblock may have a damaged one that still names the array.
    for index in indices().filter(|index| disks.all[*index].probed.probe.newest().is_none()) {
        let mut damaged =
            disks.all[index].probed.probe.superblocks.iter().filter_map(|it| it.as_ref().err());
        let claim = damaged.find_map(|error| error.claim);
        if let Some((_, members)) = claim.and_then(|claim| found.get_mut(&claim.array_uuid)) {
            members.push(index);
        }
    }
    let wanted = choice(args.array.as_deref());
    let group = |(uuid, (superblock, members)): ([u8; 16], (Superblock, Vec<usize>))| {
        let (words, name) = (format_uuid(&uuid), &superblock.array.name);
        let is_wanted = wanted.admits(&uuid, name);
        let choice = Choice { uuid: Some(uuid), name: None };
        let name = served_name(name, &words);
        is_wanted.then_some(Group { name, uuid: words, choice, members })
    };
    Ok(found.into_iter().filter_map(group).collect())
}
