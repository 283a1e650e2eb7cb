//! The partitions of a rescued array: each is an export of its own, as well as the whole array, for
//! `mount -o ro`.
//!
//! A part is a stretch of the whole array's export: clients of both exports see one content.
//!
//! Invariant
//! - A part shows its stretch of the array, and no request goes beyond the stretch
//!   `[check: a_part_is_a_stretch_of_the_whole]`.

use std::ops::Range;
use std::sync::Arc;

use braid_frontend_nbd::{ClientRequest, Completion, Export};
use braid_nbd_proto::{BlockSizes, Extent};

use super::volume_export::{VolumeExport, VolumePlaces};

/// A stretch of an array with its own content, or scattered bytes of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartExport {
    name: String,
    source: PartSource,
    words: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PartSource {
    /// A stretch of the array with this number; the whole array if the range has no end.
    Stretch(usize, Range<u64>),
    Volume(Arc<VolumePlaces>),
}

impl PartExport {
    /// A part with this name: bytes of the array with this number, and words on the content.
    pub(crate) fn new(name: String, (array, bytes): (usize, Range<u64>), words: String) -> Self {
        Self { name, source: PartSource::Stretch(array, bytes), words }
    }

    /// A part with this name for a volume whose bytes are scattered.
    pub(crate) fn mapped(name: String, places: VolumePlaces, words: String) -> Self {
        Self { name, source: PartSource::Volume(Arc::new(places)), words }
    }
}

impl braid_server::Part for PartExport {
    fn name(&self) -> &str {
        &self.name
    }

    fn offset_bytes(&self) -> Option<u64> {
        match &self.source {
            PartSource::Stretch(_, bytes) => Some(bytes.start),
            PartSource::Volume(_) => None,
        }
    }

    fn size_bytes(&self) -> u64 {
        match &self.source {
            PartSource::Stretch(_, bytes) => bytes.end - bytes.start,
            PartSource::Volume(places) => places.size_bytes(),
        }
    }

    fn words(&self) -> &str {
        &self.words
    }

    fn export(&self, arrays: &[Arc<dyn Export>]) -> Arc<dyn Export> {
        match &self.source {
            PartSource::Stretch(array, bytes) => {
                let whole = Arc::clone(&arrays[*array]);
                let (name, words) = (self.name.clone(), self.words.clone());
                Arc::new(StretchExport { name, words, bytes: bytes.clone(), whole })
            }
            PartSource::Volume(places) => {
                let (name, words) = (self.name.clone(), self.words.clone());
                Arc::new(VolumeExport::new((name, words), Arc::clone(places), arrays.to_vec()))
            }
        }
    }
}

struct StretchExport {
    name: String,
    words: String,
    bytes: Range<u64>,
    whole: Arc<dyn Export>,
}

impl StretchExport {
    fn at(&self, offset: u64) -> u64 {
        self.bytes.start + offset
    }
}

impl Export for StretchExport {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        format!("{} on {}", self.words, self.whole.description())
    }

    fn is_withdrawn(&self) -> bool {
        self.whole.is_withdrawn()
    }

    fn size_bytes(&self) -> u64 {
        let size_bytes = self.bytes.end - self.bytes.start;
        size_bytes - size_bytes % u64::from(self.whole.block_sizes().minimum_bytes())
    }

    fn read_only(&self) -> bool {
        self.whole.read_only()
    }

    fn block_sizes(&self) -> BlockSizes {
        self.whole.block_sizes()
    }

    fn stretch_bytes(&self) -> u64 {
        self.whole.stretch_bytes()
    }

    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        self.whole.zeroes_fast(self.at(offset), length)
    }

    fn submit(&self, request: ClientRequest, completion: Completion) {
        self.whole.submit(request.moved(self.bytes.start), completion);
    }

    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        let mut left = self.size_bytes() - offset;
        let extents = self.whole.block_status(self.at(offset), length, extents_max).into_iter();
        // The last extent returned may reach beyond the request, and beyond the part.
        let cut = extents.map_while(|extent| {
            let length_bytes = extent.length_bytes.min(left);
            left -= length_bytes;
            (length_bytes > 0).then_some(Extent { length_bytes, ..extent })
        });
        cut.collect()
    }
}
