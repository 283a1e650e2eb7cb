//! What to read before a batch can go on: the cost of rcw and rmw, and which erasures to solve.
//!
//! Pure arithmetic on what is known of each column. With D data columns, T of them touched, U of
//! the T not covered whole:
//!
//! - *rcw* (reconstruct-write) reads every data column that is not covered: D - (T - U) reads.
//! - *rmw* (read-modify-write) reads the old content of the touched columns and the parity: T + 1
//!   or T + 2 reads.
//! - without a parity column to keep (both lost), only the U partly covered columns are read.
//!
//! Columns in memory cost nothing; a column that cannot be read but is needed costs every other
//! column, if P and Q suffice to solve for it. The cheaper way wins, rcw on a tie: it needs no old
//! parity, so it also heals parity that is wrong. rmw is never chosen where parity is not known to
//! agree with the data. That every plan suffices is checked by brute force
//! [check: every_plan_loads_enough].

use braid_hooks::{Bug, planted};
use smallvec::SmallVec;

/// As many as most arrays have data columns; more cost an allocation.
const COLUMNS: usize = 16;
type Few<T> = SmallVec<[T; COLUMNS]>;

/// What is known of one column, inside the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnFacts {
    /// Its member can be asked for it.
    pub(super) readable: bool,
    /// Its member takes writes.
    pub(super) writable: bool,
    /// Its old content is in memory.
    pub(super) loaded: bool,
    /// The batch touches it (data columns only).
    pub(super) touched: bool,
    /// The batch touches all of it (data columns only).
    pub(super) covered: bool,
}

impl ColumnFacts {
    fn at_hand(&self) -> bool {
        self.loaded || self.readable
    }
}

/// Everything a plan depends on.
#[derive(Clone, Debug)]
pub(super) struct StripeFacts {
    pub(super) data: Few<ColumnFacts>,
    pub(super) p: ColumnFacts,
    pub(super) q: Option<ColumnFacts>,
    pub(super) is_write: bool,
    /// Parity is known to agree with the data here.
    pub(super) parity_agrees: bool,
    /// The way to make parity that is taken if there are two, whatever it costs.
    pub(super) preferred: Option<Method>,
}

/// How new parity is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Method {
    /// Not at all: a read, or no parity column takes writes.
    NoParity,
    /// From all data columns.
    Rcw,
    /// From the old parity and the difference.
    Rmw,
}

/// Which parity solves for lost data columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    None,
    /// One data column, by P.
    FromP(u16),
    /// One data column, by Q; P is lost too.
    FromQ(u16),
    /// Two data columns, by P and Q.
    FromBoth(u16, u16),
}

/// Which columns must be in memory before the batch can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) method: Method,
    pub(super) recovery: Recovery,
    /// Data columns to read.
    pub(super) data: Few<u16>,
    pub(super) p: bool,
    pub(super) q: bool,
}

impl Plan {
    /// Number of member reads it costs.
    pub(super) fn reads(&self) -> usize {
        self.data.len() + usize::from(self.p) + usize::from(self.q)
    }
}

/// The cheapest way on, or none: more is lost here than parity can make up for.
pub(super) fn plan(facts: &StripeFacts) -> Option<Plan> {
    if !facts.is_write {
        return load(facts, Method::NoParity, |column| column.touched);
    }
    let keeps_parity = facts.p.writable || facts.q.is_some_and(|q| q.writable);
    if !keeps_parity {
        return load(facts, Method::NoParity, |column| column.touched && !column.covered);
    }
    let rcw = load(facts, Method::Rcw, |column| {
        !column.covered && (column.at_hand() || !planted(Bug::RcwForgetsLost))
    });
    let rmw = rmw(facts);
    match (rcw, rmw) {
        (Some(rcw), Some(rmw)) => {
            let cheaper = if rmw.reads() < rcw.reads() { Method::Rmw } else { Method::Rcw };
            let takes_rmw = facts.preferred.unwrap_or(cheaper) == Method::Rmw;
            Some(if takes_rmw { rmw } else { rcw })
        }
        (rcw, rmw) => rcw.or(rmw),
    }
}

/// A plan that brings the wanted data columns into memory, solving for those that are lost.
fn load(
    facts: &StripeFacts,
    method: Method,
    wanted: impl Fn(&ColumnFacts) -> bool,
) -> Option<Plan> {
    let indexes = |matches: &dyn Fn(&ColumnFacts) -> bool| -> Few<u16> {
        let columns = (0u16..).zip(&facts.data);
        columns.filter(|(_, column)| matches(column)).map(|(index, _)| index).collect()
    };
    let lost_wanted = indexes(&|column| wanted(column) && !column.at_hand());
    if lost_wanted.is_empty() {
        let data = indexes(&|column| wanted(column) && !column.loaded);
        return Some(Plan { method, recovery: Recovery::None, data, p: false, q: false });
    }
    if !facts.parity_agrees {
        return None;
    }
    // The equations run over every data column, so every other one is needed, wanted or not.
    let q_at_hand = facts.q.is_some_and(|q| q.at_hand());
    let recovery = match indexes(&|column| !column.at_hand())[..] {
        [one] if facts.p.at_hand() => Recovery::FromP(one),
        [one] if q_at_hand => Recovery::FromQ(one),
        [one, two] if facts.p.at_hand() && q_at_hand => Recovery::FromBoth(one, two),
        _ => return None,
    };
    let data = indexes(&|column| column.readable && !column.loaded);
    let needs_p = matches!(recovery, Recovery::FromP(_) | Recovery::FromBoth(..));
    let needs_q = matches!(recovery, Recovery::FromQ(_) | Recovery::FromBoth(..));
    let p = needs_p && !facts.p.loaded;
    let q = needs_q && facts.q.is_some_and(|q| !q.loaded);
    Some(Plan { method, recovery, data, p, q })
}

/// Read-modify-write, where everything it needs can be read.
fn rmw(facts: &StripeFacts) -> Option<Plan> {
    let kept = |column: &ColumnFacts| column.writable;
    let usable = |column: &ColumnFacts| !kept(column) || column.at_hand();
    let touched = || (0u16..).zip(&facts.data).filter(|(_, column)| column.touched);
    let possible = facts.parity_agrees
        && touched().all(|(_, column)| column.at_hand())
        && usable(&facts.p)
        && facts.q.as_ref().is_none_or(usable);
    possible.then(|| Plan {
        method: Method::Rmw,
        recovery: Recovery::None,
        data: touched().filter(|(_, column)| !column.loaded).map(|(index, _)| index).collect(),
        p: kept(&facts.p) && !facts.p.loaded,
        q: facts.q.is_some_and(|q| kept(&q) && !q.loaded),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of column states for three data columns, P and Q.
    fn all_facts() -> impl Iterator<Item = StripeFacts> {
        // A column is: 0 lost, 1 writable only, 2 readable, 3 loaded.
        let column = |kind: u32, touch: u32| ColumnFacts {
            readable: kind == 2,
            writable: kind >= 1,
            loaded: kind == 3,
            touched: touch >= 1,
            covered: touch == 2,
        };
        (0..4u32.pow(5) * 27 * 2 * 2 * 2 * 3).map(move |mut n| {
            let mut next = |base| {
                let digit = n % base;
                n /= base;
                digit
            };
            let data = (0..3).map(|_| column(next(4), next(3))).collect();
            let (p, q) = (column(next(4), 0), column(next(4), 0));
            let q = (next(2) == 1).then_some(q);
            let is_write = next(2) == 1;
            let parity_agrees = next(2) == 1;
            let preferred = [None, Some(Method::Rcw), Some(Method::Rmw)][next(3) as usize];
            StripeFacts { data, p, q, is_write, parity_agrees, preferred }
        })
    }

    /// Which data columns are known once the plan's reads are in and its equations solved.
    fn known(facts: &StripeFacts, plan: &Plan) -> Option<Vec<bool>> {
        let mut known: Vec<bool> = facts.data.iter().map(|column| column.loaded).collect();
        for index in &plan.data {
            let index = usize::from(*index);
            assert!(facts.data[index].readable && !known[index], "reads only what it can and must");
            known[index] = true;
        }
        let p = facts.p.loaded || plan.p;
        let q = facts.q.is_some_and(|q| q.loaded) || plan.q;
        let mut solve = |unknowns: &[u16], equations: bool| {
            let found: Vec<u16> = (0..3).filter(|i| !known[usize::from(*i)]).collect();
            (found == unknowns && equations).then(|| known.fill(true))
        };
        match plan.recovery {
            Recovery::None => {}
            Recovery::FromP(one) => solve(&[one], p)?,
            Recovery::FromQ(one) => solve(&[one], q)?,
            Recovery::FromBoth(one, two) => solve(&[one, two], p && q)?,
        }
        Some(known)
    }

    #[test]
    fn every_plan_loads_enough() {
        let mut counts = [0u32; 3];
        for facts in all_facts() {
            let Some(plan) = plan(&facts) else { continue };
            let known = known(&facts, &plan).expect("the equations of a plan can be solved");
            assert!(facts.parity_agrees || plan.recovery == Recovery::None);
            for (column, known) in facts.data.iter().zip(known) {
                let enough = match plan.method {
                    Method::NoParity if !facts.is_write => !column.touched || known,
                    Method::NoParity => !column.touched || column.covered || known,
                    Method::Rcw => column.covered || known,
                    Method::Rmw => !column.touched || known,
                };
                assert!(enough, "{facts:?} {plan:?}");
            }
            if plan.method == Method::Rmw {
                assert!(facts.parity_agrees);
                assert!(!facts.p.writable || facts.p.loaded || plan.p);
                assert!(facts.q.is_none_or(|q| !q.writable || q.loaded || plan.q));
            }
            counts[plan.method as usize] += 1;
        }
        assert!(counts.iter().all(|count| *count > 1000), "all methods occur: {counts:?}");
    }

    #[test]
    fn refusals_are_losses_beyond_the_level() {
        for facts in all_facts().filter(|facts| facts.parity_agrees && plan(facts).is_none()) {
            let lost = facts.data.iter().filter(|column| !column.at_hand()).count();
            let parity =
                usize::from(facts.p.at_hand()) + usize::from(facts.q.is_some_and(|q| q.at_hand()));
            assert!(lost > parity, "{facts:?}");
        }
    }

    #[test]
    fn the_cheaper_way_wins() {
        let clean = ColumnFacts { readable: true, writable: true, ..ColumnFacts::default() };
        let written = ColumnFacts { touched: true, covered: true, ..clean };
        let stripe = |written_count: usize| StripeFacts {
            data: (0..8).map(|i| if i < written_count { written } else { clean }).collect(),
            p: clean,
            q: None,
            is_write: true,
            parity_agrees: true,
            preferred: None,
        };
        let chosen = |written_count| plan(&stripe(written_count)).map(|p| (p.method, p.reads()));
        assert_eq!(chosen(1), Some((Method::Rmw, 2)));
        assert_eq!(chosen(3), Some((Method::Rmw, 4)));
        assert_eq!(chosen(4), Some((Method::Rcw, 4)));
        assert_eq!(chosen(8), Some((Method::Rcw, 0)));
    }
}
