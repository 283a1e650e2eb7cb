//! A volume of LVM as an export: its bytes are scattered over one array or several.
//!
//! ```text
//!   request ─▶ runs: each on one array, or zeroes, or lost
//!     ├─▶ one run: passed to its array unchanged
//!     └─▶ several: a request each, and the last to complete answers
//! ```
//!
//! All extents of a volume are mapped before the volume is served, so requests never wait for a
//! lookup. Volumes whose writes would also need other places (thin ones, copies) are read-only.
//!
//! Invariants
//! - No request touches bytes of an array outside the volume
//!   `[check: volumes_of_a_nas_are_read_over_several_arrays]`.
//! - Lost bytes are an I/O error, and the bytes next to them are read
//!   `[check: a_volume_that_lies_on_a_lost_array_is_read_where_it_is_not]`.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use braid_frontend_nbd::{ClientRequest, Completion, Export, Outcome, Payload, RequestError};
use braid_lvm::{ByteLocation, Map};
use braid_nbd_proto::{BlockSizes, Extent, wire};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumePlaces {
    pub(crate) map: Map,
    /// For each part of the volume's group, the array and the bytes where the part is, if present.
    pub(crate) parts: Vec<Option<(usize, Range<u64>)>>,
    /// Whether the volume is read-only, because its writes would also change other places.
    pub(crate) is_read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BytePlace {
    Array(usize, u64),
    Zero,
    Lost,
}

impl VolumePlaces {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.map.size_bytes()
    }

    fn arrays(&self) -> impl Iterator<Item = usize> {
        let mut arrays: Vec<usize> = self.parts.iter().flatten().map(|(array, _)| *array).collect();
        arrays.sort_unstable();
        arrays.dedup();
        arrays.into_iter()
    }

    /// The run at an offset of the volume, at most `most` bytes long.
    fn run(&self, offset: u64, most: u64) -> (BytePlace, u64) {
        let Some((location, length)) = self.map.at(offset) else { return (BytePlace::Lost, most) };
        let length = length.min(most);
        match location {
            ByteLocation::Zero => (BytePlace::Zero, length),
            ByteLocation::Lost => (BytePlace::Lost, length),
            ByteLocation::On { part, offset_bytes } => {
                let Some(Some((array, bytes))) = self.parts.get(part) else {
                    return (BytePlace::Lost, length);
                };
                // A physical volume may be shorter than its group's metadata says.
                let room = (bytes.end - bytes.start).saturating_sub(offset_bytes);
                match room {
                    0 => (BytePlace::Lost, length),
                    _ => (BytePlace::Array(*array, bytes.start + offset_bytes), length.min(room)),
                }
            }
        }
    }

    /// The runs of a range of the volume: start in the range, place on an array, and length.
    fn runs(&self, offset: u64, length: u64) -> impl Iterator<Item = (u64, BytePlace, u64)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let left = length.checked_sub(done).filter(|left| *left > 0)?;
            let (at, run) = self.run(offset + done, left);
            let begins = done;
            done += run;
            Some((begins, at, run))
        })
    }
}

pub(super) struct VolumeExport {
    name: String,
    words: String,
    places: Arc<VolumePlaces>,
    arrays: Vec<Arc<dyn Export>>,
    block_sizes: BlockSizes,
}

impl VolumeExport {
    pub(super) fn new(
        (name, words): (String, String),
        places: Arc<VolumePlaces>,
        arrays: Vec<Arc<dyn Export>>,
    ) -> Self {
        let sizes = places.arrays().filter_map(|array| Some(arrays.get(array)?.block_sizes()));
        let largest = sizes.max_by_key(|sizes| sizes.minimum_bytes());
        let block_sizes = largest.unwrap_or(BlockSizes::BYTE_GRANULAR);
        Self { name, words, places, arrays, block_sizes }
    }

    fn own(&self) -> impl Iterator<Item = &Arc<dyn Export>> {
        self.places.arrays().filter_map(|array| self.arrays.get(array))
    }

    /// Submits a request for each run. `ask` makes the request from the offset on the array, the
    /// run's start in the client's request, and the run's length.
    fn each(
        &self,
        (offset, length): (u64, u64),
        split: &Arc<SplitRequest>,
        mut ask: impl FnMut(u64, u64, u64) -> Result<ClientRequest, RequestError>,
    ) {
        for (begins, at, run) in self.places.runs(offset, length) {
            let asked = match at {
                BytePlace::Array(array, there) => {
                    ask(there, begins, run).map(|operation| (array, operation))
                }
                BytePlace::Zero | BytePlace::Lost => {
                    Err(RequestError::Io("a part of the volume is not here"))
                }
            };
            match asked {
                Ok((array, operation)) => {
                    self.arrays[array].submit(operation, split.piece(begins));
                }
                Err(error) => split.fails(error),
            }
        }
        split.ended();
    }

    fn read(&self, offset: u64, mut payload: Payload, completion: Completion) {
        let length = payload.len() as u64;
        if let (BytePlace::Array(array, there), run) = self.places.run(offset, length)
            && run == length
        {
            return self.arrays[array]
                .submit(ClientRequest::Read { offset: there, payload }, completion);
        }
        for (begins, at, run) in self.places.runs(offset, length) {
            if at == BytePlace::Zero {
                let range = usize::try_from(begins).expect("in the payload")
                    ..usize::try_from(begins + run).expect("in the payload");
                payload[range].fill(0);
            }
        }
        let split = SplitRequest::new(completion, Some(payload));
        for (begins, at, run) in self.places.runs(offset, length) {
            match at {
                BytePlace::Zero => {}
                BytePlace::Lost => {
                    split.fails(RequestError::Io("a part of the volume is not here"))
                }
                BytePlace::Array(array, there) => {
                    let bytes = usize::try_from(run).expect("in the payload");
                    match Payload::try_for_overwriting(bytes) {
                        Ok(payload) => {
                            let operation = ClientRequest::Read { offset: there, payload };
                            self.arrays[array].submit(operation, split.piece(begins));
                        }
                        Err(_) => split.fails(RequestError::NoMemory),
                    }
                }
            }
        }
        split.ended();
    }

    fn write(&self, offset: u64, payload: Payload, durable: bool, completion: Completion) {
        let length = payload.len() as u64;
        if let (BytePlace::Array(array, there), run) = self.places.run(offset, length)
            && run == length
        {
            let operation = ClientRequest::Write { offset: there, payload, durable };
            return self.arrays[array].submit(operation, completion);
        }
        let split = SplitRequest::new(completion, None);
        self.each((offset, length), &split, |there, begins, run| {
            let begins = usize::try_from(begins).expect("in the payload");
            let bytes = usize::try_from(run).expect("in the payload");
            let mut piece =
                Payload::try_for_overwriting(bytes).map_err(|_| RequestError::NoMemory)?;
            piece.copy_from_slice(&payload[begins..begins + bytes]);
            Ok(ClientRequest::Write { offset: there, payload: piece, durable })
        });
    }
}

/// A client's request that was split: the part that completes last answers the client.
struct SplitRequest(Mutex<SplitState>);

struct SplitState {
    left: usize,
    status: Result<(), RequestError>,
    payload: Option<Payload>,
    completion: Option<Completion>,
}

impl SplitRequest {
    fn new(completion: Completion, payload: Option<Payload>) -> Arc<Self> {
        let completion = Some(completion);
        Arc::new(Self(Mutex::new(SplitState { left: 1, status: Ok(()), payload, completion })))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, SplitState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fails(&self, error: RequestError) {
        let status = &mut self.state().status;
        *status = status.and(Err(error));
    }

    /// The completion of one part of the request, whose bytes begin at `begins`.
    fn piece(self: &Arc<Self>, begins: u64) -> Completion {
        self.state().left += 1;
        let split = Arc::clone(self);
        Completion::from_fn(move |outcome| {
            let begins = usize::try_from(begins).expect("in the request");
            let mut state = split.state();
            match (&outcome.result, &outcome.payload, &mut state.payload) {
                (Err(error), ..) => state.status = state.status.and(Err(*error)),
                (Ok(()), Some(piece), Some(whole)) => {
                    whole[begins..begins + piece.len()].copy_from_slice(piece);
                }
                _ => {}
            }
            drop(state);
            split.ended();
        })
    }

    fn ended(&self) {
        let mut state = self.state();
        state.left -= 1;
        if state.left == 0 {
            let (status, payload) = (state.status, state.payload.take());
            let completion = state.completion.take().expect("it ends once");
            drop(state);
            completion.complete(Outcome { result: status, payload });
        }
    }
}

impl Export for VolumeExport {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        let on: Vec<String> = self.own().map(|array| array.description()).collect();
        format!("{} on {}", self.words, on.join(", and on "))
    }

    fn is_withdrawn(&self) -> bool {
        self.own().any(|array| array.is_withdrawn())
    }

    fn size_bytes(&self) -> u64 {
        let size_bytes = self.places.size_bytes();
        size_bytes - size_bytes % u64::from(self.block_sizes.minimum_bytes())
    }

    fn read_only(&self) -> bool {
        self.places.is_read_only || self.own().any(|array| array.read_only())
    }

    fn block_sizes(&self) -> BlockSizes {
        self.block_sizes
    }

    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        self.places.runs(offset, length).all(|(_, at, run)| match at {
            BytePlace::Array(array, there) => self.arrays[array].zeroes_fast(there, run),
            BytePlace::Zero | BytePlace::Lost => false,
        })
    }

    fn submit(&self, operation: ClientRequest, completion: Completion) {
        match operation {
            ClientRequest::Read { offset, payload } => self.read(offset, payload, completion),
            ClientRequest::Write { offset, payload, durable } => {
                self.write(offset, payload, durable, completion);
            }
            ClientRequest::Flush => {
                let split = SplitRequest::new(completion, None);
                for array in self.own() {
                    array.submit(ClientRequest::Flush, split.piece(0));
                }
                split.ended();
            }
            ClientRequest::Trim { offset, length, durable } => {
                let split = SplitRequest::new(completion, None);
                self.each((offset, length), &split, |offset, _, length| {
                    Ok(ClientRequest::Trim { offset, length, durable })
                });
            }
            ClientRequest::WriteZeroes { offset, length, durable, may_punch, fast } => {
                // Either all parts change data or none, so the refusal comes before any change.
                if fast && !self.zeroes_fast(offset, length) {
                    let status = Err(RequestError::NotFast);
                    return completion.complete(Outcome { result: status, payload: None });
                }
                let split = SplitRequest::new(completion, None);
                self.each((offset, length), &split, |offset, _, length| {
                    Ok(ClientRequest::WriteZeroes {
                        offset,
                        length,
                        durable,
                        may_punch,
                        fast: false,
                    })
                });
            }
        }
    }

    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        let mut found: Vec<Extent> = Vec::new();
        let length = length.min(self.size_bytes().saturating_sub(offset)).max(1);
        for (_, at, run) in self.places.runs(offset, length) {
            let room = extents_max - found.len();
            let of_run = match at {
                BytePlace::Array(array, there) => self.arrays[array].block_status(there, run, room),
                BytePlace::Zero => {
                    vec![Extent { length_bytes: run, flags: wire::STATE_HOLE | wire::STATE_ZERO }]
                }
                BytePlace::Lost => vec![Extent { length_bytes: run, flags: 0 }],
            };
            // The last extent may be longer than the run.
            let mut left = run;
            for extent in of_run {
                let length_bytes = extent.length_bytes.min(left);
                left -= length_bytes;
                match found.last_mut() {
                    Some(last) if last.flags == extent.flags => last.length_bytes += length_bytes,
                    _ if length_bytes > 0 => found.push(Extent { length_bytes, ..extent }),
                    _ => {}
                }
            }
            // If an array left out extents, or the limit is reached, the client must ask again for
            // the later extents.
            if left > 0 || found.len() >= extents_max {
                break;
            }
        }
        found
    }
}
