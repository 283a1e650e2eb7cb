//! A cache of pages, for guesses that read the same places again and again.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::Platter;
use crate::bytes::{SECTOR, small};

const PAGE: u64 = 8;
/// The most pages of a member that the cache keeps: 16 MiB.
const PAGES_MAX: usize = 4096;

/// The bytes of a page; `None` if the page cannot be read whole.
type Page = Option<Box<[u8]>>;

pub(crate) struct CachedPlatter<'a> {
    member: &'a dyn Platter,
    pages: RefCell<BTreeMap<u64, Page>>,
}

impl<'a> CachedPlatter<'a> {
    pub(crate) fn of(member: &'a dyn Platter) -> Self {
        Self { member, pages: RefCell::default() }
    }

    /// Reads sectors of one page through the cache; the page is wholly on the member.
    fn read_within(&self, sector: u64, bytes: &mut [u8]) -> bool {
        let (number, skipped) = (sector / PAGE, small(sector % PAGE) * SECTOR);
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= PAGES_MAX && !pages.contains_key(&number) {
            pages.clear();
        }
        let page = pages.entry(number).or_insert_with(|| {
            let mut page = vec![0; small(PAGE) * SECTOR].into_boxed_slice();
            self.member.read(number * PAGE, &mut page).then_some(page)
        });
        match page {
            Some(page) => bytes.copy_from_slice(&page[skipped..skipped + bytes.len()]),
            // A page that cannot be read whole may still have readable sectors.
            None => return self.member.read(sector, bytes),
        }
        true
    }
}

impl Platter for CachedPlatter<'_> {
    fn sectors(&self) -> u64 {
        self.member.sectors()
    }

    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        let (mut at, mut rest) = (sector, bytes);
        while !rest.is_empty() {
            let room = small(PAGE - at % PAGE) * SECTOR;
            let (piece, after) = rest.split_at_mut(rest.len().min(room));
            let is_whole = (at / PAGE + 1) * PAGE <= self.sectors();
            let is_read = match is_whole {
                true => self.read_within(at, piece),
                false => self.member.read(at, piece),
            };
            if !is_read {
                return false;
            }
            at += (piece.len() / SECTOR) as u64;
            rest = after;
        }
        true
    }
}
