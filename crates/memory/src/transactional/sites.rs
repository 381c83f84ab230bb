//! Where in a function's source shared state is used: each place has a number, so that an object can remember in a word who
//! wrote it last.

use alloc::vec::Vec;
use core::panic::Location;
use core::ptr;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::cause::Operation;

/// A line of a function's source, and what it does to shared state there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The line.
    pub location: &'static Location<'static>,
    /// What it does.
    pub operation: Operation,
}

/// All sites that were met so far.
#[derive(Default)]
pub(crate) struct Sites(Mutex<Known>);

#[derive(Default)]
struct Known {
    numbers: HashMap<Site, u32>,
    sites: Vec<Site>,
}

impl Sites {
    /// The site's number, from 1 on.
    pub(crate) fn number(&self, site: Site) -> u32 {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { numbers, sites } = &mut *known;
        *numbers.entry(site).or_insert_with(|| {
            sites.push(site);
            sites.len() as u32
        })
    }

    /// The site of a number; `None` for 0, which is no site's.
    pub(crate) fn site(&self, number: u32) -> Option<Site> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.sites.get((number as usize).checked_sub(1)?).copied()
    }
}

/// How many sites a core remembers the numbers of without asking: more than a function has.
const CACHED_SITES: usize = 64;

/// A core's own memory of sites' numbers, by open addressing. What finds no place is asked for each time.
pub(crate) struct SiteCache([Option<(Site, u32)>; CACHED_SITES]);

impl Default for SiteCache {
    fn default() -> Self {
        Self([None; CACHED_SITES])
    }
}

impl SiteCache {
    /// The site's number.
    #[inline]
    pub(crate) fn number(&mut self, site: Site, all: &Sites) -> u32 {
        let home = site.location.line() as usize;
        for at in (home..home + CACHED_SITES).map(|at| at % CACHED_SITES) {
            match self.0[at] {
                // By address, as to compare two locations is to compare their files' names. A line may have several addresses:
                // they share a number, which `all` knows.
                Some((known, number))
                    if ptr::eq(known.location, site.location) && known.operation == site.operation =>
                {
                    return number;
                }
                Some(_) => {}
                None => {
                    let number = all.number(site);
                    self.0[at] = Some((site, number));
                    return number;
                }
            }
        }
        all.number(site)
    }
}
