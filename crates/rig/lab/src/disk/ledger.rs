//! The account of the arm's time: for whom it seeks, waits for the platter, and transfers.
//!
//! A run is several requests, adjacent or joined by the cache. The positioning for a run is charged
//! to its first request, the transfer to each request.

use super::runs::Runs;

/// The purpose of the arm's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmPurpose {
    /// The arm reads for a client.
    Reader,
    /// The arm reads for a write that must read first.
    PreRead,
    /// A client's data.
    Data,
    /// The arm writes parity.
    Parity,
}

impl ArmPurpose {
    /// All purposes.
    pub const ALL: [Self; 4] = [Self::Reader, Self::PreRead, Self::Data, Self::Parity];

    /// The purpose's name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "readers",
            Self::PreRead => "pre-reads",
            Self::Data => "data",
            Self::Parity => "parity",
        }
    }
}

/// Time of the arm, divided by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmTime {
    /// Seeks to another track.
    pub seek_ns: u64,
    /// Waits for the platter's rotation.
    pub rotation_ns: u64,
    /// Transfers of sectors.
    pub transfer_ns: u64,
    /// Runs that needed a seek or a rotation.
    pub positionings: u64,
}

impl ArmTime {
    /// The sum of seek, rotation and transfer time.
    #[must_use]
    pub const fn all_ns(&self) -> u64 {
        self.seek_ns + self.rotation_ns + self.transfer_ns
    }
}

/// Time of the arms, indexed by [`ArmPurpose`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account(pub [ArmTime; 4]);

impl Account {
    /// The time spent on one purpose.
    #[must_use]
    pub const fn of(&self, purpose: ArmPurpose) -> ArmTime {
        self.0[purpose as usize]
    }

    /// The sum over all purposes.
    #[must_use]
    pub fn all_ns(&self) -> u64 {
        self.0.iter().map(ArmTime::all_ns).sum()
    }

    /// The time spent on writes: everything but readers.
    #[must_use]
    pub fn writes_ns(&self) -> u64 {
        self.all_ns() - self.of(ArmPurpose::Reader).all_ns()
    }

    /// A line of text: seconds of all arms together, by [`ArmPurpose`], as seek + rotation +
    /// transfer, and the number of positionings.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "four figures are shown")]
    pub fn line(&self) -> String {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let one = |purpose: ArmPurpose| {
            let spent = self.of(purpose);
            format!(
                "{} {:.2} s ({:.2} + {:.2} + {:.2}, {} times)",
                purpose.name(),
                seconds(spent.all_ns()),
                seconds(spent.seek_ns),
                seconds(spent.rotation_ns),
                seconds(spent.transfer_ns),
                spent.positionings
            )
        };
        ArmPurpose::ALL.map(one).join(", ")
    }

    /// Joins two accounts, field by field.
    #[must_use]
    pub fn with(self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let both = |one: ArmTime, other: ArmTime| ArmTime {
            seek_ns: join(one.seek_ns, other.seek_ns),
            rotation_ns: join(one.rotation_ns, other.rotation_ns),
            transfer_ns: join(one.transfer_ns, other.transfer_ns),
            positionings: join(one.positionings, other.positionings),
        };
        Self(std::array::from_fn(|index| both(self.0[index], other.0[index])))
    }
}

/// One arm's account, and the parity sectors in the cache.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    account: Account,
    parity: Runs,
}

impl Ledger {
    pub(super) fn account(&self) -> Account {
        self.account
    }

    pub(super) fn of(&mut self, purpose: ArmPurpose) -> &mut ArmTime {
        &mut self.account.0[purpose as usize]
    }

    pub(super) fn cached(&mut self, (from, to): (u64, u64), purpose: ArmPurpose) {
        if purpose == ArmPurpose::Parity {
            self.parity.add(from, to);
        }
    }

    pub(super) fn of_cached(&self, sector: u64) -> ArmPurpose {
        if self.parity.holds(sector, sector + 1) { ArmPurpose::Parity } else { ArmPurpose::Data }
    }

    /// Notes that sectors leave the cache, and charges their transfer time sector by sector.
    pub(super) fn destaged(&mut self, (from, to): (u64, u64), transfer_ns: u64) {
        let parity_ns = transfer_ns * self.parity.remove(from, to) / (to - from);
        self.of(ArmPurpose::Parity).transfer_ns += parity_ns;
        self.of(ArmPurpose::Data).transfer_ns += transfer_ns - parity_ns;
    }
}
