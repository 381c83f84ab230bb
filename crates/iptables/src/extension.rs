//! What every match and every target has: a name, options, a reader.

use core::fmt;

use crate::error::Fault;
use crate::options::{Args, Spec};
use crate::value::Family;

/// A match or a target. Its `Display` writes its options, each after a space.
pub(crate) trait Extension: Sized + fmt::Display {
    const NAME: &'static str;
    /// The only family that has it.
    const FAMILY: Option<Family> = None;
    const OPTIONS: &'static [Spec];

    /// Reads the options that a rule gave.
    fn build(args: &Args<'_>) -> Result<Self, Fault>;
}

/// A row of the table of extensions.
pub(crate) struct Row<T> {
    pub(crate) name: &'static str,
    pub(crate) family: Option<Family>,
    pub(crate) options: &'static [Spec],
    pub(crate) build: fn(&Args<'_>) -> Result<T, Fault>,
}

/// Makes the enum of all matches or all targets, with their table.
macro_rules! extensions {
    ($(#[$doc:meta])* $all:ident, $table:ident: $($(#[$said:meta])* $name:ident,)*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $all {
            $($(#[$said])* $name($name),)*
        }

        impl $all {
            /// The name that iptables has for it.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => <$name as crate::extension::Extension>::NAME,)*
                }
            }
        }

        impl core::fmt::Display for $all {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(Self::$name(extension) => extension.fmt(f),)*
                }
            }
        }

        /// All of them.
        pub(crate) const $table: &[crate::extension::Row<$all>] = &[
            $(crate::extension::Row {
                name: <$name as crate::extension::Extension>::NAME,
                family: <$name as crate::extension::Extension>::FAMILY,
                options: <$name as crate::extension::Extension>::OPTIONS,
                build: |args| <$name as crate::extension::Extension>::build(args).map($all::$name),
            },)*
        ];
    };
}
pub(crate) use extensions;
