//! The control socket: looking at a running array, and tuning it.
//!
//! One line of JSON in, one line of JSON out:
//!
//! ```text
//!   {}                                      the settings, what is dirty, the counters
//!   {"set": {"dirty-limit": "8M", ...}}     sets them, all or none; then as above
//!   {"show": "elevators"}                   the elevators, and the multiplexer's last slices
//!                                           {"error": "..."} if it cannot be done
//! ```
//!
//! The socket lies in a folder that only this user may enter, or where the user said; it is made as those
//! of clients are, so that only this user may connect. How clients are served is [`clients`]' affair.

mod clients;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use braid_frontend_nbd::Tuner;
use braid_ring::Room;
use braid_runtime::Volume;
use serde_json::{Map, Value, json};

use super::{cache, clients as limits, scheduling, sit_out};
use clients::{Answer, Clients};

pub(super) use clients::ControlError;

/// What is looked at and tuned.
pub(super) type Served = (Arc<Volume>, Tuner);

/// The socket and its clients; dropped, they end, and the socket is taken away.
pub(super) struct Control {
    _clients: Clients,
}

impl Control {
    /// Listens at `path`. A socket that no process answers at is replaced.
    pub(super) fn start(path: &Path, served: Served) -> Result<Self, ControlError> {
        let answers = Box::new(Answers { served, setting: Mutex::default() });
        Ok(Self { _clients: Clients::start(path, answers)? })
    }
}

/// What requests are answered from.
struct Answers {
    served: Served,
    /// Held while settings are read, changed and put back: two clients do not undo each other's.
    setting: Mutex<()>,
}

impl Answer for Answers {
    fn answer(&self, line: &str) -> String {
        match answer(line, self) {
            Ok(answer) => answer.to_string(),
            Err(why) => self.refuse(&why),
        }
    }

    fn refuse(&self, why: &str) -> String {
        json!({ "error": why }).to_string()
    }
}

fn answer(line: &str, answers: &Answers) -> Result<Value, String> {
    let (volume, tuner) = &answers.served;
    let request: Map<String, Value> =
        serde_json::from_str(line).map_err(|_| "the request is no object in JSON".to_owned())?;
    for (key, value) in &request {
        match (key.as_str(), value) {
            ("show", Value::String(what)) if what == "elevators" => {
                return Ok(scheduling::state(volume));
            }
            ("show", _) => return Err("only 'elevators' can be shown".to_owned()),
            ("set", Value::Object(values)) => {
                let _alone = answers.setting.lock().unwrap_or_else(PoisonError::into_inner);
                set_all(values, &answers.served)?;
            }
            ("set", _) => return Err("'set' wants an object".to_owned()),
            _ => return Err(format!("there is no request called '{key}'")),
        }
    }
    let counters = volume.counters().named();
    let counters: Map<String, Value> =
        counters.into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect();
    let mut settings = scheduling::to_json(&volume.scheduling());
    if let Value::Object(cache) = cache::to_json(&volume.cache()) {
        settings.extend(cache);
    }
    settings.extend(sit_out::to_json(&volume.sit_out()));
    settings.extend(limits::to_json(&tuner.settings()));
    Ok(json!({
        "settings": settings,
        "dirty_bytes": volume.dirty_bytes(),
        "sitting_out": sit_out::state(volume),
        "clients": limits::state(tuner),
        "counters": counters,
    }))
}

/// What the cache of a running array may be set to: what it has already can be kept.
fn cache_bounds(volume: &Volume) -> cache::Bounds {
    let (left, limit) = Room::now().least();
    let left = left.saturating_add(volume.cache().memory_bytes);
    cache::Bounds { range: volume.cache_range(), left: (left, limit) }
}

/// Sets all of them, or none.
fn set_all(values: &Map<String, Value>, (volume, tuner): &Served) -> Result<(), String> {
    let (mut cache, mut scheduling) = (volume.cache(), volume.scheduling());
    let (cached, scheduled) = (cache, scheduling.clone());
    let mut sits_out = volume.sit_out();
    let mut served = tuner.settings();
    for (key, value) in values {
        let text = value.as_str().ok_or_else(|| format!("{key}: a text is wanted"))?;
        let set = if scheduling::is_key(key) {
            scheduling::set(&mut scheduling, key, text)
        } else if cache::LIVE_KEYS.contains(&key.as_str()) {
            cache::set(&mut cache, key, text)
                .and_then(|()| cache::check(&cache, key, &cache_bounds(volume)))
        } else if sit_out::KEYS.contains(&key.as_str()) {
            sit_out::set(&mut sits_out, key, text)
        } else if limits::KEYS.contains(&key.as_str()) {
            limits::set_live(&mut served, key, text)
        } else {
            let keys = [
                &cache::LIVE_KEYS[..],
                &scheduling::KEYS[..],
                &sit_out::KEYS[..],
                &limits::KEYS[..],
            ];
            let keys = keys.concat().join(", ");
            Err(format!("cannot be set on a running array; {keys} can"))
        };
        set.map_err(|why| format!("{key}: {why}"))?;
    }
    scheduling::check_slots(&scheduling, volume)?;
    if cache != cached {
        volume.tune(cache);
    }
    if sits_out != volume.sit_out() {
        volume.set_sit_out(sits_out);
    }
    if scheduling != scheduled {
        volume.schedule(scheduling);
    }
    limits::apply(tuner, &served);
    Ok(())
}
