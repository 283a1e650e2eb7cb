//! The sectors to read before a batch can continue: the cost of rcw and rmw, and erasures to solve.
//!
//! Pure arithmetic on sets of sectors. With D data columns, T of them touched in some sectors:
//!
//! - *rcw* (reconstruct-write) reads the untouched rest of the window in each of D columns.
//! - *rmw* (read-modify-write) reads the old content of the touched sectors, and the parity of the
//!   whole window: T + 1 or T + 2 columns.
//! - without a writable parity column nothing is read.
//!
//! Sectors in memory cost nothing. A needed sector that cannot be read costs the same sector of
//! every other column, if P and Q suffice to solve for it. A sector is solved for only in the
//! columns that lack it. Where no client has written, a member's bytes may differ from what parity
//! gives, and new parity must fit the member's bytes.
//!
//! The cheaper method wins, counted in sectors and requests; a request counts as much as a block
//! ([`crate::sectors`]). On a tie rcw wins: it needs no old parity, so it also heals wrong parity.
//! rmw is never chosen if parity may disagree with the data. It is not chosen either if parity
//! agrees only with sectors that clients have written: such parity may be solved from, but a write
//! must leave parity that fits everything.
//!
//! A journal takes whole blocks and all of their parity. Then rmw reads the whole blocks that are
//! touched, and parity is computed even if no member takes it.
//!
//! Where bad-block logs name parity, and lost data lets no batch compute the parity, a write leaves
//! the parity as it is: no member believes it. So a lost sector does not make its row read-only
//! [check: named_parity_that_cannot_be_made_is_left].
//!
//! Brute force checks that every plan suffices
//! [check: every_plan_loads_enough, what_is_journaled_is_known_whole].

use braid_geometry::{RowMap, Slot};
use braid_sim_hooks::{Bug, planted};
use smallvec::SmallVec;

use crate::sectors::{BLOCK_SECTORS, SectorSet};

/// The data columns of most arrays, at most. Plans for more columns allocate.
const COLUMNS: usize = 16;
type Few<T> = SmallVec<[T; COLUMNS]>;

/// The facts about one column. All sets are parts of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnFacts {
    /// Sectors that the column's member can return.
    pub(super) readable: SectorSet,
    pub(super) writable: bool,
    /// Sectors whose old content is in memory.
    pub(super) loaded: SectorSet,
    /// Sectors that the batch touches (data columns only).
    pub(super) touched: SectorSet,
    /// Whether the operator accepted the risk that parity in doubt supplies lost sectors.
    pub(super) is_accepted: bool,
    /// Whether the member's bad-block log names every sector of the window, and no write has made
    /// one of these sectors good since.
    pub(super) is_named: bool,
}

impl ColumnFacts {
    fn at_hand(&self) -> SectorSet {
        self.loaded.union(self.readable)
    }

    /// Narrows `set` to the sectors that are like `sector`: all readable or in memory, or none of
    /// them.
    fn alike(&self, set: SectorSet, sector: SectorSet) -> SectorSet {
        let at_hand = self.at_hand();
        if at_hand.contains(sector) { set.common(at_hand) } else { set.without(at_hand) }
    }

    /// The sectors to read so that `needed` is in memory, in as few requests as is cheap.
    fn reads(&self, needed: SectorSet) -> SectorSet {
        needed.without(self.loaded).joined(self.readable)
    }
}

#[derive(Clone, Debug)]
pub(super) struct StripeFacts {
    pub(super) window: SectorSet,
    pub(super) data: Few<ColumnFacts>,
    pub(super) p: ColumnFacts,
    pub(super) q: Option<ColumnFacts>,
    pub(super) is_write: bool,
    /// Parity is known to agree with the data in the window, at least where clients have written.
    pub(super) parity_agrees: bool,
    /// Parity agrees also where no client has written.
    pub(super) is_synced: bool,
    /// The method to use if both methods are possible, whatever they cost.
    pub(super) preferred: Option<Method>,
    /// The batch goes into a journal: the window consists of whole blocks.
    pub(super) is_journaled: bool,
}

impl StripeFacts {
    pub(super) fn blank() -> Self {
        Self {
            window: SectorSet::EMPTY,
            data: Few::new(),
            p: ColumnFacts::default(),
            q: None,
            is_write: true,
            parity_agrees: false,
            is_synced: false,
            preferred: None,
            is_journaled: false,
        }
    }

    /// Whether parity may supply lost sectors of a data column.
    fn may_solve(&self, column: u16) -> bool {
        self.parity_agrees || self.data[usize::from(column)].is_accepted
    }

    /// The sectors of a data column whose old content rmw needs.
    fn old(&self, column: &ColumnFacts) -> SectorSet {
        match self.is_journaled {
            true => column.touched.blocks().common(self.window),
            false => column.touched,
        }
    }

    /// Whether no member believes the parity of any sector in the window, and members take all
    /// data.
    fn is_parity_given_up(&self) -> bool {
        let parity = [Some(&self.p), self.q.as_ref()].into_iter().flatten();
        let mut taken = parity.filter(|column| column.writable);
        let is_named = |column: &ColumnFacts| column.is_named && column.loaded.is_empty();
        let is_taken = |column: &ColumnFacts| column.writable || column.touched.is_empty();
        !self.is_journaled && taken.all(is_named) && self.data.iter().all(is_taken)
    }

    /// Whether a column of parity is computed: a member or the journal takes it.
    fn is_made(&self, column: &ColumnFacts) -> bool {
        column.writable || self.is_journaled
    }
}

/// The data that the batch still lacks in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// No data is lacking: compute.
    Nothing,
    /// Some columns must be read.
    Reads,
    /// The batch needs more than can be read or solved for at once; single writes or blocks may
    /// succeed.
    Less,
    /// The batch needs more than can be read or solved for.
    Impossible,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Method {
    /// Parity is not computed: the plan is for a read, or no parity column takes writes.
    NoParity,
    /// Parity is computed from all data columns.
    Rcw,
    /// Parity is computed from the old parity and the difference.
    Rmw,
}

/// The parity that supplies lost data columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// P supplies one data column.
    FromP(u16),
    /// Q supplies one data column; P is lost too.
    FromQ(u16),
    /// P and Q supply two data columns.
    FromBoth(u16, u16),
}

impl Recovery {
    /// The data columns that are solved for.
    pub(super) fn columns(self) -> impl Iterator<Item = u16> {
        let (one, two) = match self {
            Self::FromP(one) | Self::FromQ(one) => (one, None),
            Self::FromBoth(one, two) => (one, Some(two)),
        };
        std::iter::once(one).chain(two)
    }

    pub(super) fn uses_p(&self) -> bool {
        !matches!(self, Self::FromQ(_))
    }

    pub(super) fn uses_q(&self) -> bool {
        !matches!(self, Self::FromP(_))
    }
}

/// Sectors lost in the same columns, and the equations that solve for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Solution {
    pub(super) recovery: Recovery,
    /// The lost sectors, the same in each column.
    pub(super) sectors: SectorSet,
}

/// Usually at most one solution.
type Solutions = SmallVec<[Solution; 1]>;

/// The computations of a batch once all sectors that it needs are in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recipe {
    pub(super) method: Method,
    /// The solutions for lost sectors; no sector is in two of them.
    pub(super) solutions: Solutions,
}

impl Recipe {
    fn none() -> Self {
        Self { method: Method::NoParity, solutions: Solutions::new() }
    }

    /// The sectors of a data column that are solved for.
    pub(super) fn solved(&self, index: u16) -> SectorSet {
        let of_it = |one: &&Solution| one.recovery.columns().any(|column| column == index);
        let solutions = self.solutions.iter().filter(of_it);
        solutions.map(|one| one.sectors).fold(SectorSet::EMPTY, SectorSet::union)
    }

    /// Whether the recipe uses existing parity.
    pub(super) fn believes_parity(&self) -> bool {
        self.method == Method::Rmw || !self.solutions.is_empty()
    }
}

/// The sectors to read before the batch can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) recipe: Recipe,
    /// The sectors to read of each data column.
    pub(super) data: Few<SectorSet>,
    pub(super) p: SectorSet,
    pub(super) q: SectorSet,
}

impl Plan {
    fn blank() -> Self {
        let (p, q) = (SectorSet::EMPTY, SectorSet::EMPTY);
        Self { recipe: Recipe::none(), data: Few::new(), p, q }
    }

    /// The sectors to read of each column, by its slot.
    pub(super) fn columns(&self, map: &RowMap) -> impl Iterator<Item = (Slot, SectorSet)> {
        let slots = (0..map.data_slots()).map(|index| map.data_slot(index));
        let data = slots.zip(self.data.iter().copied());
        let q = map.q_slot().map(|slot| (slot, self.q));
        data.chain([(map.p_slot(), self.p)]).chain(q)
    }

    fn sets(&self) -> impl Iterator<Item = SectorSet> {
        self.data.iter().copied().chain([self.p, self.q])
    }

    /// Number of member reads in the plan.
    pub(super) fn reads(&self) -> u32 {
        self.sets().map(SectorSet::runs).sum()
    }

    /// The plan's cost in sectors: the sectors that it reads, and a fixed number of sectors for
    /// each request.
    fn cost(&self) -> u32 {
        let asked = self.sets().filter(|set| !set.is_empty());
        asked.map(|set| set.sectors() + set.runs() * BLOCK_SECTORS).sum()
    }
}

/// A plan whose reads were submitted. Once all of them have ended well, and nothing else has
/// changed, the batch continues with this plan's recipe.
#[derive(Debug)]
pub(super) struct FilledPlan {
    pub(super) recipe: Recipe,
    /// The epoch of the array's view under which the plan was made.
    pub(super) epoch: u64,
}

impl FilledPlan {
    /// Whether the plan still holds: the view is the same, and parity agrees if the plan uses it.
    /// Then a new plan would read nothing [check: a_plan_whose_reads_are_in_reads_nothing].
    pub(super) fn holds(&self, epoch: u64, parity_agrees: impl FnOnce() -> bool) -> bool {
        self.epoch == epoch && (!self.recipe.believes_parity() || parity_agrees())
    }
}

/// Memory in which plans are made. It is reused, because moving a plan takes longer than making a
/// plan.
#[derive(Debug)]
pub(super) struct Planner {
    facts: StripeFacts,
    rcw: Plan,
    rmw: Plan,
    /// The method of the plan; `None` if no plan was possible.
    chosen: Option<Method>,
}

impl Planner {
    pub(super) fn blank() -> Self {
        Self { facts: StripeFacts::blank(), rcw: Plan::blank(), rmw: Plan::blank(), chosen: None }
    }

    pub(super) fn clear(&mut self) {
        self.chosen = None;
    }

    /// The cheapest plan from the facts that `tell` fills in, if any is possible.
    pub(super) fn plan(&mut self, tell: impl FnOnce(&mut StripeFacts)) -> Option<&Plan> {
        self.facts.data.clear();
        tell(&mut self.facts);
        self.chosen = choose(&self.facts, &mut self.rcw, &mut self.rmw);
        self.planned()
    }

    /// A plan that `rule` makes from the facts that `tell` sets. Such a plan computes no parity.
    pub(super) fn plan_by(
        &mut self,
        tell: impl FnOnce(&mut StripeFacts),
        rule: impl FnOnce(&StripeFacts) -> Option<Plan>,
    ) -> Option<&Plan> {
        self.facts.data.clear();
        tell(&mut self.facts);
        self.chosen = rule(&self.facts).map(|plan| {
            assert!(plan.recipe.method == Method::NoParity, "only a batch makes parity");
            self.rcw = plan;
            Method::NoParity
        });
        self.planned()
    }

    pub(super) fn planned(&self) -> Option<&Plan> {
        let plan = |method| if method == Method::Rmw { &self.rmw } else { &self.rcw };
        self.chosen.map(plan)
    }
}

/// The cheapest plan. `None` if more sectors are lost in the window than parity can supply.
pub(super) fn plan(facts: &StripeFacts) -> Option<Plan> {
    let (mut rcw, mut rmw) = (Plan::blank(), Plan::blank());
    let method = choose(facts, &mut rcw, &mut rmw)?;
    Some(if method == Method::Rmw { rmw } else { rcw })
}

/// Makes the possible plans; returns the cheapest method. A plan without parity goes into `rcw`.
fn choose(facts: &StripeFacts, rcw: &mut Plan, rmw: &mut Plan) -> Option<Method> {
    assert!(!facts.window.is_empty() && !facts.data.is_empty(), "something is to be done");
    let is_inside = |column: &ColumnFacts| facts.window.contains(column.touched);
    assert!(facts.data.iter().all(is_inside), "what is touched lies in the window");
    if !facts.is_write {
        return load(facts, rcw, |column| column.touched).then_some(Method::NoParity);
    }
    let keeps_parity = facts.is_made(&facts.p) || facts.q.is_some_and(|q| facts.is_made(&q));
    if !keeps_parity {
        return load(facts, rcw, |_| SectorSet::EMPTY).then_some(Method::NoParity);
    }
    let has_rcw = load(facts, rcw, |column| {
        let mut kept = facts.window.without(column.touched);
        if planted(Bug::MergeForgetsOld) && !column.touched.is_empty() {
            kept = SectorSet::EMPTY;
        }
        kept
    });
    rcw.recipe.method = Method::Rcw;
    // No plan is cheaper than one that reads nothing.
    if has_rcw && rcw.cost() == 0 && facts.preferred != Some(Method::Rmw) {
        return Some(Method::Rcw);
    }
    match (has_rcw, modify(facts, rmw)) {
        (true, true) => {
            let cheaper = if rmw.cost() < rcw.cost() { Method::Rmw } else { Method::Rcw };
            Some(facts.preferred.unwrap_or(cheaper))
        }
        (true, false) => Some(Method::Rcw),
        (false, true) => Some(Method::Rmw),
        (false, false) if facts.is_parity_given_up() => {
            load(facts, rcw, |_| SectorSet::EMPTY).then_some(Method::NoParity)
        }
        (false, false) => None,
    }
}

/// A plan that reads every column, to compare all columns. `None` if a data column cannot be read.
/// Unreadable parity is left out unless `needs_parity`.
pub(super) fn plan_whole(facts: &StripeFacts, needs_parity: bool) -> Option<Plan> {
    let window = facts.window;
    let is_at_hand = |column: &ColumnFacts| column.at_hand().contains(window);
    let parity = [Some(facts.p), facts.q];
    let has_parity = parity.iter().flatten().all(is_at_hand);
    let [p, q] = parity.map(|column| {
        column.filter(is_at_hand).map_or(SectorSet::EMPTY, |column| column.reads(window))
    });
    let is_there = facts.data.iter().all(is_at_hand) && (has_parity || !needs_parity);
    is_there.then(|| Plan {
        recipe: Recipe::none(),
        data: facts.data.iter().map(|column| column.reads(window)).collect(),
        p,
        q,
    })
}

/// Like [`plan_whole`], but for a window with unreadable sectors: solves for lost data, and
/// confirms the result with any readable parity that the solution does not need.
pub(super) fn plan_rest(facts: &StripeFacts) -> Option<Plan> {
    let touched = |column: &ColumnFacts| ColumnFacts { touched: facts.window, ..*column };
    let wanted = StripeFacts { data: facts.data.iter().map(touched).collect(), ..facts.clone() };
    let plan = plan(&wanted)?;
    let parity = |column: &ColumnFacts| column.reads(facts.window.common(column.at_hand()));
    let (p, q) = (parity(&facts.p), facts.q.as_ref().map(parity).unwrap_or_default());
    Some(Plan { p, q, ..plan })
}

/// A plan to make parity agree with the data, which is believed. If data is missing and the
/// operator accepted the risk, parity supplies the missing data. So both parities agree before
/// another member is lost.
pub(super) fn plan_resync(facts: &StripeFacts) -> Option<Plan> {
    plan_whole(facts, false).or_else(|| (!facts.parity_agrees).then(|| plan_rest(facts)).flatten())
}

/// A plan that reads the columns of these slots. `None` if one of them cannot be read.
pub(super) fn plan_columns(
    facts: &StripeFacts,
    map: &RowMap,
    is_wanted: impl Fn(Slot) -> bool,
) -> Option<Plan> {
    let window = facts.window;
    let reads = |slot: Slot, column: &ColumnFacts| match is_wanted(slot) {
        false => Some(SectorSet::EMPTY),
        true => column.at_hand().contains(window).then(|| column.reads(window)),
    };
    let data = (0..map.data_slots()).map(|index| map.data_slot(index)).zip(&facts.data);
    let q = map.q_slot().zip(facts.q.as_ref());
    Some(Plan {
        recipe: Recipe::none(),
        data: data.map(|(slot, column)| reads(slot, column)).collect::<Option<_>>()?,
        p: reads(map.p_slot(), &facts.p)?,
        q: q.map_or(Some(SectorSet::EMPTY), |(slot, column)| reads(slot, column))?,
    })
}

/// Makes `plan` load the wanted sectors of the data columns, solving for lost ones. The plan
/// computes no parity. False if no such plan is possible.
fn load(facts: &StripeFacts, plan: &mut Plan, wanted: impl Fn(&ColumnFacts) -> SectorSet) -> bool {
    let lost = |column: &ColumnFacts| wanted(column).without(column.at_hand());
    let solved = facts.data.iter().map(lost).fold(SectorSet::EMPTY, SectorSet::union);
    let Some(solutions) = solutions(facts, solved) else { return false };
    // The equations need every data column in the lost sectors, wanted or not.
    let reads =
        |column: &ColumnFacts| column.reads(wanted(column).union(solved).common(column.at_hand()));
    let parity = |column: &ColumnFacts, is_used: fn(&Recovery) -> bool| {
        let used = solutions.iter().filter(|one| is_used(&one.recovery));
        column.reads(used.map(|one| one.sectors).fold(SectorSet::EMPTY, SectorSet::union))
    };
    let mut unknown = solutions.iter().flat_map(|one| one.recovery.columns());
    let may_be = unknown.all(|column| facts.may_solve(column));
    assert!(
        may_be,
        "I7: parity that may not agree is never solved from, but where that was accepted"
    );
    plan.data.clear();
    plan.data.extend(facts.data.iter().map(reads));
    plan.p = parity(&facts.p, Recovery::uses_p);
    plan.q = facts.q.map_or(SectorSet::EMPTY, |q| parity(&q, Recovery::uses_q));
    plan.recipe = Recipe { method: Method::NoParity, solutions };
    true
}

/// The equations that solve for all lost sectors. `None` if some sectors cannot be solved for.
fn solutions(facts: &StripeFacts, lost: SectorSet) -> Option<Solutions> {
    let mut rest = lost;
    std::iter::from_fn(|| {
        let offset = rest.offsets().next()?;
        let first = SectorSet::run(offset, 1);
        let columns = facts.data.iter().chain([&facts.p]).chain(&facts.q);
        let sectors = columns.fold(rest, |set, column| column.alike(set, first));
        rest = rest.without(sectors);
        Some(recovery(facts, sectors).map(|recovery| Solution { recovery, sectors }))
    })
    .collect()
}

/// The equations that solve for `sectors`. All of `sectors` are lost in the same columns. `None` if
/// no equations solve for them.
fn recovery(facts: &StripeFacts, sectors: SectorSet) -> Option<Recovery> {
    let is_at_hand = |column: &ColumnFacts| column.at_hand().contains(sectors);
    let columns = (0u16..).zip(&facts.data);
    let unknown: Few<u16> =
        columns.filter(|(_, column)| !is_at_hand(column)).map(|(index, _)| index).collect();
    if !unknown.iter().all(|column| facts.may_solve(*column)) {
        return None;
    }
    let (p, q) = (is_at_hand(&facts.p), facts.q.as_ref().is_some_and(is_at_hand));
    match unknown[..] {
        [one] if p => Some(Recovery::FromP(one)),
        [one] if q => Some(Recovery::FromQ(one)),
        [one, two] if p && q => Some(Recovery::FromBoth(one, two)),
        _ => None,
    }
}

/// Makes `plan` read-modify-write. False if a sector that it needs cannot be read.
fn modify(facts: &StripeFacts, plan: &mut Plan) -> bool {
    let window = facts.window;
    let usable = |column: &ColumnFacts| !facts.is_made(column) || column.at_hand().contains(window);
    let possible = facts.parity_agrees
        && facts.is_synced
        && facts.data.iter().all(|column| column.at_hand().contains(facts.old(column)))
        && usable(&facts.p)
        && facts.q.as_ref().is_none_or(usable);
    if !possible {
        return false;
    }
    let parity = |column: Option<&ColumnFacts>| {
        let kept = column.filter(|column| facts.is_made(column));
        kept.map_or(SectorSet::EMPTY, |column| column.reads(window))
    };
    plan.data.clear();
    plan.data.extend(facts.data.iter().map(|column| column.reads(facts.old(column))));
    plan.p = parity(Some(&facts.p));
    plan.q = parity(facts.q.as_ref());
    plan.recipe = Recipe { method: Method::Rmw, solutions: Solutions::new() };
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sectors::Extent;

    /// Supplies choices from one number, digit by digit.
    struct Digits(u64);

    impl Digits {
        fn next(&mut self, base: u64) -> u64 {
            let digit = self.0 % base;
            self.0 /= base;
            digit
        }

        fn set(&mut self, window: SectorSet) -> SectorSet {
            let sectors = window.extents().flat_map(|extent| extent.offset..extent.end());
            let chosen = sectors.filter(|_| self.next(2) == 1);
            chosen.map(|offset| Extent { offset, sectors: 1 }).collect()
        }

        fn column(&mut self, window: SectorSet, is_data: bool) -> ColumnFacts {
            let (readable, loaded) = (self.set(window), self.set(window));
            let touched = if is_data { self.set(window) } else { SectorSet::EMPTY };
            let writable = self.next(2) == 1;
            ColumnFacts { readable, loaded, touched, writable, ..ColumnFacts::default() }
        }

        /// Facts of three data columns, P, and perhaps Q.
        fn stripe(&mut self, window: SectorSet) -> StripeFacts {
            let mut data: Few<_> = (0..3).map(|_| self.column(window, true)).collect();
            let (p, q) = (self.column(window, false), self.column(window, false));
            let q = (self.next(2) == 1).then_some(q);
            let is_write = self.next(2) == 1;
            let (parity_agrees, is_synced) = (self.next(2) == 1, self.next(2) == 1);
            // Columns are alike, so the choice of the column does not matter.
            data[0].is_accepted = !parity_agrees && !is_synced;
            let preferred = match self.next(3) {
                0 => None,
                1 => Some(Method::Rcw),
                _ => Some(Method::Rmw),
            };
            let is_journaled = false;
            StripeFacts {
                window,
                data,
                p,
                q,
                is_write,
                parity_agrees,
                is_synced,
                preferred,
                is_journaled,
            }
        }
    }

    #[test]
    fn named_parity_that_cannot_be_made_is_left() {
        let window = set(&[(3, 1)]);
        let good = ColumnFacts { readable: window, writable: true, ..ColumnFacts::default() };
        let lost = ColumnFacts { writable: true, ..ColumnFacts::default() };
        let named = ColumnFacts { is_named: true, ..lost };
        let written = ColumnFacts { touched: window, ..good };
        let of = |data: [ColumnFacts; 3], p, q| StripeFacts {
            window,
            data: data.into_iter().collect(),
            p,
            q,
            parity_agrees: true,
            is_synced: true,
            ..StripeFacts::blank()
        };
        let method = |facts: &StripeFacts| plan(facts).map(|plan| plan.recipe.method);
        // One column of data is lost, and no member believes the parity of its row.
        let facts = of([written, good, lost], named, None);
        let left = plan(&facts).expect("the data goes to its member");
        assert_eq!((left.recipe.method, left.reads()), (Method::NoParity, 0));
        assert_eq!(method(&of([written, good, lost], named, Some(named))), Some(Method::NoParity));
        // A write of the lost column computes the parity again.
        let heals = ColumnFacts { touched: window, ..lost };
        assert_eq!(method(&of([good, good, heals], named, None)), Some(Method::Rcw));
        // Parity that a member believes must fit, and data needs its member.
        assert_eq!(method(&of([written, good, lost], lost, None)), None);
        assert_eq!(method(&of([written, good, lost], named, Some(lost))), None);
        let healed = ColumnFacts { loaded: window, ..named };
        assert_ne!(method(&of([written, good, lost], healed, None)), Some(Method::NoParity));
        let absent = ColumnFacts { touched: window, ..ColumnFacts::default() };
        assert_eq!(method(&of([absent, good, lost], named, None)), None);
    }

    fn set(runs: &[(u32, u32)]) -> SectorSet {
        runs.iter().map(|(offset, sectors)| Extent { offset: *offset, sectors: *sectors }).collect()
    }

    /// Every combination of facts for a window of one sector.
    fn all_of_one_sector() -> impl Iterator<Item = StripeFacts> {
        let count = 16u64.pow(3) * 8 * 8 * 2 * 2 * 2 * 3;
        (0..count).map(|n| Digits(n).stripe(set(&[(5, 1)])))
    }

    /// Windows of several sectors, near each other and apart: a sample of very many combinations.
    fn some_of_more() -> impl Iterator<Item = StripeFacts> {
        let mix = |n: u64| (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let windows =
            [set(&[(0, 2)]), set(&[(0, 1), (90, 1)]), set(&[(0, 3)]), set(&[(7, 1), (64, 2)])];
        let number = move |n: u64| mix(mix(n.wrapping_mul(0x94d0_49bb_1331_11eb)) ^ n);
        let numbered = (1..300_000).zip(windows.into_iter().cycle());
        numbered.map(move |(n, window)| Digits(number(n)).stripe(window))
    }

    /// Sectors of the data columns that are in memory once the plan's reads are in and its
    /// equations solved.
    fn known(facts: &StripeFacts, plan: &Plan) -> Vec<SectorSet> {
        let after = |column: &ColumnFacts, read: SectorSet| {
            assert!(column.readable.contains(read), "reads only what it can");
            column.loaded.union(read)
        };
        let columns = facts.data.iter().zip(&plan.data);
        let mut known: Vec<SectorSet> =
            columns.map(|(column, read)| after(column, *read)).collect();
        let p = after(&facts.p, plan.p);
        let q = facts.q.map_or(SectorSet::EMPTY, |q| after(&q, plan.q));
        for Solution { recovery, sectors } in &plan.recipe.solutions {
            assert!(!sectors.is_empty());
            assert!(!recovery.uses_p() || p.contains(*sectors));
            assert!(!recovery.uses_q() || q.contains(*sectors));
            for (index, known) in (0..).zip(&mut known) {
                let is_solved = recovery.columns().any(|one| one == index);
                assert_eq!(is_solved, !known.contains(*sectors), "an equation for each unknown");
                assert_eq!(is_solved, !known.meets(*sectors), "what is known is not solved for");
                *known = if is_solved { known.union(*sectors) } else { *known };
            }
        }
        known
    }

    /// The facts of the same stripe after the reads of a plan.
    fn read_in(facts: &StripeFacts, plan: &Plan) -> StripeFacts {
        let mut filled = facts.clone();
        for (column, read) in filled.data.iter_mut().zip(&plan.data) {
            column.loaded = column.loaded.union(*read);
        }
        filled.p.loaded = filled.p.loaded.union(plan.p);
        filled.q.iter_mut().for_each(|q| q.loaded = q.loaded.union(plan.q));
        filled
    }

    #[test]
    fn every_plan_loads_enough() {
        let mut counts = [0u32; 3];
        for facts in all_of_one_sector().chain(some_of_more()) {
            let Some(plan) = plan(&facts) else { continue };
            let known = known(&facts, &plan);
            let mut solved = plan.recipe.solutions.iter().flat_map(|one| one.recovery.columns());
            assert!(solved.all(|column| facts.may_solve(column)), "{facts:?} {plan:?}");
            for (column, known) in facts.data.iter().zip(known) {
                let needed = match plan.recipe.method {
                    Method::NoParity if !facts.is_write => column.touched,
                    Method::NoParity => SectorSet::EMPTY,
                    Method::Rcw => facts.window.without(column.touched),
                    Method::Rmw => column.touched,
                };
                assert!(known.contains(needed), "{facts:?} {plan:?}");
            }
            if plan.recipe.method == Method::Rmw {
                assert!(facts.parity_agrees && facts.is_synced);
                let enough = |column: &ColumnFacts, read: SectorSet| {
                    !column.writable || column.loaded.union(read).contains(facts.window)
                };
                assert!(enough(&facts.p, plan.p));
                assert!(facts.q.is_none_or(|q| enough(&q, plan.q)));
            }
            counts[plan.recipe.method as usize] += 1;
        }
        assert!(counts.iter().all(|count| *count > 1000), "all methods occur: {counts:?}");
    }

    /// A batch that continues as planned relies on this test: a new plan would be the same, and
    /// read nothing. If the other method costs nothing either by then, the new plan may use that
    /// method.
    #[test]
    fn a_plan_whose_reads_are_in_reads_nothing() {
        let mut counts = [0u32; 2];
        for facts in all_of_one_sector().chain(some_of_more()) {
            let Some(first) = plan(&facts) else { continue };
            let second = plan(&read_in(&facts, &first)).expect("nothing has become less");
            assert_eq!(second.reads(), 0, "{facts:?} {first:?}");
            let is_same = second.recipe == first.recipe;
            assert!(is_same || first.recipe.method == Method::Rmw, "{first:?} {second:?}");
            counts[usize::from(is_same)] += u32::from(first.reads() > 0);
        }
        assert!(counts[1] > 1000, "most stay the same: {counts:?}");
    }

    /// After the reads of a plan for background work, a new plan would be the same, and read
    /// nothing.
    #[test]
    fn a_plan_of_background_work_whose_reads_are_in_reads_nothing() {
        let rules: [fn(&StripeFacts) -> Option<Plan>; 4] = [
            |facts| plan_whole(facts, true),
            |facts| plan_whole(facts, false),
            plan_rest,
            plan_resync,
        ];
        let mut counts = [0u32; 4];
        for facts in all_of_one_sector().chain(some_of_more()).filter(|facts| !facts.is_write) {
            for (rule, count) in rules.iter().zip(&mut counts) {
                let Some(first) = rule(&facts) else { continue };
                let second = rule(&read_in(&facts, &first)).expect("nothing has become less");
                assert_eq!(
                    (second.reads(), &second.recipe),
                    (0, &first.recipe),
                    "{facts:?} {first:?}"
                );
                *count += u32::from(first.reads() > 0);
            }
        }
        assert!(counts.iter().all(|count| *count > 1000), "all occur: {counts:?}");
    }

    /// A journal gets whole blocks, and all parity of these blocks.
    #[test]
    fn what_is_journaled_is_known_whole() {
        let block = set(&[(8, 8)]);
        let mut counts = [0u32; 3];
        for facts in all_of_one_sector().filter(|facts| facts.is_write) {
            let wide = |some: SectorSet| if some.is_empty() { some } else { block };
            let column = |column: &ColumnFacts| ColumnFacts {
                readable: wide(column.readable),
                loaded: wide(column.loaded),
                touched: if column.touched.is_empty() { column.touched } else { set(&[(9, 3)]) },
                ..*column
            };
            let data = facts.data.iter().map(column).collect();
            let (p, q) = (column(&facts.p), facts.q.as_ref().map(column));
            let facts = StripeFacts { window: block, data, p, q, is_journaled: true, ..facts };
            let Some(plan) = plan(&facts) else { continue };
            counts[plan.recipe.method as usize] += 1;
            let known = known(&facts, &plan);
            for (column, known) in facts.data.iter().zip(known) {
                let is_whole = known.union(column.touched).contains(block);
                let is_left = plan.recipe.method == Method::Rmw && column.touched.is_empty();
                assert!(is_whole || is_left, "{facts:?} {plan:?}");
            }
            if plan.recipe.method == Method::Rmw {
                let has = |column: &ColumnFacts, read| column.loaded.union(read).contains(block);
                assert!(has(&facts.p, plan.p) && facts.q.is_none_or(|q| has(&q, plan.q)));
            }
        }
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| *count > 1000), "{counts:?}");
    }

    #[test]
    fn refusals_are_losses_beyond_the_level() {
        let agree = all_of_one_sector().filter(|facts| facts.parity_agrees);
        for facts in agree.filter(|facts| plan(facts).is_none()) {
            let is_lost = |column: &&ColumnFacts| column.at_hand().is_empty();
            let lost = facts.data.iter().filter(is_lost).count();
            let parity = [Some(facts.p), facts.q].into_iter().flatten();
            let parity = parity.filter(|column| !column.at_hand().is_empty()).count();
            assert!(lost > parity, "{facts:?}");
        }
    }

    /// A stripe of healthy columns, each written at the given runs of sectors.
    fn written(columns: usize, writes: &[&[(u32, u32)]]) -> StripeFacts {
        let touched = |index: usize| writes.get(index).map_or(SectorSet::EMPTY, |runs| set(runs));
        let sets = (0..columns).map(touched);
        let window = sets.clone().fold(SectorSet::EMPTY, SectorSet::union);
        let clean = ColumnFacts { readable: window, writable: true, ..ColumnFacts::default() };
        StripeFacts {
            window,
            data: sets.map(|touched| ColumnFacts { touched, ..clean }).collect(),
            p: clean,
            q: None,
            is_write: true,
            parity_agrees: true,
            is_synced: true,
            preferred: None,
            is_journaled: false,
        }
    }

    #[test]
    fn the_cheaper_way_wins() {
        let chosen = |count: usize| {
            let plan = plan(&written(8, &vec![&[(0, 128)][..]; count])).unwrap();
            (plan.recipe.method, plan.reads())
        };
        assert_eq!(chosen(1), (Method::Rmw, 2));
        assert_eq!(chosen(3), (Method::Rmw, 4));
        assert_eq!(chosen(4), (Method::Rcw, 4));
        assert_eq!(chosen(8), (Method::Rcw, 0));
    }

    #[test]
    fn what_lies_between_writes_far_apart_is_not_read() {
        let plan = plan(&written(6, &[&[(0, 8)], &[(120, 8)]])).unwrap();
        assert_eq!(plan.recipe.method, Method::Rmw);
        assert_eq!(plan.data[..3], [set(&[(0, 8)]), set(&[(120, 8)]), SectorSet::EMPTY]);
        assert_eq!(plan.p, set(&[(0, 8), (120, 8)]));
    }

    /// A plan with fewer requests loses if it reads many more sectors.
    #[test]
    fn bytes_count_as_well_as_requests() {
        let facts = written(3, &[&[(0, 8), (60, 8)], &[(0, 128)]]);
        let plan = plan(&facts).unwrap();
        assert_eq!((plan.recipe.method, plan.reads()), (Method::Rcw, 3));
        let mut rmw = Plan::blank();
        assert!(modify(&facts, &mut rmw));
        assert!(rmw.reads() > plan.reads() && rmw.cost() > plan.cost());
    }
}
