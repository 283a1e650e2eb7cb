//! Compares geometry with members that the real md wrote. Every sector of every member holds the
//! content that geometry says. Every sector of the array is on as many members as geometry says.
//!
//! The fixtures know no layout: their authors found by trying which sector is P or Q, and which
//! powers Q has.

use std::collections::BTreeMap;

use braid_geometry::{Geometry, MemberSector, Role, Slot, StripeGeometry};

use super::fixture::Content;
use super::{assembled, fixtures};

/// The content of a member sector according to geometry.
#[derive(Debug, PartialEq)]
enum SectorContent {
    Data(u64),
    P(Vec<usize>),
    Q(Vec<(usize, u32)>),
}

fn sector_content(geometry: &Geometry, slot: Slot, sector: MemberSector) -> Option<SectorContent> {
    if sector.0 >= geometry.used_sectors(slot) {
        return None;
    }
    match geometry {
        Geometry::Direct(direct) => {
            let logical = direct.logical(slot, sector)?;
            let extent = direct.locate(logical);
            assert_eq!((extent.slot, extent.sector), (slot, sector), "the way back");
            Some(SectorContent::Data(logical.0))
        }
        Geometry::Mirror(mirror) => {
            let (logical, copy) = mirror.logical(slot, sector)?;
            assert_eq!(mirror.copy(logical, copy), (slot, sector), "the way back");
            Some(SectorContent::Data(logical.0))
        }
        Geometry::Stripe(stripe) => Some(stripe_sector_content(stripe, slot, sector)),
    }
}

fn stripe_sector_content(
    stripe: &StripeGeometry,
    slot: Slot,
    sector: MemberSector,
) -> SectorContent {
    let row = stripe.row_of(sector);
    let map = stripe.row_map(row);
    let offset = sector.0 - stripe.row_start(row).0;
    let data = (0..map.data_slots()).map(|index| (map.data_slot(index).index(), index));
    match map.role(slot) {
        Role::Data(index) => {
            let offset = u32::try_from(offset).expect("below a chunk");
            let logical = stripe.logical(row, index, offset);
            let address = stripe.locate(logical);
            assert_eq!((address.row, address.data_index), (row, index), "the way back");
            SectorContent::Data(logical.0)
        }
        Role::P => {
            let mut members: Vec<usize> = data.map(|(member, _)| member).collect();
            members.sort_unstable();
            SectorContent::P(members)
        }
        Role::Q => {
            let term = |(member, index)| (member, u32::from(map.exponent(index)));
            let mut terms: Vec<(usize, u32)> = data.map(term).collect();
            terms.sort_unstable();
            SectorContent::Q(terms)
        }
    }
}

#[test]
fn every_sector_lies_where_md_put_it() {
    let (mut arrays, mut with_q) = (0, 0);
    for (name, fixture) in fixtures().into_iter().filter(|(name, _)| !name.starts_with("state-")) {
        let Ok(array) = assembled(&fixture, false).array else { continue };
        let mut times: BTreeMap<u64, u64> = BTreeMap::new();
        let mut has_q = false;
        for (slot, member) in (0..).map(Slot).zip(&fixture.members) {
            let mut next = 0;
            for run in &member.runs {
                for sector in (next..run.at).map(MemberSector) {
                    assert_eq!(
                        sector_content(&array.geometry, slot, sector),
                        None,
                        "{name} {slot} {sector:?}"
                    );
                }
                for step in 0..run.sectors {
                    let found = match &run.content {
                        Content::Data { logical, .. } => SectorContent::Data(logical + step),
                        Content::P(members) => SectorContent::P(members.clone()),
                        Content::Q(terms) => SectorContent::Q(terms.clone()),
                        Content::Words(_) | Content::Sum(_) => {
                            panic!("{name}: a healthy array explains itself")
                        }
                    };
                    let sector = MemberSector(run.at + step);
                    let said = sector_content(&array.geometry, slot, sector);
                    assert_eq!(said.as_ref(), Some(&found), "{name} {slot} {sector:?}");
                    match found {
                        SectorContent::Data(logical) => *times.entry(logical).or_default() += 1,
                        SectorContent::P(_) => {}
                        SectorContent::Q(_) => has_q = true,
                    }
                }
                next = run.at + run.sectors;
            }
            let end = array.geometry.used_sectors(slot);
            for sector in (next..end).map(MemberSector) {
                assert_eq!(
                    sector_content(&array.geometry, slot, sector),
                    None,
                    "{name} {slot} {sector:?}"
                );
            }
        }
        let copies = match &array.geometry {
            Geometry::Mirror(mirror) => u64::from(mirror.copies()),
            Geometry::Direct(_) | Geometry::Stripe(_) => 1,
        };
        let all = 0..array.geometry.capacity_sectors();
        assert!(times.into_iter().eq(all.map(|logical| (logical, copies))), "{name}");
        arrays += 1;
        with_q += usize::from(has_q);
    }
    assert!(arrays >= 73 && with_q >= 20, "{arrays} arrays, {with_q} with Q");
}
