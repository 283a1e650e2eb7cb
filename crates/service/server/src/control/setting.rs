//! Settings of a running array: shown, checked and set. A request sets all its settings or none.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use braid_control::model::{SettingValue, Settings};
use braid_frontend_nbd::{Settings as ClientSettings, Tuner};
use braid_geometry::Level;
use braid_ring::Room;
use braid_runtime::{
    Cache, CacheMode, GovernorSettings, Patience, ReadErrorLimit, Scheduling, SitOut, Volume,
};

use super::consistency::{self, ArrayName, Consistency};
use crate::jobs::{Board, JobsWhen, Schedule};
use crate::membership::Membership;
use crate::shape_changes::ShapeChanges;
use crate::spare_group::SpareGroup;
use crate::{
    cache, clients as limits, job_pace, owner, patience, read_errors, scheduling, sit_out,
};
use braid_console::error::CliError;
use braid_console::output::utc::now_seconds;

/// Parts of a running array that settings read and change.
#[derive(Clone)]
pub(crate) struct ArrayParts {
    pub(crate) volume: Arc<Volume>,
    pub(crate) tuner: Tuner,
    pub(crate) board: Arc<Board>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) spare_group: Arc<SpareGroup>,
    pub(crate) shape: Arc<ShapeChanges>,
}

pub(super) fn all(running: &ArrayParts) -> Settings {
    CheckedSettings::now(running).settings()
}

#[derive(Debug)]
pub(super) struct BadSetting {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) why: String,
}

#[derive(Debug)]
pub(super) enum SetError {
    Bad(BadSetting),
    ByArray(CliError),
    /// A setting that must survive a restart cannot be saved.
    NotKept(PathBuf, io::Error),
}

/// Keys of the settings that are sizes in bytes.
const SIZES: [&str; 6] =
    ["cache-size", "dirty-limit", "payload-memory", "job-floor", "job-ceiling", consistency::CHUNK];

/// A setting's value, spelt as the option of `braid serve` spells it.
fn words(key: &str, value: &SettingValue) -> String {
    match value {
        SettingValue::Number(bytes) if SIZES.contains(&key) => format!("{bytes}B"),
        value => value.to_string(),
    }
}

/// Settings that have passed the checks.
pub(super) struct CheckedSettings {
    cache: Cache,
    scheduling: Scheduling,
    sit_out: SitOut,
    patience: Patience,
    read_errors: ReadErrorLimit,
    job_pace: GovernorSettings,
    clients: ClientSettings,
    jobs: JobsWhen,
    check_every: Option<u64>,
    spare_group: Option<String>,
    consistency: Consistency,
}

impl CheckedSettings {
    fn now(ArrayParts { volume, tuner, board, spare_group, .. }: &ArrayParts) -> Self {
        Self {
            cache: volume.cache(),
            scheduling: volume.scheduling(),
            sit_out: volume.sit_out(),
            patience: volume.patience(),
            read_errors: volume.read_error_limit(),
            job_pace: volume.job_pace(),
            clients: tuner.settings(),
            jobs: JobsWhen::of(board.is_paused()),
            check_every: board.check_every(),
            spare_group: spare_group.name(),
            consistency: Consistency::now(volume),
        }
    }

    /// The current settings with these changes, if all are valid.
    pub(super) fn check(
        running: &ArrayParts,
        named: &ArrayName<'_>,
        wanted: &Settings,
    ) -> Result<Self, SetError> {
        let mut set = Self::now(running);
        let bad = |key: &String, value: String, why: String| {
            SetError::Bad(BadSetting { key: key.clone(), value, why })
        };
        for (key, value) in wanted {
            let value = words(key, value);
            let result = set.set(&running.volume, key, &value);
            result.map_err(|why| bad(key, value, why))?;
        }
        set.consistency.judge(&running.volume, named).map_err(SetError::ByArray)?;
        if running.volume.has_consenter() {
            set.check_for_heir().map_err(SetError::ByArray)?;
        }
        let is_other = |key: &&String| !consistency::KEYS.contains(&key.as_str());
        if set.consistency.changes()
            && let Some(key) = wanted.keys().find(is_other)
        {
            let why = format!("{} are set without other keys", consistency::KEYS.join(" and "));
            return Err(bad(key, words(key, &wanted[key]), why));
        }
        let slots = scheduling::check_slots(&set.scheduling, &running.volume);
        slots.map_err(|(key, why)| {
            let value = wanted.get(&key).map(ToString::to_string).unwrap_or_default();
            SetError::Bad(BadSetting { key, value, why })
        })?;
        Ok(set)
    }

    /// Refuses settings that would prevent other hosts from taking over the array.
    fn check_for_heir(&self) -> Result<(), CliError> {
        if self.cache.mode == CacheMode::WriteBack {
            return Err(owner::no_write_back());
        }
        match self.consistency.is_on_members() {
            true => Ok(()),
            false => Err(owner::no_bitmap()),
        }
    }

    fn set(&mut self, volume: &Volume, key: &str, text: &str) -> Result<(), String> {
        if scheduling::is_key(key) {
            return scheduling::set(&mut self.scheduling, key, text);
        }
        if cache::LIVE_KEYS.contains(&key) {
            cache::set(&mut self.cache, key, text)?;
            return cache::check(&self.cache, key, &cache_bounds(volume));
        }
        if sit_out::KEYS.contains(&key) {
            return sit_out::set(&mut self.sit_out, key, text);
        }
        if patience::KEYS.contains(&key) {
            return patience::set(&mut self.patience, key, text);
        }
        if read_errors::KEYS.contains(&key) {
            return read_errors::set(&mut self.read_errors, key, text);
        }
        if job_pace::KEYS.contains(&key) {
            return job_pace::set(&mut self.job_pace, key, text);
        }
        if limits::KEYS.contains(&key) {
            return limits::set_live(&mut self.clients, key, text);
        }
        if consistency::KEYS.contains(&key) {
            return self.consistency.set(key, text);
        }
        if key == JobsWhen::KEY {
            self.jobs = JobsWhen::parse(text)?;
            return Ok(());
        }
        if key == Schedule::KEY {
            let every = Schedule::parse(text)?;
            if every.is_some() && every != self.check_every {
                may_be_checked(volume)?;
            }
            self.check_every = every;
            return Ok(());
        }
        if key == SpareGroup::KEY {
            self.spare_group = SpareGroup::parse(text)?;
            return Ok(());
        }
        let keys = [
            &cache::LIVE_KEYS[..],
            &scheduling::KEYS[..],
            &sit_out::KEYS[..],
            &patience::KEYS[..],
            &read_errors::KEYS[..],
            &job_pace::KEYS[..],
            &limits::KEYS[..],
            &consistency::KEYS[..],
            &[JobsWhen::KEY, Schedule::KEY, SpareGroup::KEY],
        ];
        let keys = keys.concat().join(", ");
        Err(format!("it cannot be set on a running array; {keys} can"))
    }

    /// Applies the settings that differ.
    ///
    /// # Errors
    /// A setting that must survive a restart cannot be saved; then no setting is changed.
    pub(super) fn apply(self, running: &ArrayParts, named: &ArrayName<'_>) -> Result<(), SetError> {
        let ArrayParts { volume, tuner, board, spare_group, .. } = running;
        if self.consistency.changes() {
            let journal = volume.journal().map(|journal| journal.member);
            let file = volume.bitmap_file();
            let changed = self.consistency.apply(volume, named).map_err(SetError::ByArray);
            if let Some(journal) = journal.filter(|_| volume.journal().is_none()) {
                // Closes the journal's device. While the device still owes answers, it stays open,
                // like any member that is out.
                let _one = running.membership.alone();
                running.membership.remove(volume, journal, None).ok();
            }
            if changed.is_ok() {
                running.shape.forget_log();
            }
            let new = volume.bitmap_file();
            if new != file {
                running.membership.note_bitmap_file(file.as_deref(), new.as_deref());
            }
            return changed;
        }
        if self.check_every != board.check_every() {
            let kept = board.set_check_every(self.check_every, now_seconds());
            kept.map_err(|(path, error)| SetError::NotKept(path, error))?;
        }
        if self.cache != volume.cache() {
            if self.cache.mode == CacheMode::WriteBack {
                let reserved = volume.reserve_cache_file();
                reserved.map_err(|error| {
                    SetError::NotKept(braid_discovery::running::folder(), error)
                })?;
            }
            volume.tune(self.cache);
        }
        if self.sit_out != volume.sit_out() {
            volume.set_sit_out(self.sit_out);
        }
        if self.patience != volume.patience() {
            volume.set_patience(self.patience);
        }
        if self.read_errors != volume.read_error_limit() {
            volume.set_read_error_limit(self.read_errors);
        }
        if self.job_pace != volume.job_pace() {
            volume.set_job_pace(self.job_pace);
        }
        if self.scheduling != volume.scheduling() {
            volume.schedule(self.scheduling);
        }
        limits::apply(tuner, &self.clients);
        board.set_paused(volume, self.jobs.is_paused());
        if self.spare_group != spare_group.name() {
            spare_group.set(self.spare_group);
        }
        Ok(())
    }

    pub(super) fn settings(&self) -> Settings {
        let mut settings = scheduling::to_settings(&self.scheduling);
        settings.extend(cache::to_settings(&self.cache));
        settings.extend(sit_out::to_settings(&self.sit_out));
        settings.extend(patience::to_settings(&self.patience));
        settings.extend(read_errors::to_settings(&self.read_errors));
        settings.extend(job_pace::to_settings(&self.job_pace));
        settings.extend(limits::to_settings(&self.clients));
        settings.extend(self.consistency.to_settings());
        settings.insert(JobsWhen::KEY.to_owned(), self.jobs.word().into());
        settings.insert(Schedule::KEY.to_owned(), Schedule::words(self.check_every).into());
        let group = SpareGroup::words(self.spare_group.as_deref());
        settings.insert(SpareGroup::KEY.to_owned(), group.into());
        settings
    }
}

/// Whether the array is writable and has redundancy for a check to compare.
fn may_be_checked(volume: &Volume) -> Result<(), String> {
    if matches!(volume.geometry().level(), Level::Linear | Level::Raid0) {
        return Err("its level has neither copies nor parity to compare".to_owned());
    }
    if volume.is_read_only() {
        return Err("it is served read-only, and checks rewrite unreadable sectors".to_owned());
    }
    Ok(())
}

/// Bounds of a running array's cache; its current memory counts as free.
fn cache_bounds(volume: &Volume) -> cache::Bounds {
    let (left, limit) = Room::now().least();
    let left = left.saturating_add(volume.cache().memory_bytes);
    cache::Bounds { range: volume.cache_range(), left: (left, limit) }
}
