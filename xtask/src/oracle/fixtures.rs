//! `cargo xtask oracle --make-fixtures`: from stories and layouts to `oracle/fixtures/*.txt`.
//!
//! `golden` and `states` define the fixtures, `suite` boots, `describe` writes the text.

use std::path::Path;

use anyhow::{Context, Result};

use super::describe::{self, Source};
use super::golden::{self, Golden};
use super::guest::Ending;
use super::host;
use super::report::{CaseReport, Report};
use super::states;
use super::suite::Bench;

/// The facts that the kernel reports about an array, in the order of the text.
const FACTS: [&str; 9] = [
    "metadata_version",
    "raid_disks",
    "layout",
    "chunk_size",
    "component_size",
    "sectors",
    "degraded",
    "reshape_position",
    "array_state",
];

/// Makes every fixture with this word in its name, and writes it to `target`; returns how many.
pub(crate) fn make(bench: &Bench, word: &str, target: &Path) -> Result<usize> {
    let mut all = golden::layouts();
    all.extend(states::states());
    make_of(bench, all, word, target)
}

/// Makes the fixtures of `all` with this word in their names, and writes them to `target`; returns
/// how many.
pub(crate) fn make_of(
    bench: &Bench,
    mut all: Vec<Golden>,
    word: &str,
    target: &Path,
) -> Result<usize> {
    all.retain(|golden| golden.case.name.contains(word));
    std::fs::create_dir_all(target)?;
    let mut failures = Vec::new();
    for (ending, name) in [(Ending::PowerOff, "golden"), (Ending::Cut, "golden-cut")] {
        let chosen: Vec<&Golden> = all.iter().filter(|golden| golden.ending == ending).collect();
        if chosen.is_empty() {
            continue;
        }
        let folder = bench.folder.join(name);
        let cases = chosen.iter().map(|golden| golden.case.clone()).collect();
        let report = bench.run(cases, ending, &folder)?;
        for golden in chosen {
            if let Err(error) = one(golden, &report, &folder, target) {
                failures.push(format!("{}: {error:#}", golden.case.name));
            }
        }
    }
    anyhow::ensure!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    Ok(all.len())
}

fn one(golden: &Golden, report: &Report, folder: &Path, target: &Path) -> Result<()> {
    let name = &golden.case.name;
    let case = report.cases.get(name).context("the guest does not speak of it")?;
    case.succeeded()?;
    let mut facts = vec![
        ("name".to_owned(), name.clone()),
        ("about".to_owned(), golden.about.clone()),
        ("kernel".to_owned(), report.kernel.clone()),
        ("level".to_owned(), golden.level.to_owned()),
    ];
    for word in FACTS {
        if let Some(value) = case.values.get(word) {
            facts.push((word.to_owned(), value.clone()));
        }
    }
    for (word, value) in case.values.iter().filter(|(word, _)| word.starts_with("volume.")) {
        facts.push((word.clone(), value.clone()));
    }
    for (word, fact) in [("sha256", "content_sha256"), ("content_sha256", "content_sha256")] {
        if let Some(value) = case.values.get(word) {
            facts.push((fact.to_owned(), value.clone()));
        }
    }
    if let Some(line) = case.text("mdstat").ok().and_then(|text| text.lines().next()) {
        facts.push(("mdstat".to_owned(), line.to_owned()));
    }
    let sources = (0..golden.case.members.len())
        .map(|index| source(case, &folder.join(name), index))
        .collect::<Result<Vec<_>>>()?;
    describe::save(target, name, &describe::text(&facts, &sources)?)
}

/// A member's image and data area. The data offset is that of the array's creation; a member added
/// later gets the first member's offset.
fn source(case: &CaseReport, folder: &Path, index: usize) -> Result<Source> {
    let facts = case.values.get(&format!("member.{index}"));
    let facts = facts.or_else(|| case.values.get("member.0")).context("no member has facts")?;
    let numbers: Vec<&str> = facts.split(' ').collect();
    let [_slot, offset, kib, ..] = numbers.as_slice() else {
        anyhow::bail!("a member's facts are slot, offset, size, not {facts}");
    };
    let path = folder.join(format!("{index}.img"));
    if !case_is_container(case) {
        host::examine(&path).with_context(|| format!("examining member {index}"))?;
    }
    let (start, sectors) = (offset.parse::<usize>()?, kib.parse::<usize>()? * 2);
    // A reshape may move data to a lower offset.
    let lowest =
        case.values.get("data_lowest").map(|lowest| lowest.parse::<usize>()).transpose()?;
    let data_start = lowest.unwrap_or(start);
    Ok(Source { path, data_start, data_sectors: sectors + start - data_start })
}

/// Whether the members have foreign metadata, which mdadm does not examine in files.
fn case_is_container(case: &CaseReport) -> bool {
    case.values.keys().any(|word| word.starts_with("volume."))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::super::fixture::{Content, Fixture};
    use super::super::host;

    fn committed() -> Vec<(String, Fixture)> {
        ["fixtures", "containers", "broken"].into_iter().flat_map(those_of).collect()
    }

    fn those_of(folder: &str) -> Vec<(String, Fixture)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracle").join(folder);
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("readable").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let fixture = Fixture::load(&folder, &name).expect("it reads");
            all.push((name, fixture));
        }
        all
    }

    #[test]
    fn committed_fixtures_give_the_images_that_md_wrote() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut paths = Vec::new();
        for (name, fixture) in committed() {
            for (index, member) in fixture.members.iter().enumerate() {
                let path = folder.path().join(format!("{name}.{index}"));
                std::fs::write(&path, fixture.image(index)).expect("written");
                assert_eq!(
                    host::sha256(&path).expect("hashed"),
                    member.sha256,
                    "{name} member {index}"
                );
                std::fs::remove_file(&path).expect("removed");
                paths.push(path);
            }
        }
        assert!(paths.len() > 400, "only {} members", paths.len());
    }

    #[test]
    fn healthy_fixtures_hold_every_logical_sector() {
        for (name, fixture) in those_of("fixtures") {
            if name.starts_with("state-") {
                continue;
            }
            let runs = fixture.members.iter().flat_map(|member| &member.runs);
            let mut held = BTreeSet::new();
            for run in runs {
                match run.content {
                    Content::Data { logical, .. } => held.extend(logical..logical + run.sectors),
                    Content::P(_) | Content::Q(_) | Content::Sum(_) => {}
                    Content::Words(_) => panic!("{name}: a healthy array explains itself"),
                }
            }
            let sectors = fixture.number("sectors");
            assert!(held.into_iter().eq(0..sectors), "{name}");
        }
    }
}
