//! The array as it was when its recording began.
//!
//! ```text
//!   braid-recording 2 0.1.0
//!   level 5 layout 2 chunk 128 sectors 16256 16256 16256
//!   events 7 resync 18446744073709551615 readonly 0 fastzero 1 delay 200 shards 4 tear 0
//!   cache unit 128 room 256 tuned 42:back:1:32768:500       of each shard; stripes, mode, bypass, dirty, age
//!   slot 0 0 18446744073709551615       member, device number, recovered sectors, bad start+sectors ...
//!   slot -
//!   spare 2 3                           member, device number
//!   turns
//! ```

use std::fmt;

use braid_engine::array::{ArraySetup, MemberId, MemberSetup};
use braid_engine::{BadBlocks, BadRange, CacheConfig, ShardConfig, UNIT_SECTORS_MAX};
use braid_geometry::{Geometry, Level, MemberSector, Shape, Slot};

use crate::Problem;
use crate::turn::{parse_tuning, tuning_words};

/// Shards, stripes and slots together that an array may begin with.
const STATES_MAX: u64 = 1 << 24;
/// And that it may be tuned to: more than any array that can be served.
const ROOM_MAX: u64 = 1 << 32;

/// An occupied slot: what [`MemberSetup`] says, with the bad ranges as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    pub(crate) member: MemberId,
    pub(crate) device_number: u16,
    pub(crate) recovered_sectors: u64,
    pub(crate) bad: Vec<(u64, u64)>,
}

/// What the machines were made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    shape: Shape,
    slots: Vec<Option<Occupant>>,
    spares: Vec<(MemberId, u16)>,
    events: u64,
    resync_offset: u64,
    read_only: bool,
    zero_is_fast: bool,
    clean_delay_ms: u64,
    superblocks_tear: bool,
    shards: u16,
    cache: CacheConfig,
}

impl Header {
    /// The header for an array and the configuration of its shards; none if its geometry cannot be
    /// told by its numbers.
    #[must_use]
    pub fn new(setup: &ArraySetup, config: &ShardConfig) -> Option<Self> {
        let geometry = &setup.geometry;
        let shape = Shape {
            level: geometry.level(),
            layout: geometry.layout(),
            chunk_sectors: geometry.chunk_sectors(),
            slots: geometry.slots(),
            member_sectors: (0..geometry.slots())
                .map(|slot| geometry.used_sectors(Slot(slot)))
                .collect(),
        };
        if Geometry::new(&shape).as_ref() != Ok(geometry) {
            return None;
        }
        let occupant = |member: &MemberSetup| Occupant {
            member: member.id,
            device_number: member.device_number,
            recovered_sectors: member.recovered_sectors,
            bad: member.bad_blocks.ranges().iter().map(|r| (r.start.0, r.sectors)).collect(),
        };
        Some(Self {
            shape,
            slots: setup.slots.iter().map(|slot| slot.as_ref().map(occupant)).collect(),
            spares: setup.spares.clone(),
            events: setup.events,
            resync_offset: setup.resync_offset,
            read_only: setup.read_only,
            zero_is_fast: setup.zero_is_fast,
            clean_delay_ms: setup.clean_delay_ms,
            superblocks_tear: setup.superblocks_tear,
            shards: setup.shards,
            cache: config.cache,
        })
    }

    /// What each shard is made of.
    #[must_use]
    pub fn shard(&self, geometry: &Geometry) -> ShardConfig {
        ShardConfig { geometry: geometry.clone(), cache: self.cache }
    }

    /// What the array is made of.
    ///
    /// # Errors
    /// Why there can be no such array.
    pub fn setup(&self) -> Result<ArraySetup, String> {
        let geometry = Geometry::new(&self.shape).map_err(|error| error.to_string())?;
        let states = |stripes: u32| {
            let stripes = u64::from(self.shards) * u64::from(stripes);
            stripes.saturating_mul(u64::from(geometry.slots()))
        };
        let CacheConfig { stripes_max, tuning, .. } = self.cache;
        let at_first = states(tuning.stripes.clamp(1, stripes_max.max(1)));
        if states(stripes_max) == 0 || states(stripes_max) > ROOM_MAX || at_first > STATES_MAX {
            return Err("too many shards and stripes, or none".to_owned());
        }
        let unit = self.cache.unit_sectors_max;
        if !unit.is_power_of_two() || unit > UNIT_SECTORS_MAX {
            return Err("not a stripe unit".to_owned());
        }
        if self.slots.len() != usize::from(geometry.slots()) {
            return Err("not one line for each slot".to_owned());
        }
        let is_lost = |slot: Slot| {
            let occupant = &self.slots[usize::from(slot.0)];
            occupant.as_ref().is_none_or(|occupant| occupant.recovered_sectors != u64::MAX)
        };
        if !geometry.survives(&is_lost) {
            return Err("too few members".to_owned());
        }
        let range = |(start, sectors): &(u64, u64)| BadRange {
            start: MemberSector(*start),
            sectors: *sectors,
        };
        let member = |occupant: &Occupant| MemberSetup {
            id: occupant.member,
            device_number: occupant.device_number,
            recovered_sectors: occupant.recovered_sectors,
            bad_blocks: BadBlocks::new(occupant.bad.iter().map(range).collect()),
        };
        Ok(ArraySetup {
            geometry,
            slots: self.slots.iter().map(|slot| slot.as_ref().map(member)).collect(),
            spares: self.spares.clone(),
            events: self.events,
            resync_offset: self.resync_offset,
            read_only: self.read_only,
            shards: self.shards,
            zero_is_fast: self.zero_is_fast,
            clean_delay_ms: self.clean_delay_ms,
            superblocks_tear: self.superblocks_tear,
        })
    }

    pub(crate) fn parse<'a>(
        lines: &mut impl Iterator<Item = (usize, &'a str)>,
    ) -> Result<Self, Problem> {
        let mut last = 0;
        let mut next = || {
            let (line, text) = lines.next().unwrap_or((last + 1, ""));
            last = line;
            (line, text)
        };
        let wrong = |line, what: &str| Problem { line, what: what.to_owned() };
        let (line, first) = next();
        if first != first_line() {
            let expected = format!("it does not begin with \"{}\"", first_line());
            return Err(wrong(line, &expected));
        }
        let (line, text) = next();
        let shape = parse_shape(text).ok_or_else(|| wrong(line, "not the shape of an array"))?;
        let (line, text) = next();
        let (of_cache, cache) = next();
        let cache = parse_cache(cache).ok_or_else(|| wrong(of_cache, "not its cache"))?;
        let header = parse_state(text, shape, cache);
        let mut header = header.ok_or_else(|| wrong(line, "not its state"))?;
        loop {
            let (line, text) = next();
            if text == "turns" {
                break;
            }
            header.parse_member(text).ok_or_else(|| wrong(line, "not a slot and not a spare"))?;
        }
        header.setup().map_err(|what| wrong(last, &what))?;
        Ok(header)
    }

    fn parse_member(&mut self, text: &str) -> Option<()> {
        let mut words = text.split(' ');
        match (words.next()?, words.next()?) {
            ("slot", "-") => self.slots.push(None),
            ("slot", member) => {
                let member = MemberId(member.parse().ok()?);
                let device_number = words.next()?.parse().ok()?;
                let recovered_sectors = words.next()?.parse().ok()?;
                let range = |word: &str| {
                    let (start, sectors) = word.split_once('+')?;
                    Some((start.parse().ok()?, sectors.parse().ok()?))
                };
                let bad = words.map(range).collect::<Option<_>>()?;
                self.slots.push(Some(Occupant { member, device_number, recovered_sectors, bad }));
            }
            ("spare", member) => {
                let spare = (MemberId(member.parse().ok()?), words.next()?.parse().ok()?);
                self.spares.push(spare);
            }
            _ => return None,
        }
        Some(())
    }
}

fn first_line() -> String {
    format!("braid-recording 2 {}", env!("CARGO_PKG_VERSION"))
}

/// The numbers behind the words, which come in this order.
fn numbers<'a, const N: usize>(
    words: &mut impl Iterator<Item = &'a str>,
    names: [&str; N],
) -> Option<[i128; N]> {
    let mut numbers = [0; N];
    for (number, name) in numbers.iter_mut().zip(names) {
        if words.next()? != name {
            return None;
        }
        *number = words.next()?.parse().ok()?;
    }
    Some(numbers)
}

fn parse_shape(text: &str) -> Option<Shape> {
    let mut words = text.split(' ');
    let [level, layout, chunk] = numbers(&mut words, ["level", "layout", "chunk"])?;
    if words.next()? != "sectors" {
        return None;
    }
    let member_sectors: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Shape {
        level: Level::from_md(i32::try_from(level).ok()?)?,
        layout: u32::try_from(layout).ok()?,
        chunk_sectors: u32::try_from(chunk).ok()?,
        slots: u16::try_from(member_sectors.len()).ok()?,
        member_sectors,
    })
}

fn parse_cache(text: &str) -> Option<CacheConfig> {
    let mut words = text.strip_prefix("cache ")?.split(' ');
    let [unit, room] = numbers(&mut words, ["unit", "room"])?;
    let ("tuned", fields) = (words.next()?, words.next()?.split(':').collect::<Vec<_>>()) else {
        return None;
    };
    Some(CacheConfig {
        unit_sectors_max: u32::try_from(unit).ok()?,
        stripes_max: u32::try_from(room).ok()?,
        tuning: parse_tuning(&fields)?,
    })
}

fn parse_state(text: &str, shape: Shape, cache: CacheConfig) -> Option<Header> {
    let names = ["events", "resync", "readonly", "fastzero", "delay", "shards", "tear"];
    let mut words = text.split(' ');
    let [events, resync, read_only, zero_is_fast, delay, shards, tear] =
        numbers(&mut words, names)?;
    Some(Header {
        shape,
        slots: Vec::new(),
        spares: Vec::new(),
        events: u64::try_from(events).ok().filter(|events| *events < u64::MAX / 2)?,
        resync_offset: u64::try_from(resync).ok()?,
        read_only: read_only == 1,
        zero_is_fast: zero_is_fast == 1,
        clean_delay_ms: u64::try_from(delay).ok()?,
        superblocks_tear: tear == 1,
        shards: u16::try_from(shards).ok()?,
        cache,
    })
}

impl fmt::Display for Header {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { level, layout, chunk_sectors, member_sectors, .. } = &self.shape;
        writeln!(formatter, "{}", first_line())?;
        let level = level.md_number();
        write!(formatter, "level {level} layout {layout} chunk {chunk_sectors} sectors")?;
        for sectors in member_sectors {
            write!(formatter, " {sectors}")?;
        }
        writeln!(
            formatter,
            "\nevents {} resync {} readonly {} fastzero {} delay {} shards {} tear {}",
            self.events,
            self.resync_offset,
            u8::from(self.read_only),
            u8::from(self.zero_is_fast),
            self.clean_delay_ms,
            self.shards,
            u8::from(self.superblocks_tear)
        )?;
        let CacheConfig { unit_sectors_max, stripes_max, tuning } = &self.cache;
        let tuned = tuning_words(tuning);
        writeln!(formatter, "cache unit {unit_sectors_max} room {stripes_max} tuned {tuned}")?;
        for slot in &self.slots {
            let Some(Occupant { member, device_number, recovered_sectors, bad }) = slot else {
                writeln!(formatter, "slot -")?;
                continue;
            };
            write!(formatter, "slot {} {device_number} {recovered_sectors}", member.0)?;
            for (start, sectors) in bad {
                write!(formatter, " {start}+{sectors}")?;
            }
            writeln!(formatter)?;
        }
        for (member, device_number) in &self.spares {
            writeln!(formatter, "spare {} {device_number}", member.0)?;
        }
        writeln!(formatter, "turns")
    }
}
