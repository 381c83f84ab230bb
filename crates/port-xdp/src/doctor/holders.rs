//! Which processes hold an XDP program: those with a descriptor of the program, or of its link to an interface.

use std::fs::{self, DirEntry};
use std::path::Path;

/// A process that holds a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) process: u32,
    pub(super) name: String,
    /// True if the program goes off its interface when the process ends.
    pub(super) has_link: bool,
}

/// The processes that hold the program with this number, of those that this user may look at.
pub(super) fn holders(program: u32) -> Vec<Holder> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| holder(&entry, program)).collect()
}

fn holder(entry: &DirEntry, program: u32) -> Option<Holder> {
    let process = entry.file_name().to_str()?.parse().ok()?;
    let path = entry.path();
    let held: Vec<bool> =
        fs::read_dir(path.join("fd")).ok()?.flatten().filter_map(|file| held(&path, &file, program)).collect();
    if held.is_empty() {
        return None;
    }
    let name = fs::read_to_string(path.join("comm")).unwrap_or_default().trim().to_owned();
    Some(Holder { process, name, has_link: held.contains(&true) })
}

/// Returns whether a descriptor is of the program's link; `None` if it isn't of the program at all.
fn held(process: &Path, file: &DirEntry, program: u32) -> Option<bool> {
    let target = fs::read_link(file.path()).ok()?;
    if !target.to_str()?.starts_with("anon_inode:bpf") {
        return None;
    }
    is_link(&fs::read_to_string(process.join("fdinfo").join(file.file_name())).ok()?, program)
}

/// The same, by what the kernel tells of the descriptor.
fn is_link(info: &str, program: u32) -> Option<bool> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    let number: u32 = field("prog_id")?.parse().ok()?;
    (number == program).then(|| field("link_type") == Some("xdp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_links_are_told_apart() {
        let program = "pos:\t0\nflags:\t02000002\nprog_type:\t6\nprog_id:\t41\nrun_cnt:\t0\n";
        let link = "pos:\t0\nlink_type:\txdp\nlink_id:\t3\nprog_tag:\t04\nprog_id:\t41\nifindex:\t5\n";
        assert_eq!(is_link(program, 41), Some(false));
        assert_eq!(is_link(link, 41), Some(true));
        assert_eq!(is_link(link, 4), None);
        assert_eq!(is_link("map_type:\t17\nmap_id:\t41\n", 41), None);
    }
}
