//! The configuration keys and recipes of `bridge`, as the catalogue prints them.

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key("stations", "16384", "maximum number of stations; 1 to 16777216"),
    key("ageing", "300", "seconds of silence after which a station is forgotten"),
    key(
        "refresh_interval",
        "0",
        "seconds for which a station's entry is not rewritten while its port stays the same; less than ageing",
    ),
];

pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        cause: Cause::SameKey,
        key: "refresh_interval",
        help: "longer: a station's entry is rewritten less often, and forgotten that much earlier",
    },
    Recipe { cause: Cause::SameIndex, key: "refresh_interval", help: "longer, as above" },
    Recipe { cause: Cause::SameBucket, key: "stations", help: "larger: the map has more buckets" },
    Recipe {
        cause: Cause::MapRoomExhausted,
        key: "stations",
        help: "larger than needed: a core then doesn't use up its share",
    },
    Recipe {
        cause: Cause::PoolExhausted,
        key: "stations",
        help: "larger than needed: a core then doesn't use up its share",
    },
];
