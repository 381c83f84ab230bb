//! Where `identify` tells sessions one by one.

use core::fmt::Debug;

use identify::{Identified, Names};

use crate::streams::Session;

/// Where sessions are told one by one.
pub trait Rows: Clone + Debug + Send + Sync + 'static {
    /// A session begins. The number is its name from now on.
    fn begin(&self, session: &Session) -> u32;

    /// A session has its answer.
    fn tell(&self, row: &Row<'_>);

    /// A session has ended.
    fn end(&self, number: u32);
}

/// The row of a session.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its number.
    pub number: u32,
    /// Its application; `None` if no signature fits.
    pub application: Option<&'a str>,
    /// The application inside it, in a tunnel or after STARTTLS.
    pub inside: Option<&'a str>,
    /// How the innermost one was told.
    pub told: Option<Identified>,
    /// Segments and datagrams with payload until the answer.
    pub payloads: u16,
    /// The names that were seen.
    pub names: &'a Names,
}

/// Tells nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Rows for Silent {
    fn begin(&self, _: &Session) -> u32 {
        0
    }

    fn tell(&self, _: &Row<'_>) {}

    fn end(&self, _: u32) {}
}
