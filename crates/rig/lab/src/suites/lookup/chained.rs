//! The reference for braid's index: chained buckets whose nodes are the heads of the stripes
//! themselves.
//!
//! A head is as big as md's on 64 bits with five devices: 0xf8 bytes and 0xb0 for each further
//! device, 952 bytes (the linux-raid thread of 2006 that is the suite's source). So every step
//! along a chain is another cache line, and soon another page. The key is at md's place, 0x28 bytes
//! in. Heads are made in one order and chained in another, as in a well-used cache.

use crate::random::Random;

const HEAD_BYTES: usize = 0xf8 + 4 * 0xb0;
/// Bytes of a head after its key and number.
const REST_BYTES: usize = HEAD_BYTES - 0x34;

#[derive(Debug)]
#[repr(C)]
struct Head {
    next: Option<Box<Head>>,
    before_key: [u8; 0x20],
    band: u64,
    stripe: u32,
    rest: [u8; REST_BYTES],
}

const _: () = assert!(size_of::<Head>() == HEAD_BYTES, "as big as md's");

/// A table that finds stripes by band, through chains.
#[derive(Debug)]
pub(super) struct Chained {
    buckets: Vec<Option<Box<Head>>>,
}

impl Chained {
    /// A table with `buckets` buckets, a power of two, and a stripe for each of `bands`.
    pub(super) fn new(buckets: usize, bands: &[u64], random: &mut Random) -> Self {
        assert!(buckets.is_power_of_two(), "the lower bits of a band choose its bucket");
        let mut heads: Vec<Box<Head>> = (0u32..)
            .zip(bands)
            .map(|(stripe, band)| {
                Box::new(Head {
                    next: None,
                    before_key: [0; 0x20],
                    band: *band,
                    stripe,
                    rest: [0; REST_BYTES],
                })
            })
            .collect();
        random.shuffle(&mut heads);
        let mut this = Self { buckets: (0..buckets).map(|_| None).collect() };
        for mut head in heads {
            let bucket = this.bucket(head.band);
            head.next = this.buckets[bucket].take();
            this.buckets[bucket] = Some(head);
        }
        this
    }

    #[allow(clippy::cast_possible_truncation, reason = "the lower bits are what is wanted")]
    fn bucket(&self, band: u64) -> usize {
        band as usize & (self.buckets.len() - 1)
    }

    pub(super) fn get(&self, band: u64) -> Option<u32> {
        let mut next = self.buckets[self.bucket(band)].as_deref();
        while let Some(head) = next {
            if head.band == band {
                return Some(head.stripe);
            }
            next = head.next.as_deref();
        }
        None
    }

    /// Number of heads that a lookup of a band visits, whether or not the lookup finds the band.
    pub(super) fn probes(&self, band: u64) -> u64 {
        let mut probes = 0;
        let mut next = self.buckets[self.bucket(band)].as_deref();
        while let Some(head) = next {
            probes += 1;
            if head.band == band {
                break;
            }
            next = head.next.as_deref();
        }
        probes
    }
}

impl Drop for Chained {
    /// Frees one head after the other: a chain may be too long for recursion.
    fn drop(&mut self) {
        for bucket in &mut self.buckets {
            let mut next = bucket.take();
            while let Some(mut head) = next {
                next = head.next.take();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_find_what_is_there_and_nothing_else() {
        let bands: Vec<u64> = (0..2000).map(|n| n * 3).collect();
        for buckets in [512, 4096] {
            let chained = Chained::new(buckets, &bands, &mut Random::new(1));
            for (stripe, band) in (0..).zip(&bands) {
                assert_eq!(chained.get(*band), Some(stripe));
                assert_eq!(chained.get(band + 1), None);
            }
        }
    }

    #[test]
    fn sixteen_k_in_512_buckets_are_32_to_a_chain() {
        let bands: Vec<u64> = (0..16 << 10).collect();
        let chained = Chained::new(512, &bands, &mut Random::new(1));
        assert!((16 << 10..17 << 10).all(|band| chained.probes(band) == 32));
    }
}
