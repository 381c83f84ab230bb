//! Sites: lines of a function's source that use shared state. Each has a number, so that an object can record its last writer in one word.

use alloc::vec::Vec;
use core::panic::Location;
use core::ptr;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::cause::Operation;

/// A line of a function's source, and its operation on shared state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The source line.
    pub location: &'static Location<'static>,
    /// The operation.
    pub operation: Operation,
}

/// All known sites.
#[derive(Default)]
pub(crate) struct Sites(Mutex<Known>);

#[derive(Default)]
struct Known {
    numbers: HashMap<Site, u32>,
    sites: Vec<Site>,
}

impl Sites {
    /// The number of the site, from 1 on.
    pub(crate) fn number(&self, site: Site) -> u32 {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { numbers, sites } = &mut *known;
        *numbers.entry(site).or_insert_with(|| {
            sites.push(site);
            sites.len() as u32
        })
    }

    /// The site with this number; `None` for 0, which means no site.
    pub(crate) fn site(&self, number: u32) -> Option<Site> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.sites.get((number as usize).checked_sub(1)?).copied()
    }
}

/// How many sites a core caches: more than a function has.
const CACHED_SITES: usize = 64;

/// A core's cache of site numbers, by open addressing. Sites that find no place are looked up each time.
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
                // Compares addresses, since comparing locations compares file names. A line may have several addresses; `all` gives them
                // the same number.
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
