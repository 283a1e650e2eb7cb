//! The data sheet of a disk, and the arithmetic that follows from it.

const fn mebibytes(count: u64) -> u64 {
    count << 11
}

/// A disk's sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// Turns in a minute.
    pub rpm: u64,
    /// Sectors of 512 bytes on a track; with the turns, this gives the transfer rate.
    pub sectors_per_track: u64,
    /// Tracks that the arm reaches.
    pub tracks: u64,
    /// Time of a seek to the next track.
    pub track_seek_ns: u64,
    /// Mean time of a seek over all pairs of tracks.
    pub average_seek_ns: u64,
    /// Time that a command takes in addition to the arm's time.
    pub overhead_ns: u64,
    /// Capacity of the write cache.
    pub cache_sectors: u64,
    /// Sectors that the disk reads ahead after a read while no other request waits.
    pub read_ahead_sectors: u64,
    /// The longest run that the arm serves at once.
    pub run_sectors_max: u64,
}

impl DiskPlan {
    /// A SATA disk of 7200 turns as in the seed's four (2 Xeon 5150, 2008). The sheet of the
    /// Seagate Barracuda 7200.8 (The Tech Report, review 8160) has 65 MB/s sustained, 8.0 ms
    /// average seek, 4.16 ms half a turn and 8 MiB of cache. 62 MB/s were measured of its successor
    /// (goughlui.com, ST3320620A). The step to the next track, a command's overhead and the
    /// read-ahead are usual values, on no sheet.
    pub const SATA_2005: Self = Self {
        rpm: 7200,
        sectors_per_track: 1058,
        tracks: 400_000,
        track_seek_ns: 800_000,
        average_seek_ns: 8_000_000,
        overhead_ns: 50_000,
        cache_sectors: mebibytes(8),
        read_ahead_sectors: mebibytes(1),
        run_sectors_max: 256,
    };

    /// Number of sectors of the disk.
    #[must_use]
    pub const fn sectors(&self) -> u64 {
        self.tracks * self.sectors_per_track
    }

    /// Time of one turn.
    #[must_use]
    pub const fn turn_ns(&self) -> u64 {
        60_000_000_000 / self.rpm
    }

    /// The time in which these sectors pass under the head.
    #[must_use]
    pub const fn transfer_ns(&self, sectors: u64) -> u64 {
        sectors * self.turn_ns() / self.sectors_per_track
    }

    /// The angle at which a sector is on its track, as a time from the turn's start.
    #[must_use]
    pub const fn angle_ns(&self, sector: u64) -> u64 {
        self.transfer_ns(sector) % self.turn_ns()
    }

    /// The time of a seek between the tracks of two sectors: nothing on the same track, a step to
    /// the next track. Further on, the time follows the root of the distance. The mean over all
    /// pairs of tracks is the sheet's average seek; the mean root of their distances is 8/15.
    #[must_use]
    pub fn seek_ns(&self, from: u64, to: u64) -> u64 {
        let track = |sector: u64| sector / self.sectors_per_track;
        let distance = track(from).abs_diff(track(to));
        if distance == 0 {
            return 0;
        }
        let full = (self.average_seek_ns - self.track_seek_ns) * 15 / 8;
        // The root of the distance as a fraction of all tracks, in units of 2^-16.
        let root = ((distance << 32) / self.tracks).isqrt();
        self.track_seek_ns + ((full * root) >> 16)
    }
}
