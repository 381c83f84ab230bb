//! The keys of the bridge's configuration file, as the catalogue prints them, and which to turn when.

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: &[ConfigKey] = &[
    key("stations", "16384", "stations that are remembered; 1 to 16777216"),
    key("ageing", "300", "seconds of silence after which a station is forgotten"),
    key(
        "refresh_interval",
        "0",
        "seconds for which a station's entry isn't written again while it stays where it is; less than ageing",
    ),
];

pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        cause: Cause::SameKey,
        key: "refresh_interval",
        help: "longer: a station that stays is written again only after so long, and forgotten by as much sooner",
    },
    Recipe { cause: Cause::SameIndex, key: "refresh_interval", help: "longer, as above" },
    Recipe { cause: Cause::SameBucket, key: "stations", help: "more of them: the map has half as many buckets again" },
    Recipe {
        cause: Cause::MapRoomExhausted,
        key: "stations",
        help: "more than there are, so that no core runs out of its share",
    },
    Recipe {
        cause: Cause::PoolExhausted,
        key: "stations",
        help: "more than there are, so that no core runs out of its share",
    },
];
