//! The work: each writer has its own files, and each file is written whole and made durable.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use crate::frame::Usage;

/// Number of data blocks in a stripe, which has one parity block in addition.
pub(super) const DATA: usize = 3;
/// Bytes of the chunk, which is also the stripe unit.
pub(super) const BLOCK_BYTES: usize = 4 << 10;
pub(super) const ROW_BYTES: usize = DATA * BLOCK_BYTES;
/// The smallest number of rows that holds 4 MiB, so that no row belongs to two files.
pub(super) const ROWS_PER_FILE: u64 = (4u64 << 20).div_ceil(ROW_BYTES as u64);
pub(super) const STRIPES: usize = 256;
pub(super) const FILE_BYTES: u64 = ROWS_PER_FILE * ROW_BYTES as u64;

/// A target to which many threads write files at once.
pub(super) trait Files: Sync {
    /// The form in which the target takes a file's bytes.
    type Payload: Send;

    fn payload(&self, bytes: Vec<u8>) -> Self::Payload;

    /// Writes the file with this number and makes it durable.
    fn write_file(&self, file: u64, payload: &mut Self::Payload);
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WriteResult {
    pub(super) seconds: f64,
    pub(super) usage: Usage,
    pub(super) files: f64,
    pub(super) mebibytes: f64,
}

pub(super) fn write(target: &impl Files, writers: u64, files: u64) -> WriteResult {
    let start = Barrier::new(usize::try_from(writers).expect("few writers") + 1);
    let mut begun = None;
    let size = usize::try_from(FILE_BYTES).expect("4 MiB");
    thread::scope(|scope| {
        for writer in 0..writers {
            let start = &start;
            scope.spawn(move || {
                let byte = u8::try_from(writer % 251).expect("below 251");
                let mut payload = target.payload(vec![byte; size]);
                start.wait();
                for _ in 0..files {
                    target.write_file(writer, &mut payload);
                }
            });
        }
        begun = Some((Usage::now(), Instant::now()));
        start.wait();
    });
    let (usage, instant) = begun.expect("set before the start");
    let seconds = instant.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "few files")]
    let files = (writers * files) as f64;
    #[allow(clippy::cast_precision_loss, reason = "4 MiB")]
    let mebibytes = files * FILE_BYTES as f64 / f64::from(1 << 20);
    WriteResult { seconds, usage: Usage::now() - usage, files, mebibytes }
}
