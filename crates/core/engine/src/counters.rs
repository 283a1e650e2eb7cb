//! Counts of a shard's work, in plain numbers, for the command line, the lab and the tests.

/// A struct of counters that can be added up and listed by name.
macro_rules! counters {
    ($(#[doc = $about:literal])+ struct $name:ident {
        $($(#[doc = $text:literal])+ $field:ident,)+
        $(with $(#[doc = $inner_text:literal])+ $inner:ident: $inner_type:ty,)?
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $text])+ pub $field: u64,)+
            $($(#[doc = $inner_text])+ pub $inner: $inner_type,)?
        }

        impl $name {
            /// Adds `other`, field by field, to sum over shards.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
                $(self.$inner.add(&other.$inner);)?
            }

            /// Each counter with its name, in the order of the struct.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                #[allow(unused_mut, reason = "not all have others inside")]
                let mut all = vec![$((stringify!($field), self.$field),)+];
                $(all.extend(self.$inner.named());)?
                all
            }
        }
    };
}

counters! {
    /// A stripe cache's counts since it was made; part of [`Counters`].
    struct CacheCounters {
        /// Columns that a write found in the cache instead of reading them.
        cached_columns,
        /// Times that a stripe was ready to begin but had to wait for memory.
        stripe_waits,
        /// Times that a finished batch gave its memory straight to the first waiting stripe.
        stripe_hand_overs,
        /// Parts of writes acknowledged before the members had the data.
        early_answers,
        /// Parts of writes that no member received, because a later write covered them.
        superseded_writes,
        /// Reads served, in part at least, from writes that the members did not have yet.
        dirty_reads,
        /// Times that a partial stripe was delayed to let it fill.
        delays,
        /// Times that a partial stripe, no longer delayed, was held until full-width writes had
        /// passed.
        holds,
        /// Full-width writes that went ahead of a held stripe.
        bypasses,
        /// Held stripes that began: full-width writes had passed them often enough, or none was
        /// ahead.
        hold_promotions,
        /// Delayed or held stripes that began because they had become full.
        filled_promotions,
        /// Sectors copied inside memory, between payloads and stripes.
        copied_sectors,
        /// Lookups in the index from a band to its stripe.
        lookups,
        /// Cache lines of the index that lookups read beyond the first line.
        extra_probes,
    }
}

counters! {
    /// Counts since the shard was made. They only grow.
    struct Counters {
        /// Submitted member reads.
        member_reads,
        /// Submitted member writes, zeroing included.
        member_writes,
        /// Extents read straight from one member into the client's payload.
        direct_reads,
        /// Member reads of old data or parity that a write had to wait for.
        pre_reads,
        /// Stripe batches that had to reconstruct a column.
        reconstructions,
        /// Stripe batches that wrote every data column whole.
        full_stripe_writes,
        /// Stripe batches that chose reconstruct-write.
        rcw_writes,
        /// Stripe batches that chose read-modify-write.
        rmw_writes,
        /// Ranges that the shard rewrote on a member because their read failed.
        read_repairs,
        /// Member requests that failed.
        member_errors,
        /// Reads, in extents and parts of bands, that used other members because their member sits
        /// out.
        reads_around,
        /// Reads in flight that the shard abandoned because their member began to sit out; it
        /// computed the bytes in another way.
        abandoned_reads,
        /// Reads of members that sit out, submitted only to measure those members' latency.
        probes,
        with
        /// The counts of the stripe cache.
        cache: CacheCounters,
    }
}
