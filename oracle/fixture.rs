//! Reads a golden fixture: an array that the real md made, as text of a few KB.
//!
//! Included by path in the tests of several crates and in the oracle. The oracle writes the text
//! and proves that nothing is lost: every member image made from the text equals md's own, byte for
//! byte. std only, with `pattern` beside it. README.md in this folder has the format.
//!
//! It holds no geometry: the place of each sector was read off the members that md wrote.

use std::collections::BTreeMap;
use std::path::Path;

use super::pattern::{SECTOR, repeat, stamp};

/// The content of a run of sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Stamps of successive logical sectors from `logical` on, written in this generation.
    Data {
        /// First logical sector of the array.
        logical: u64,
        /// 1 for the first filling; rewritten places have more.
        generation: u8,
    },
    /// XOR of the sectors at the same place on these members (numbers of members in the file, not
    /// slots).
    P(Vec<usize>),
    /// Sum over (member, exponent) of g^exponent times the sector at the same place on that member.
    Q(Vec<(usize, u32)>),
    /// The 8-byte word of each sector, if it is no stamp, P or Q.
    Words(Vec<u64>),
    /// XOR of the sectors at the same place on these members, byte by byte: parity over content
    /// without stamps. None of these members has a `Sum` at that place.
    Sum(Vec<usize>),
}

/// Successive sectors of a member's data area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// First sector, counted from the start of the data area.
    pub at: u64,
    /// Length in sectors.
    pub sectors: u64,
    /// The content of these sectors.
    pub content: Content,
}

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Size of the whole device, in sectors.
    pub device_sectors: u64,
    /// Sectors before the data area.
    pub data_start: u64,
    /// Bytes outside the data area (superblock and companions) with their places; all others are
    /// zero.
    pub raw: Vec<(u64, Vec<u8>)>,
    /// The data area; places not named are zero.
    pub runs: Vec<Run>,
    /// SHA-256 of the whole image, in hex.
    pub sha256: String,
}

/// An array and its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fixture {
    /// Facts by word, as the kernel reported them: `level`, `layout`, `chunk_size`, ...
    /// (README.md).
    pub facts: BTreeMap<String, String>,
    /// Members in the order of the file; by default, member i is in slot i.
    pub members: Vec<Member>,
}

impl Fixture {
    /// Reads a fixture by name from the folder `fixtures` beside this file's README.
    ///
    /// # Errors
    /// The file cannot be read or has a line that makes no sense.
    pub fn load(folder: &Path, name: &str) -> Result<Self, String> {
        let path = folder.join(format!("{name}.txt"));
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text)
    }

    /// Every fixture of a folder with its name, in order of names.
    ///
    /// # Errors
    /// As [`Self::load`], or the folder cannot be read.
    pub fn all(folder: &Path) -> Result<Vec<(String, Self)>, String> {
        let error = |error: std::io::Error| format!("{}: {error}", folder.display());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(error)? {
            let path = entry.map_err(error)?.path();
            names.extend(path.file_stem().and_then(|name| Some(name.to_str()?.to_owned())));
        }
        names.sort();
        let load = |name: String| Self::load(folder, &name).map(|fixture| (name, fixture));
        names.into_iter().map(load).collect()
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// Names the first line that makes no sense.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut fixture = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            fixture.line(line).ok_or_else(|| format!("what is this line? {line}"))?;
        }
        Ok(fixture)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "member" => {
                let mut words = rest.split(' ');
                let member = Member {
                    device_sectors: words.next()?.parse().ok()?,
                    data_start: words.next()?.parse().ok()?,
                    sha256: words.next()?.to_owned(),
                    ..Member::default()
                };
                self.members.push(member);
            }
            "bytes" => {
                let (place, bytes) = rest.split_once(' ')?;
                let raw = (place.parse().ok()?, read_bytes(bytes)?);
                self.members.last_mut()?.raw.push(raw);
            }
            "data" => {
                let mut at = 0;
                for word in rest.split(' ') {
                    let run = read_run(word, at)?;
                    at = run.at + run.sectors;
                    self.members.last_mut()?.runs.push(run);
                }
            }
            _ => {
                self.facts.insert(word.to_owned(), rest.to_owned());
            }
        }
        Some(())
    }

    /// A required fact, as a number.
    ///
    /// # Panics
    /// The fact is missing or no number: the fixture is not the one that the test expects.
    #[must_use]
    pub fn number(&self, word: &str) -> u64 {
        let fact = self.facts.get(word).unwrap_or_else(|| panic!("the fixture has no {word}"));
        fact.parse().unwrap_or_else(|_| panic!("{word} is {fact}, no number"))
    }

    /// The whole image of a member, byte for byte as md left it.
    #[must_use]
    pub fn image(&self, member: usize) -> Vec<u8> {
        let mut image = self.without_sums(member);
        let about = &self.members[member];
        let mut others = BTreeMap::new();
        for run in &about.runs {
            let Content::Sum(members) = &run.content else { continue };
            for other in members {
                let start = self.members[*other].data_start;
                let bytes: &Vec<u8> =
                    others.entry(*other).or_insert_with(|| self.without_sums(*other));
                for at in 0..sector_bytes(run.sectors) {
                    image[sector_bytes(about.data_start + run.at) + at] ^=
                        bytes[sector_bytes(start + run.at) + at];
                }
            }
        }
        image
    }

    /// The member's image, with zeroes in place of each `Sum`.
    fn without_sums(&self, member: usize) -> Vec<u8> {
        let about = &self.members[member];
        let mut image = vec![0; sector_bytes(about.device_sectors)];
        for (place, bytes) in &about.raw {
            let place = usize::try_from(*place).expect("a fixture is small");
            image[place..place + bytes.len()].copy_from_slice(bytes);
        }
        for run in &about.runs {
            if matches!(run.content, Content::Sum(_)) {
                continue;
            }
            for sector in run.at..run.at + run.sectors {
                let place = sector_bytes(about.data_start + sector);
                repeat(self.run_word(run, sector), &mut image[place..place + SECTOR]);
            }
        }
        image
    }

    /// The 8-byte word that fills a sector of a member's data area; zero where no run is.
    #[must_use]
    pub fn word(&self, member: usize, sector: u64) -> u64 {
        let runs = &self.members[member].runs;
        let index = runs.partition_point(|run| run.at + run.sectors <= sector);
        match runs.get(index) {
            Some(run) if run.at <= sector => self.run_word(run, sector),
            _ => 0,
        }
    }

    fn run_word(&self, run: &Run, sector: u64) -> u64 {
        let step = sector - run.at;
        match &run.content {
            Content::Data { logical, generation } => stamp(*generation, logical + step),
            Content::P(members) => {
                members.iter().fold(0, |sum, member| sum ^ self.word(*member, sector))
            }
            Content::Q(terms) => terms.iter().fold(0, |sum, (member, exponent)| {
                sum ^ times_power(self.word(*member, sector), *exponent)
            }),
            Content::Words(words) => words[usize::try_from(step).expect("small")],
            Content::Sum(_) => panic!("sector {sector} is no word"),
        }
    }
}

/// Eight bytes, each multiplied by g^exponent in GF(256) with md's polynomial 0x11d, g = 2.
#[must_use]
pub fn times_power(word: u64, exponent: u32) -> u64 {
    (0..exponent).fold(word, |word, _| {
        let carry = (word >> 7) & 0x0101_0101_0101_0101;
        ((word << 1) & 0xfefe_fefe_fefe_fefe) ^ (carry * 0x1d)
    })
}

fn sector_bytes(sectors: u64) -> usize {
    usize::try_from(sectors).expect("a fixture is small") * SECTOR
}

/// Reads bytes from `COUNTxHH` (one byte, repeated) or plain hex.
fn read_bytes(text: &str) -> Option<Vec<u8>> {
    if let Some((count, byte)) = text.split_once('x') {
        return Some(vec![u8::from_str_radix(byte, 16).ok()?; count.parse().ok()?]);
    }
    let pair = |index| u8::from_str_radix(text.get(index..index + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

/// Reads a run from `[AT]+SECTORS=CONTENT`. Without AT the run begins at `follows`, the end of the
/// run before.
fn read_run(text: &str, follows: u64) -> Option<Run> {
    let (place, content) = text.split_once('=')?;
    let (at, sectors) = place.split_once('+')?;
    let at = if at.is_empty() { follows } else { at.parse().ok()? };
    let sectors = sectors.parse().ok()?;
    let content = if let Some(list) = content.strip_prefix("P:") {
        Content::P(list.split(',').map(|member| member.parse().ok()).collect::<Option<_>>()?)
    } else if let Some(list) = content.strip_prefix("X:") {
        Content::Sum(list.split(',').map(|member| member.parse().ok()).collect::<Option<_>>()?)
    } else if let Some(list) = content.strip_prefix("Q:") {
        let term = |text: &str| {
            let (member, exponent) = text.split_once('^')?;
            Some((member.parse().ok()?, exponent.parse().ok()?))
        };
        Content::Q(list.split(',').map(term).collect::<Option<_>>()?)
    } else if let Some(list) = content.strip_prefix("W:") {
        let words: Option<Vec<u64>> =
            list.split(',').map(|word| u64::from_str_radix(word, 16).ok()).collect();
        let words = words?;
        if words.len() as u64 != sectors {
            return None;
        }
        Content::Words(words)
    } else {
        let (logical, generation) = content.split_once('@').unwrap_or((content, "1"));
        Content::Data { logical: logical.parse().ok()?, generation: generation.parse().ok()? }
    };
    Some(Run { at, sectors, content })
}
