//! The store's record of one array.

use std::collections::BTreeSet;
use std::fmt::{self, Debug, Formatter};

use crate::claim::OwnerId;

/// A member's device UUID, as in its superblock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberKey(pub [u8; 16]);

impl Debug for MemberKey {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// A member in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedMember {
    /// The member's device UUID.
    pub key: MemberKey,
    /// The member's URI, for an heir that was given none.
    pub address: String,
    /// Whether the member has all acknowledged writes.
    pub is_in_sync: bool,
}

/// The record of one array. The record is changed by compare-and-swap only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The array's UUID.
    pub array: [u8; 16],
    /// The number of the tenure, from 1 on.
    pub epoch: u64,
    /// The owner; `None` after the last owner ended in order.
    pub owner: Option<OwnerId>,
    /// The owner's host, for people. Without an owner: the host that should take the array over,
    /// empty for any. The host decides only which server tries first.
    pub host: String,
    /// Counts the owner's swaps. Owner and serial name one swap, so that a swap whose answer was
    /// lost is recognised. A rising serial shows that the owner is alive.
    pub serial: u64,
    /// All members.
    pub members: Vec<RecordedMember>,
    /// Why the record was changed last, for people.
    pub reason: String,
}

impl Record {
    /// The members in sync.
    #[must_use]
    pub fn in_sync(&self) -> BTreeSet<MemberKey> {
        self.members.iter().filter(|one| one.is_in_sync).map(|one| one.key).collect()
    }

    /// The same record with these members in sync, and no others.
    #[must_use]
    pub fn with_in_sync(&self, in_sync: &BTreeSet<MemberKey>) -> Self {
        let mut record = self.clone();
        for member in &mut record.members {
            member.is_in_sync = in_sync.contains(&member.key);
        }
        record
    }
}
