//! Turns member images that md wrote into the text of a fixture.
//!
//! The array's content is stamps (`oracle/pattern.rs`), so each sector of a member names its
//! logical sector. A sector without a stamp may be P: the XOR of the other members' sectors at the
//! same place. Or it is Q: a sum for which this module searches the powers of g. Otherwise the text
//! keeps the word that fills the sector. No layout is known here: the text follows md, which chose
//! the parity members and the powers of g.
//!
//! Invariant: the text read back gives the images byte for byte; `text` checks this each time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::fixture::{Content, Fixture, Member, Run, times_power};
use super::host;
use super::pattern::{SECTOR, unstamp};

/// A member's image and the place of its data area, in sectors.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    /// Sectors before the data area.
    pub(crate) data_start: usize,
    /// Sectors of the data area; sectors outside of it are kept as bytes.
    pub(crate) data_sectors: usize,
}

/// The text of a fixture with these facts and members.
pub(crate) fn text(facts: &[(String, String)], sources: &[Source]) -> Result<String> {
    let mut images = Vec::new();
    for source in sources {
        let image = std::fs::read(&source.path);
        images.push(image.with_context(|| format!("reading {}", source.path.display()))?);
    }
    let columns: Vec<Vec<Option<u64>>> =
        images.iter().zip(sources).map(|(image, source)| words(image, source)).collect();
    let sums = sums(&images, sources, &columns);
    let mut fixture = Fixture { facts: facts.iter().cloned().collect(), members: Vec::new() };
    for (index, source) in sources.iter().enumerate() {
        fixture.members.push(Member {
            device_sectors: (images[index].len() / SECTOR) as u64,
            data_start: source.data_start as u64,
            raw: raw(&images[index], source, (&columns[index], &sums[index])),
            runs: runs(&columns, &sums[index], index),
            sha256: host::sha256(&source.path)?,
        });
    }
    let text = write(facts, &fixture)?;
    let again = Fixture::parse(&text).map_err(anyhow::Error::msg)?;
    for (index, image) in images.iter().enumerate() {
        ensure!(again.image(index) == *image, "the text loses something of member {index}");
    }
    Ok(text)
}

/// The word of each sector of the data area; `None` if the sector is no repeated word.
fn words(image: &[u8], source: &Source) -> Vec<Option<u64>> {
    let sectors = image.chunks(SECTOR).skip(source.data_start);
    let sectors = sectors.take(source.data_sectors);
    sectors
        .map(|sector| {
            let first = sector.first_chunk::<8>()?;
            sector.chunks(8).all(|word| word == first).then(|| u64::from_le_bytes(*first))
        })
        .collect()
}

/// Stretches of non-zero bytes outside the data area, or inside it without a repeated word.
fn raw(
    image: &[u8],
    source: &Source,
    (column, sums): (&[Option<u64>], &Sums),
) -> Vec<(u64, Vec<u8>)> {
    let mut stretches: Vec<(u64, Vec<u8>)> = Vec::new();
    for (sector, bytes) in image.chunks(SECTOR).enumerate() {
        let inside = sector.checked_sub(source.data_start);
        let word = inside.and_then(|sector| column.get(sector));
        let is_sum = inside.is_some_and(|sector| sums.contains_key(&(sector as u64)));
        if is_sum || matches!(word, Some(Some(_))) || bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let place = (sector * SECTOR) as u64;
        match stretches.last_mut() {
            Some((start, held))
                if *start + held.len() as u64 == place && one_byte(held) == one_byte(bytes) =>
            {
                held.extend_from_slice(bytes);
            }
            _ => stretches.push((place, bytes.to_vec())),
        }
    }
    stretches
}

/// Sectors of a member that are the sum of other members, and the numbers of these members.
type Sums = BTreeMap<u64, Vec<usize>>;

/// For each member, its sectors that are no repeated word and equal the sum of the other members.
/// At each place only the last such member has a sum; the members before it define the sum.
fn sums(images: &[Vec<u8>], sources: &[Source], columns: &[Vec<Option<u64>>]) -> Vec<Sums> {
    let mut all = vec![Sums::new(); images.len()];
    let sectors = columns.iter().map(Vec::len).min().unwrap_or(0);
    for at in 0..sectors {
        let bytes = |member: usize| {
            let start = (sources[member].data_start + at) * SECTOR;
            &images[member][start..start + SECTOR]
        };
        let word = |member: usize| columns[member].get(at).copied().flatten();
        let used = (0..images.len()).filter(|member| word(*member) != Some(0));
        let used: Vec<usize> = used.collect();
        let last = used.iter().rev().find(|member| word(**member).is_none());
        let Some(last) = last.filter(|_| used.len() > 1) else { continue };
        let is_sum =
            |byte: usize| used.iter().fold(0, |sum, member| sum ^ bytes(*member)[byte]) == 0;
        if (0..SECTOR).all(is_sum) {
            let others = used.iter().filter(|member| *member != last).copied().collect();
            all[*last].insert(at as u64, others);
        }
    }
    all
}

/// The value of all bytes, if all have the same value.
fn one_byte(bytes: &[u8]) -> Option<u8> {
    let first = bytes.first()?;
    bytes.iter().all(|byte| byte == first).then_some(*first)
}

fn runs(columns: &[Vec<Option<u64>>], sums: &Sums, index: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (place, word) in columns[index].iter().enumerate() {
        let at = place as u64;
        let content = match (word.filter(|word| *word != 0), sums.get(&at)) {
            (_, Some(members)) => Content::Sum(members.clone()),
            (Some(word), None) => explain(columns, index, place, word, runs.last()),
            (None, None) => continue,
        };
        match runs.last_mut() {
            Some(run) if run.at + run.sectors == at && extends(run, &content) => {
                run.sectors += 1;
                if let (Content::Words(words), Content::Words(more)) = (&mut run.content, content) {
                    words.extend(more);
                }
            }
            _ => runs.push(Run { at, sectors: 1, content }),
        }
    }
    runs
}

fn extends(run: &Run, next: &Content) -> bool {
    match (&run.content, next) {
        (
            Content::Data { logical, generation },
            Content::Data { logical: more, generation: same },
        ) => logical + run.sectors == *more && generation == same,
        (Content::Words(_), Content::Words(_)) => true,
        (run, next) => run == next,
    }
}

fn explain(
    columns: &[Vec<Option<u64>>],
    index: usize,
    at: usize,
    word: u64,
    before: Option<&Run>,
) -> Content {
    if let Some((generation, logical)) = unstamp(word) {
        return Content::Data { logical, generation };
    }
    let data = stamped(columns, index, at);
    if data.len() > 1 && data.iter().fold(0, |sum, (_, word)| sum ^ word) == word {
        return Content::P(data.iter().map(|(member, _)| *member).collect());
    }
    // The powers of g of the sector before are tried first, since most sectors have the same.
    if let Some(Run { content: Content::Q(terms), .. }) = before {
        let find = |wanted| data.iter().find(|(member, _)| *member == wanted);
        let sum = terms.iter().try_fold(0, |sum, (member, exponent)| {
            Some(sum ^ times_power(find(*member)?.1, *exponent))
        });
        if sum == Some(word) {
            return Content::Q(terms.clone());
        }
    }
    let mut exponents = Vec::new();
    if data.len() > 1 && powers(&data, columns.len(), word, &mut exponents) {
        return Content::Q(data.iter().map(|(member, _)| *member).zip(exponents).collect());
    }
    Content::Words(vec![word])
}

/// The stamped words at this place on the other members, each logical sector once. If two members
/// have the same logical sector (a copy made in recovery), the later generation counts.
fn stamped(columns: &[Vec<Option<u64>>], index: usize, at: usize) -> Vec<(usize, u64)> {
    let mut data: Vec<(usize, u64, u8, u64)> = Vec::new();
    for (member, column) in columns.iter().enumerate().filter(|(member, _)| *member != index) {
        let Some(word) = column.get(at).copied().flatten() else { continue };
        let Some((generation, logical)) = unstamp(word) else { continue };
        match data.iter_mut().find(|(.., held)| *held == logical) {
            Some(held) if held.2 >= generation => {}
            Some(held) => *held = (member, word, generation, logical),
            None => data.push((member, word, generation, logical)),
        }
    }
    data.into_iter().map(|(member, word, ..)| (member, word)).collect()
}

/// Finds for each word a different power of g such that the sum of the products is `wanted`.
fn powers(data: &[(usize, u64)], limit: usize, wanted: u64, exponents: &mut Vec<u32>) -> bool {
    let Some((_, word)) = data.get(exponents.len()) else { return wanted == 0 };
    for exponent in (0u32..).take(limit) {
        if exponents.contains(&exponent) {
            continue;
        }
        exponents.push(exponent);
        if powers(data, limit, wanted ^ times_power(*word, exponent), exponents) {
            return true;
        }
        exponents.pop();
    }
    false
}

fn write(facts: &[(String, String)], fixture: &Fixture) -> Result<String> {
    let mut text = String::new();
    for (word, fact) in facts {
        writeln!(text, "{word} {fact}")?;
    }
    for member in &fixture.members {
        writeln!(text, "member {} {} {}", member.device_sectors, member.data_start, member.sha256)?;
        for (place, bytes) in &member.raw {
            match one_byte(bytes) {
                Some(byte) => writeln!(text, "bytes {place} {}x{byte:02x}", bytes.len())?,
                None => {
                    for (start, piece) in pieces(bytes) {
                        let hex: String = piece.iter().map(|byte| format!("{byte:02x}")).collect();
                        writeln!(text, "bytes {} {hex}", place + start)?;
                    }
                }
            }
        }
        let mut at = 0;
        for line in member.runs.chunks(8) {
            text.push_str("data");
            for run in line {
                let place = if run.at == at && at != 0 && run.at != line[0].at {
                    String::new()
                } else {
                    run.at.to_string()
                };
                write!(text, " {place}+{}={}", run.sectors, content(&run.content))?;
                at = run.at + run.sectors;
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// A row of zeroes at least this long gets a line of its own.
const ZEROES_MIN: usize = 12;

/// Runs of bytes between long rows of zeroes, with their offsets.
fn pieces(bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    for at in (0..bytes.len()).filter(|at| bytes[*at] != 0) {
        match pieces.last_mut() {
            Some((_, end)) if at - *end < ZEROES_MIN => *end = at + 1,
            _ => pieces.push((at, at + 1)),
        }
    }
    pieces.into_iter().map(|(start, end)| (start as u64, &bytes[start..end])).collect()
}

fn content(content: &Content) -> String {
    let join = |words: Vec<String>| words.join(",");
    match content {
        Content::Data { logical, generation: 1 } => logical.to_string(),
        Content::Data { logical, generation } => format!("{logical}@{generation}"),
        Content::P(members) => {
            format!("P:{}", join(members.iter().map(ToString::to_string).collect()))
        }
        Content::Sum(members) => {
            format!("X:{}", join(members.iter().map(ToString::to_string).collect()))
        }
        Content::Q(terms) => {
            let term = |(member, exponent): &(usize, u32)| format!("{member}^{exponent}");
            format!("Q:{}", join(terms.iter().map(term).collect()))
        }
        Content::Words(words) => {
            format!("W:{}", join(words.iter().map(|word| format!("{word:x}")).collect()))
        }
    }
}

pub(crate) fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(format!("{name}.txt"));
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}
