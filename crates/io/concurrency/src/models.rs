//! Runs models under every schedule, or under many. Each run prints the model's name and the number
//! of schedules.
//!
//! Place in the flow: called by the crates' models, which are unit tests under `--cfg loom` or
//! `--cfg shuttle` only. `cargo xtask models` runs both and reads the lines printed here. A model
//! that cannot fail proves nothing. So each model has a twin that leaves one line out
//! ([`crate::flaws!`]) and must be caught.

/// Prints the line that `cargo xtask models` shows.
fn tell(model: &str, schedules: usize, how: &str) {
    println!("model {model}: {schedules} schedules, {how}");
}

#[cfg(loom)]
mod with_loom {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Runs `model` under every schedule with at most `preemptions` preemptions.
    pub fn explore(name: &str, preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            crate::with_loom::begin();
            model();
        });
        let how = format!("all with up to {preemptions} preemptions");
        super::tell(name, count.load(Ordering::Relaxed), &how);
    }
}
#[cfg(loom)]
pub use with_loom::*;

#[cfg(shuttle)]
mod with_shuttle {
    use std::sync::Arc;

    use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, MaxSteps, Runner};

    use crate::with_shuttle::begin_time;

    const SEED: u64 = 1;
    /// Forced thread switches in one schedule.
    const CHANGES_MAX: usize = 3;
    /// Upper bound for the steps of a schedule. A model takes more only if a thread waits for ever.
    const STEPS_MAX: usize = 400_000;
    const STACK_BYTES: usize = 256 << 10;

    /// The environment variable whose value multiplies the number of schedules.
    const FACTOR_VARIABLE: &str = "BRAID_MODELS_FACTOR";

    fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) -> usize {
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
        config.silence_warnings = true;
        Runner::new(scheduler, config).run(model)
    }

    /// Runs a small model, in which time stands still, under all schedules or the first `most`.
    pub fn explore(name: &str, most: usize, model: impl Fn() + Send + Sync + 'static) {
        let count = run(DfsScheduler::new(Some(most), false), move || {
            begin_time(false);
            model();
        });
        let how = if count < most { "all there are" } else { "the first of them" };
        super::tell(name, count, how);
    }

    /// Runs a large model under `schedules` random schedules, then under the same number with few
    /// forced switches, in which one thread can lag far behind. With `passes` time passes while all
    /// threads sleep.
    pub fn sample(
        name: &str,
        schedules: usize,
        passes: bool,
        model: impl Fn() + Send + Sync + 'static,
    ) {
        let factor = std::env::var(FACTOR_VARIABLE).ok().and_then(|text| text.parse().ok());
        let schedules = schedules * factor.unwrap_or(1);
        let model = Arc::new(move || {
            begin_time(passes);
            model();
        });
        let (random, forced) = (Arc::clone(&model), model);
        let count = run(RandomScheduler::new_from_seed(SEED, schedules), move || random())
            + run(PctScheduler::new_from_seed(SEED, CHANGES_MAX, schedules), move || forced());
        super::tell(name, count, "half random, half with few switches");
    }
}
#[cfg(shuttle)]
pub use with_shuttle::*;
