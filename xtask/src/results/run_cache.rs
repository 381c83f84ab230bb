//! A cache of finished runs, so that an interrupted measurement continues where it was.
//!
//! The key of a run is a digest of the program and the arguments. So results survive a commit that doesn't change the program, and an
//! uncommitted change invalidates them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Run;

/// A measurement campaign: when runs were made, and the load of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Campaign {
    /// When it began, in seconds since 1970.
    pub(super) start_s: u64,
    /// The system's load averages then.
    pub(super) load: String,
}

/// The cached runs of one program.
pub(super) struct RunCache {
    folder: PathBuf,
    /// A digest of the program.
    program: String,
    campaign: Campaign,
}

impl RunCache {
    /// Opens the cache in this folder for this program. New runs belong to this campaign.
    pub(super) fn of(folder: PathBuf, program: &Path, campaign: Campaign) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
        let bytes = fs::read(program).with_context(|| format!("{} can't be read", program.display()))?;
        Ok(Self { folder, program: digest(&bytes), campaign })
    }

    /// The campaign of new runs.
    pub(super) const fn campaign(&self) -> &Campaign {
        &self.campaign
    }

    /// Removes all runs in the folder.
    pub(super) fn clear(folder: &Path) -> Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("{} can't be removed", folder.display()))?;
        }
        Ok(())
    }

    /// The cached output of a run and its campaign.
    pub(super) fn get(&self, run: &Run) -> Option<(Campaign, Value)> {
        // A run that can't be read is measured again.
        let mut kept: Value = serde_json::from_slice(&fs::read(self.path(run)).ok()?).ok()?;
        if kept["program"] != self.program || kept["arguments"] != json!(run.arguments) {
            return None;
        }
        let load = kept["load_averages"].as_str()?.to_owned();
        Some((Campaign { start_s: kept["session_start_s"].as_u64()?, load }, kept["printed"].take()))
    }

    /// Stores the output of a run, atomically.
    pub(super) fn put(&self, run: &Run, printed: &Value) -> Result<()> {
        let kept = json!({
            "program": self.program, "arguments": run.arguments, "session_start_s": self.campaign.start_s,
            "load_averages": self.campaign.load, "printed": printed,
        });
        let path = self.path(run);
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, kept.to_string())
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("{} can't be written", path.display()))
    }

    fn path(&self, run: &Run) -> PathBuf {
        self.folder.join(run.name.replace('/', "_") + ".json")
    }
}

/// The FNV-1a hash of a program.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

/// A time in UTC, to the minute.
pub(super) fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days from civil (Hinnant), backwards: years begin in March, so that leap days come last.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", of_day / 3_600, of_day / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, line: &str) -> Run {
        Run { name: name.into(), arguments: line.split(' ').map(str::to_owned).collect() }
    }

    #[test]
    fn runs_are_kept_by_program_and_arguments() {
        let folder = std::env::temp_dir().join(format!("millrace-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("program");
        fs::write(&program, "one").unwrap();
        let runs = folder.join("runs");
        let campaign = |start_s| Campaign { start_s, load: "0.10, 0.20, 0.30".into() };
        let first = RunCache::of(runs.clone(), &program, campaign(1_000)).unwrap();
        let ddos = run("traces/backbone/ddos", "bench ddos");
        assert_eq!(first.get(&ddos), None);
        first.put(&ddos, &json!({ "rows": [1, 2] })).unwrap();

        let later = RunCache::of(runs.clone(), &program, campaign(2_000)).unwrap();
        assert_eq!(later.get(&ddos), Some((campaign(1_000), json!({ "rows": [1, 2] }))));
        assert_eq!(later.get(&run("traces/backbone/ddos", "bench ddos --rounds 7")), None, "other arguments");
        assert_eq!(later.get(&run("traces/backbone/policer", "bench ddos")), None, "another run");
        // A repeated run replaces the earlier one.
        later.put(&ddos, &json!(3)).unwrap();
        assert_eq!(first.get(&ddos), Some((campaign(2_000), json!(3))));

        fs::write(&program, "two").unwrap();
        let other = RunCache::of(runs.clone(), &program, campaign(3_000)).unwrap();
        assert_eq!(other.get(&ddos), None, "another program");
        let path = later.path(&ddos);
        fs::write(&path, &fs::read(&path).unwrap()[..20]).unwrap();
        assert_eq!(later.get(&ddos), None, "cut short");

        later.put(&ddos, &json!(4)).unwrap();
        RunCache::clear(&runs).unwrap();
        RunCache::clear(&runs).unwrap();
        assert_eq!(RunCache::of(runs, &program, campaign(4_000)).unwrap().get(&ddos), None, "forgotten");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn times_are_told_as_calendars_have_them() {
        // By `date -u -d @N`.
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_200, "2024-03-01 00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
