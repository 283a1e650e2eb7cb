//! Arrays in turn: md makes, braid writes, md reads and checks and writes, braid reads.

use anyhow::{Context, Result, ensure};

use super::super::content;
use super::super::spec::Making;
use super::super::suite::{Bench, GivenArray, MadeArray, Maker, Verdict};
use super::array::{Array, copy};
use super::tally::Tally;
use super::{Turn, must_refuse, present};
use crate::each::each;

/// Braid writes all arrays of md's that `braid create` cannot make, and one in this many of the
/// other arrays.
const ONE_IN: usize = 3;

/// braid writes scattered places of arrays that md made.
pub(super) fn write(bench: &Bench, made: &[MadeArray], tally: &Tally) -> Vec<Turn> {
    let chosen: Vec<&MadeArray> = made
        .iter()
        .enumerate()
        .filter(|(index, array)| {
            let spec = &array.spec;
            let only_here = spec.metadata == "0.90" || spec.making != Making::Mdadm;
            must_refuse(spec).is_none() && (only_here || index % ONE_IN == 0)
        })
        .map(|(_, array)| array)
        .collect();
    let written = each(bench.boots, &chosen, |_, array| {
        tally.take(&array.spec.name, write_one(bench, array))
    });
    written.into_iter().flatten().collect()
}

fn write_one(bench: &Bench, array: &MadeArray) -> Result<Turn> {
    let images = copy(&array.images, &bench.folder.join("turns").join(&array.spec.name))?;
    let streams = vec![array.seed, array.seed + 1, array.seed + 2];
    let running = Array::open(&images, false)?;
    running.scribble(array.seed + 2).context("writing what md made")?;
    running.stop()?;
    let content = content::bytes(&streams, array.sectors)?;
    Ok(Turn {
        given: GivenArray {
            spec: array.spec.clone(),
            images: images.into_iter().map(Some).collect(),
            sha256: content::sha256(&bench.folder, &content)?,
            rewrite: Some(array.seed + 3),
            stale: Vec::new(),
            crashed: false,
            maker: Maker::Md,
        },
        streams,
        sectors: array.sectors,
    })
}

/// braid reads the bytes that md wrote last.
pub(super) fn read_back(
    bench: &Bench,
    turns: &[Turn],
    verdicts: &[Result<Verdict>],
    tally: &Tally,
) {
    let pairs: Vec<(&Turn, &Verdict)> = turns
        .iter()
        .zip(verdicts)
        .filter_map(|(turn, verdict)| Some((turn, verdict.as_ref().ok()?)))
        .filter(|(turn, _)| turn.given.rewrite.is_some())
        .collect();
    each(bench.boots, &pairs, |_, (turn, verdict)| {
        let read = read_one(bench, turn, verdict).context("after md wrote");
        let done = tally.take(&turn.given.name(), read).is_some();
        tally.count("round trips", usize::from(done));
    });
}

fn read_one(bench: &Bench, turn: &Turn, verdict: &Verdict) -> Result<()> {
    let mut streams = turn.streams.clone();
    streams.extend(turn.given.rewrite);
    let content = content::bytes(&streams, turn.sectors)?;
    let meant = content::sha256(&bench.folder, &content)?;
    ensure!(verdict.rewritten.as_ref() == Some(&meant), "md does not find its own writes");
    let losses = turn.given.spec.tolerated_losses();
    for lost in losses.first().into_iter().chain(losses.last().filter(|lost| !lost.is_empty())) {
        let images = present(&verdict.images, lost);
        Array::open(&images, true)?
            .holds(&content)
            .with_context(|| format!("without slots {lost:?}"))?;
    }
    Ok(())
}
