//! The array without a door: this process's threads call the shipped runtime on files like the
//! members.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_geometry::Level;
use braid_member::Access;
use braid_runtime::{ClientRequest, Options, Payload, Volume};

use super::super::nbd::fio::{Job, Length};
use crate::array::{self, Plan, Policy};
use crate::random::Random;

pub(super) struct Inside {
    volume: Volume,
}

impl Inside {
    /// Opens an array of these files, with the policy that `braid create` chooses.
    pub(super) fn open(files: &[String]) -> Result<Self, String> {
        let open = |path: &String| {
            let member = braid_member::open(Path::new(path), Access::ReadWrite);
            member.map_err(|error| error.to_string())
        };
        let devices = files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let plan = Plan {
            level: Level::Raid5,
            slots: u16::try_from(files.len()).expect("a few members"),
            chunk_sectors: 128,
            member_bytes: devices.iter().map(|device| device.size_bytes()).min().unwrap_or(0),
            policy: Policy::Log(64 << 20),
        };
        Ok(Self { volume: array::open_on(plan, &Options::default(), devices, |_| ()) })
    }

    /// Runs the job with a thread for each request in flight; returns requests a second.
    pub(super) fn run(&self, job: &Job, length: Length) -> f64 {
        let block = u64::from(job.block_kib) << 10;
        let places = self.volume.size_bytes() / block;
        let (limit, most) = match length {
            Length::Seconds(seconds) | Length::Warm(seconds) => {
                (Duration::from_secs(seconds.into()), u64::MAX)
            }
            Length::Mebibytes(size) => (Duration::MAX, (u64::from(size) << 20) / block),
        };
        let next = AtomicU64::new(0);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..job.depth {
                let next = &next;
                scope.spawn(move || {
                    let mut random = Random::new(thread.into());
                    while start.elapsed() < limit {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= most {
                            break;
                        }
                        let place = if job.rw.starts_with("rand") {
                            random.below(places)
                        } else {
                            number % places
                        };
                        self.request(job, place * block, block);
                    }
                });
            }
        });
        let took = start.elapsed();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let done = next.into_inner().min(most) as f64;
        if job.rw.ends_with("write") {
            self.volume.call(ClientRequest::Flush).result.expect("files can be flushed");
        }
        done / took.as_secs_f64()
    }

    fn request(&self, job: &Job, offset: u64, block: u64) {
        let bytes = usize::try_from(block).expect("a short block");
        let operation = if job.rw.ends_with("read") {
            ClientRequest::Read { offset, payload: Payload::for_overwriting(bytes) }
        } else {
            ClientRequest::Write { offset, payload: Payload::zeroed(bytes), durable: false }
        };
        self.volume.call(operation).result.expect("files can be read and written");
    }
}
