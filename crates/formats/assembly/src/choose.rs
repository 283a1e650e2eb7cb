//! Chooses the array: the array that the operator named, or the only array.

use std::collections::BTreeMap;

use braid_ondisk::format_uuid;

use crate::candidates::{Candidate, Verdicts};
use crate::refusal::{ArrayName, Refusal};
use crate::verdict::{Reason, Verdict};

/// The array that the operator wants. If neither field is set, all members must be of one array.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// The array's UUID, in mdadm's order.
    pub uuid: Option<[u8; 16]>,
    /// The array's name, with or without mdadm's `host:` prefix.
    pub name: Option<String>,
}

impl Choice {
    fn is_open(&self) -> bool {
        self.uuid.is_none() && self.name.is_none()
    }

    /// Whether the choice allows the array with this UUID and name.
    #[must_use]
    pub fn admits(&self, uuid: &[u8; 16], name: &str) -> bool {
        let by_name = |wanted: &String| wanted == name || wanted == bare_name(name);
        self.uuid.is_none_or(|wanted| wanted == *uuid) && self.name.as_ref().is_none_or(by_name)
    }

    fn wanted(&self) -> Option<String> {
        match (&self.name, &self.uuid) {
            (Some(name), _) => Some(name.clone()),
            (None, Some(uuid)) => Some(format_uuid(uuid)),
            (None, None) => None,
        }
    }
}

/// The name of an array without mdadm's `host:` prefix.
#[must_use]
pub fn bare_name(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, bare)| bare)
}

/// The candidates of the chosen array. All other candidates get the verdict foreign.
pub(crate) fn choose<'a>(
    choice: &Choice,
    candidates: Vec<Candidate<'a>>,
    verdicts: &mut Verdicts,
) -> Result<Vec<Candidate<'a>>, Refusal> {
    let mut arrays: BTreeMap<[u8; 16], ArrayName> = BTreeMap::new();
    for candidate in &candidates {
        let array = &candidate.superblock.array;
        let known = arrays.entry(array.uuid).or_insert_with(|| ArrayName {
            uuid: array.uuid,
            name: array.name.clone(),
            members: 0,
        });
        known.members += 1;
    }
    let mut admitted: Vec<ArrayName> = arrays
        .into_values()
        .filter(|array| choice.is_open() || choice.admits(&array.uuid, &array.name))
        .collect();
    let chosen = match admitted.len() {
        1 => Some(admitted[0].uuid),
        _ => None,
    };
    let (ours, others): (Vec<_>, Vec<_>) = candidates
        .into_iter()
        .partition(|candidate| Some(candidate.superblock.array.uuid) == chosen);
    for other in others {
        let array = &other.superblock.array;
        let reason = Reason::OtherArray { uuid: array.uuid, name: array.name.clone() };
        verdicts.give(other.index, Verdict::Foreign, reason);
    }
    admitted.sort();
    match admitted.len() {
        0 => Err(Refusal::NoMembers { wanted: choice.wanted() }),
        1 => Ok(ours),
        _ => Err(Refusal::SeveralArrays { arrays: admitted }),
    }
}
