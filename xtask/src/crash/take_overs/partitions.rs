//! Packets of one direction between two places are dropped, for every pair that talks.
//!
//! An owner, its heir, four member servers and the store are in network namespaces. A direction is
//! away for three times the silence that an heir waits for. If the heir takes over, all sectors are
//! read from it while the older owner is still cut off, and written anew. The older owner must end
//! by itself, and answers no request that it gets after the take-over. Clients reach both hosts.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::cluster::{MEMBERS, STORE, place_of};
use super::{Client, LOAD, REFUSED, SILENCE, Soak};

/// The time for which a direction's packets are dropped.
const AWAY: Duration = SILENCE.saturating_mul(3);
/// An heir that takes over only after the direction's packets pass again needs no longer than this.
const SETTLING: Duration = SILENCE;

/// The ends of a direction: where packets come from, and where they are dropped.
#[derive(Clone, Copy, Debug)]
enum Place {
    Owner,
    Heir,
    Member(usize),
    Store,
}

/// Directions between hosts and members or the store: no other places talk.
fn directions() -> Vec<(Place, Place)> {
    let others = (0..MEMBERS).map(Place::Member).chain([Place::Store]);
    let pairs = others.flat_map(|other| [(Place::Owner, other), (Place::Heir, other)]);
    pairs.flat_map(|(one, other)| [(one, other), (other, one)]).collect()
}

/// Drops each direction once.
pub(super) fn run(soak: &mut Soak) -> Result<()> {
    let (mut took_over, mut stayed) = (Vec::new(), 0);
    let directions = directions();
    for direction in &directions {
        let took = round(soak, *direction).with_context(|| format!("{direction:?}"))?;
        let (from, to) = direction;
        match took {
            Some(took) => println!("{from:?} to {to:?}: taken over in {:.2} s", took.as_secs_f64()),
            None => println!("{from:?} to {to:?}: the owner stays"),
        }
        took.map_or_else(|| stayed += 1, |took| took_over.push(took));
    }
    println!(
        "{} directions: {} take-overs, {stayed} owners stayed",
        directions.len(),
        took_over.len()
    );
    Ok(())
}

/// Drops one direction; returns how long no host served, if the heir took over.
fn round(soak: &mut Soak, (from, to): (Place, Place)) -> Result<Option<Duration>> {
    let (owner, heir) = (soak.host, 1 - soak.host);
    let number = |place| match place {
        Place::Owner => place_of(owner),
        Place::Heir => place_of(heir),
        Place::Member(at) => at,
        Place::Store => STORE,
    };
    let (from, to) = (number(from), number(to));
    let server = soak.cluster.spawn(heir, true)?;
    let mut late = Client::connect(&soak.owner.socket)?;
    let mut client = Client::connect(&soak.owner.socket)?;
    // After this line, an owner that ends is no mistake.
    let (cutter, ending) = (client.cutter()?, AtomicBool::new(true));
    let sectors = 0..soak.model.sectors();
    let network = soak.cluster.network.as_ref().context("a network")?;
    let (began, took) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            client.load(&mut soak.model, &mut soak.random, sectors, &ending)?;
            drop(client);
            anyhow::Ok(())
        });
        std::thread::sleep(LOAD);
        network.cut(from, to)?;
        let began = Instant::now();
        let took = server.hear("serving", AWAY).is_ok().then(|| began.elapsed());
        cutter.cut();
        load.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
        anyhow::Ok((began, took))
    })?;
    if took.is_none() {
        network.heal(to)?;
    }
    let is_taken_over = took.is_some() || server.hear("serving", SETTLING).is_ok();
    let mut old = None;
    if is_taken_over {
        soak.host = heir;
        old = Some(std::mem::replace(&mut soak.owner, server));
    } else {
        server.kill()?;
    }
    let socket = soak.owner.socket.clone();
    soak.verify(&socket)?;
    if let Some(mut old) = old {
        let sectors = soak.random.usize(1..soak.model.sectors());
        Client::connect(&socket)?.fill(&mut soak.model, sectors)?;
        // The requests fail if the older owner has ended already.
        let _ = late.ask_late();
        std::thread::sleep(AWAY.saturating_sub(began.elapsed()));
        let network = soak.cluster.network.as_ref().context("a network")?;
        network.heal(to)?;
        let status = old.ended()?;
        ensure!(status.code() == Some(REFUSED), "an older owner ended with {status}");
        late.is_never_answered()?;
        soak.verify(&socket)?;
    }
    soak.cluster.wait_until_whole(soak.host)?;
    Ok(took)
}
