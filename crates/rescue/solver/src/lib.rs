//! Finds out how members were put together whose superblocks are lost, overwritten, or not to be
//! believed.
//!
//! The solver does not read md's superblocks. The array's content says where it belongs. A backup
//! of an ext4 superblock names its group, an XFS header its allocation group, a block of XFS or
//! btrfs its own address. The checksum of an ext4 inode covers the inode's number. Each such
//! structure is a *sign*: a sector of a member, and an address in a volume.
//!
//! ```text
//!   scan       members ─▶ volumes, signs
//!   shapes     every level, layout, chunk, number of slots that md would make of so many members
//!   places     ends of files and checksums of data, from the file systems
//!   fit        a shape and the volume's start ─▶ each sign votes for (member, slot, data offset)
//!   evidence   of the best: signs explained, predictions that hold, parity or copies that agree
//!   rank       guesses that read differently, by evidence; believed if no other comes near
//! ```
//!
//! # The algebra
//!
//! A shape maps address `start + a` to a slot and a sector `p` of its data area. A sign at sector
//! `s` of member `m` therefore says: `m` is in this slot, and its data begin at `s - p`. Under the
//! right shape all signs of a member name one slot and one offset; under a wrong shape they
//! scatter. So neither the order nor the offset of members is ever enumerated: votes name them.
//!
//! Some guesses cannot be told apart, and need not be: data that begin a row later in a volume that
//! begins a row earlier, with the slots turned; RAID-4 and RAID-5 with parity on the last; RAID-0
//! and RAID-4 without its parity. Guesses that read the same count as one, and the plainest is
//! shown. Without any address on the array the order cannot be known, and the solver returns no
//! guess.
//!
//! The same signs say how far a reshape in place got (`boundary`), as its shapes are known.
//!
//! Invariants:
//! - no answer is called certain that reads wrong bytes
//!   `[check: arrays_without_superblocks_are_solved]`;
//! - no content makes the solver panic, or take memory or time by its word `[fuzz: solver]`;
//! - members are read, never written: [`Platter`] cannot write.
#![forbid(unsafe_code)]

mod boundary;
mod bytes;
mod cache;
mod counts;
mod crc;
mod evidence;
mod fit;
mod guess;
mod habits;
mod judge;
mod linear;
mod place_index;
mod rounds;
mod scan;
mod shapes;
mod sign;
mod slots;
mod solve;
mod superblock_guesses;
mod volume_metadata;

pub use boundary::{Boundary, boundary};
pub use counts::Evidence;
pub use guess::{Guess, VolumeStart};
pub use scan::Effort;
pub use sign::{Volume, VolumeKind};
pub use solve::{Belief, Solution, solve};
pub use superblock_guesses::{weigh, with_superblock_guesses};

/// A member that can be read.
pub trait Platter {
    /// The member's size in sectors of 512 bytes.
    fn sectors(&self) -> u64;

    /// Reads whole sectors within the member. If the result is `false`, the content of `bytes` is
    /// meaningless.
    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool;
}
