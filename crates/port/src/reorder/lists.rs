//! Lists of numbers whose links lie in one array, so that an element is taken out from anywhere without a search.

/// The number that no element has.
pub(super) const NONE: u32 = u32::MAX;

/// The neighbours of an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: u32,
    behind: u32,
}

impl Links {
    pub(super) const NONE: Self = Self { before: NONE, behind: NONE };
}

/// A list: its ends. An element is in one list at most of those that share an array of links.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(super) const fn first(&self) -> Option<u32> {
        if self.first == NONE { None } else { Some(self.first) }
    }

    /// The element behind `element`.
    pub(super) fn behind(links: &[Links], element: u32) -> Option<u32> {
        Some(links[element as usize].behind).filter(|behind| *behind != NONE)
    }

    /// Adds an element at the end.
    pub(super) fn push(&mut self, links: &mut [Links], element: u32) {
        links[element as usize] = Links { before: self.last, behind: NONE };
        match self.last {
            NONE => self.first = element,
            last => links[last as usize].behind = element,
        }
        self.last = element;
    }

    /// Takes an element out.
    pub(super) fn remove(&mut self, links: &mut [Links], element: u32) {
        let Links { before, behind } = links[element as usize];
        match before {
            NONE => self.first = behind,
            before => links[before as usize].behind = behind,
        }
        match behind {
            NONE => self.last = before,
            behind => links[behind as usize].before = before,
        }
    }
}
