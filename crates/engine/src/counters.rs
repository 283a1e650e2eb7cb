//! What a shard has done, in plain numbers, for the command line, the lab and the tests.

/// Counts since the shard was made. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Member reads asked for.
    pub member_reads: u64,
    /// Member writes asked for, zeroing included.
    pub member_writes: u64,
    /// Extents read straight from one member into the client's payload.
    pub direct_reads: u64,
    /// Stripe batches that had to reconstruct a column.
    pub reconstructions: u64,
    /// Stripe batches that wrote every data column whole.
    pub full_stripe_writes: u64,
    /// Stripe batches that chose reconstruct-write.
    pub rcw_writes: u64,
    /// Stripe batches that chose read-modify-write.
    pub rmw_writes: u64,
    /// Ranges rewritten because reading them failed.
    pub read_repairs: u64,
    /// Pieces that waited for a free stripe.
    pub stripe_waits: u64,
    /// Stripes handed from a finished batch straight to a waiting piece.
    pub stripe_hand_overs: u64,
    /// Member requests that failed.
    pub member_errors: u64,
}

impl Counters {
    /// Adds `other`, field by field, to sum over shards.
    pub fn add(&mut self, other: &Self) {
        self.member_reads += other.member_reads;
        self.member_writes += other.member_writes;
        self.direct_reads += other.direct_reads;
        self.reconstructions += other.reconstructions;
        self.full_stripe_writes += other.full_stripe_writes;
        self.rcw_writes += other.rcw_writes;
        self.rmw_writes += other.rmw_writes;
        self.read_repairs += other.read_repairs;
        self.stripe_waits += other.stripe_waits;
        self.stripe_hand_overs += other.stripe_hand_overs;
        self.member_errors += other.member_errors;
    }
}
