//! Small scenarios as text in `oracle/broken`, which the daily tests rescue without a guest.

use std::path::Path;

use anyhow::Result;

use super::super::describe::{self, Source};
use super::super::suite::Bench;
use super::broken_arrays::{FIXTURE_DISK, STAMPED_FILES, load, make as make_broken};
use super::stories::Story;

/// Makes the fixtures of the small scenarios.
pub(super) fn make(bench: &Bench, stories: &[Story]) -> Result<()> {
    let kept = stories.iter().filter(|story| story.is_fixture);
    let kept: Vec<Story> =
        kept.map(|story| Story { disks: (story.disks.0, FIXTURE_DISK), ..*story }).collect();
    make_broken(bench, &kept, STAMPED_FILES)?;
    let target = Path::new(super::super::ROOT).join("oracle/broken");
    std::fs::create_dir_all(&target)?;
    for story in &kept {
        let broken = load(&bench.folder, story)?;
        let mut facts = vec![
            ("name".to_owned(), story.name.to_owned()),
            ("about".to_owned(), story.about.to_owned()),
            ("kernel".to_owned(), broken.kernel.clone()),
        ];
        for (number, line) in broken.files.lines().enumerate() {
            facts.push((format!("file.{number}"), line.to_owned()));
        }
        let sources = broken.images.iter().map(|path| {
            let sectors = usize::try_from(FIXTURE_DISK)?;
            // Superblocks may be gone, so the whole disk counts as data.
            Ok(Source { path: path.clone(), data_start: 0, data_sectors: sectors })
        });
        let sources = sources.collect::<Result<Vec<_>>>()?;
        describe::save(&target, story.name, &describe::text(&facts, &sources)?)?;
        println!("{}", story.name);
    }
    Ok(())
}
