//! Stripe caches that differ in the rule by which writers wait (*before*, *seed*, *hand over*),
//! over copies or the engine.
//! ```text
//!   writers ──take a stripe, or wait──▶ handle queue ─▶ daemon: write what is below, free ──▶ wake
//! ```
//! Apart from that rule all these caches are like md at the time. A writer asks for one stripe
//! after the other and continues as soon as it has the stripe. One daemon does all the work on
//! stripes, up to eight at once, and frees these together.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::row_writer::{Blocks, RowWriter};
use super::stripes::{Rule, Stripes};
use super::work::{Files, ROW_BYTES, ROWS_PER_FILE};

/// Number of stripes that the daemon writes at once.
const BATCH: usize = 8;

struct Work {
    stripe: usize,
    row: u64,
    payload: Arc<Vec<u8>>,
    offset: usize,
    unwritten: Arc<UnwrittenStripes>,
}

/// One writer's stripes that members lack so far.
#[derive(Default)]
struct UnwrittenStripes {
    count: Mutex<usize>,
    none: Condvar,
}

pub(super) struct Model<B> {
    shared: Arc<Shared<B>>,
    daemon: Option<thread::JoinHandle<()>>,
}

struct Shared<B> {
    stripes: Stripes,
    writer: B,
    handle: Mutex<Handle>,
    given: Condvar,
}

#[derive(Default)]
struct Handle {
    works: VecDeque<Work>,
    is_over: bool,
}

impl<B: RowWriter + Send + 'static> Model<B> {
    pub(super) fn new(rule: Rule, writer: B) -> Self {
        let (handle, given) = Default::default();
        let shared = Arc::new(Shared { stripes: Stripes::new(rule), writer, handle, given });
        let body = Arc::clone(&shared);
        let daemon = thread::spawn(move || body.run());
        Self { shared, daemon: Some(daemon) }
    }

    /// Number of wake-ups so far of writers that waited for a stripe.
    pub(super) fn wake_ups(&self) -> u64 {
        self.shared.stripes.wake_ups()
    }

    #[cfg(test)]
    pub(super) fn writer(&self) -> &B {
        &self.shared.writer
    }
}

impl<B: RowWriter + Send + 'static> Files for Model<B> {
    type Payload = Arc<Vec<u8>>;

    fn payload(&self, bytes: Vec<u8>) -> Self::Payload {
        Arc::new(bytes)
    }

    fn write_file(&self, file: u64, payload: &mut Self::Payload) {
        let unwritten = Arc::new(UnwrittenStripes::default());
        for row in 0..ROWS_PER_FILE {
            let number = file * ROWS_PER_FILE + row;
            let stripe = self.shared.stripes.take(number);
            unwritten.add();
            let offset = usize::try_from(row).expect("few rows") * ROW_BYTES;
            self.shared.give(Work {
                stripe,
                row: number,
                payload: Arc::clone(payload),
                offset,
                unwritten: Arc::clone(&unwritten),
            });
        }
        unwritten.wait_for_none();
        self.shared.writer.flush();
    }
}

impl<B> Drop for Model<B> {
    fn drop(&mut self) {
        self.shared.handle.lock().expect("no holder panics").is_over = true;
        self.shared.given.notify_all();
        if let Some(daemon) = self.daemon.take() {
            daemon.join().expect("the daemon does not panic");
        }
    }
}

impl UnwrittenStripes {
    fn add(&self) {
        *self.count.lock().expect("no holder panics") += 1;
    }

    fn done(&self) {
        let mut count = self.count.lock().expect("no holder panics");
        *count -= 1;
        if *count == 0 {
            self.none.notify_one();
        }
    }

    fn wait_for_none(&self) {
        let count = self.count.lock().expect("no holder panics");
        drop(self.none.wait_while(count, |count| *count > 0).expect("no holder panics"));
    }
}

impl<B: RowWriter> Shared<B> {
    fn give(&self, work: Work) {
        let mut handle = self.handle.lock().expect("no holder panics");
        handle.works.push_back(work);
        drop(handle);
        self.given.notify_one();
    }

    fn run(&self) {
        let (mut blocks, mut batch) = (Blocks::new(), Vec::new());
        loop {
            let handle = self.handle.lock().expect("no holder panics");
            let idle = |handle: &mut Handle| handle.works.is_empty() && !handle.is_over;
            let mut handle = self.given.wait_while(handle, idle).expect("no holder panics");
            let count = handle.works.len().min(BATCH);
            batch.extend(handle.works.drain(..count));
            if batch.is_empty() {
                return;
            }
            drop(handle);
            for work in &batch {
                let data = &work.payload[work.offset..work.offset + ROW_BYTES];
                self.writer.write(&mut blocks, work.stripe, work.row, data);
            }
            self.stripes.free(batch.iter().map(|work| work.stripe));
            batch.drain(..).for_each(|work| work.unwritten.done());
        }
    }
}
