//! Runs that are kept as they come, so that a measurement that was cut goes on where it was.
//!
//! A run is told by the program's own bytes and its arguments. So another commit that leaves the program as it is keeps what was
//! measured, and a change that is not committed yet doesn't.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Run;

/// What was going on when runs were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// When it began, in seconds since 1970.
    pub(super) start_s: u64,
    /// Load averages then, as the system tells them.
    pub(super) load: String,
}

/// Where runs of one program are kept.
pub(super) struct Kept {
    folder: PathBuf,
    /// A digest of the program.
    program: String,
    session: Session,
}

impl Kept {
    /// Runs in this folder, as far as they are of this program; new ones are of this session.
    pub(super) fn of(folder: PathBuf, program: &Path, session: Session) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
        let bytes = fs::read(program).with_context(|| format!("{} can't be read", program.display()))?;
        Ok(Self { folder, program: digest(&bytes), session })
    }

    /// The session that new runs are of.
    pub(super) const fn session(&self) -> &Session {
        &self.session
    }

    /// Forgets all runs in the folder.
    pub(super) fn forget(folder: &Path) -> Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("{} can't be removed", folder.display()))?;
        }
        Ok(())
    }

    /// What the run printed and when, if it is kept.
    pub(super) fn get(&self, run: &Run) -> Option<(Session, Value)> {
        // What can't be read is measured again.
        let mut kept: Value = serde_json::from_slice(&fs::read(self.path(run)).ok()?).ok()?;
        if kept["program"] != self.program || kept["arguments"] != json!(run.arguments) {
            return None;
        }
        let load = kept["load_averages"].as_str()?.to_owned();
        Some((Session { start_s: kept["session_start_s"].as_u64()?, load }, kept["printed"].take()))
    }

    /// Keeps what the run printed, whole or not at all.
    pub(super) fn keep(&self, run: &Run, printed: &Value) -> Result<()> {
        let kept = json!({
            "program": self.program, "arguments": run.arguments, "session_start_s": self.session.start_s,
            "load_averages": self.session.load, "printed": printed,
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

/// FNV-1a, which tells builds of a program apart well enough.
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
        let session = |start_s| Session { start_s, load: "0.10, 0.20, 0.30".into() };
        let first = Kept::of(runs.clone(), &program, session(1_000)).unwrap();
        let ddos = run("traces/backbone/ddos", "bench ddos");
        assert_eq!(first.get(&ddos), None);
        first.keep(&ddos, &json!({ "rows": [1, 2] })).unwrap();

        let later = Kept::of(runs.clone(), &program, session(2_000)).unwrap();
        assert_eq!(later.get(&ddos), Some((session(1_000), json!({ "rows": [1, 2] }))));
        assert_eq!(later.get(&run("traces/backbone/ddos", "bench ddos --rounds 7")), None, "other arguments");
        assert_eq!(later.get(&run("traces/backbone/policer", "bench ddos")), None, "another run");
        // A run that is made again takes the place of the other.
        later.keep(&ddos, &json!(3)).unwrap();
        assert_eq!(first.get(&ddos), Some((session(2_000), json!(3))));

        fs::write(&program, "two").unwrap();
        let other = Kept::of(runs.clone(), &program, session(3_000)).unwrap();
        assert_eq!(other.get(&ddos), None, "another program");
        let path = later.path(&ddos);
        fs::write(&path, &fs::read(&path).unwrap()[..20]).unwrap();
        assert_eq!(later.get(&ddos), None, "cut short");

        later.keep(&ddos, &json!(4)).unwrap();
        Kept::forget(&runs).unwrap();
        Kept::forget(&runs).unwrap();
        assert_eq!(Kept::of(runs, &program, session(4_000)).unwrap().get(&ddos), None, "forgotten");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn times_are_told_as_calendars_have_them() {
        // By `date -u -d @N`.
        for (seconds, told) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_200, "2024-03-01 00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), told);
        }
    }
}
