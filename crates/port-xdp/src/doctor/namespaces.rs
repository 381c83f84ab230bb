//! Network namespaces that have a name (`ip netns`), to look at the other end of a virtual wire.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::thread;

use interface::netlink;

const GET_NUMBER: u16 = 90;
/// Attributes: a namespace's number, and a descriptor of it.
const NUMBER: u16 = 1;
const FILE: u16 = 3;

/// Calls `f` in the named network namespace that this one knows by a number, and returns the name with the outcome. `None` if no name leads
/// there, or this user may not enter it.
pub(super) fn within<T: Send>(number: i32, f: impl Fn() -> Option<T> + Sync) -> Option<(String, T)> {
    for entry in fs::read_dir("/run/netns").ok()?.flatten() {
        let Ok(file) = File::open(entry.path()) else { continue };
        if number_of(&file) == Some(number) {
            return Some((entry.file_name().to_str()?.to_owned(), enter(&file, &f)?));
        }
    }
    None
}

/// The number that this thread's namespace has for another.
fn number_of(file: &File) -> Option<i32> {
    // `struct rtgenmsg`, padded, then one attribute: length, kind, value.
    let mut body = vec![0_u8; 4];
    body.extend(8_u16.to_ne_bytes());
    body.extend(FILE.to_ne_bytes());
    body.extend(file.as_raw_fd().to_ne_bytes());
    let answer = netlink::ask(libc::NETLINK_ROUTE, GET_NUMBER, &body).ok()?;
    let number = netlink::attributes(answer.get(4..)?).find(|(kind, _)| *kind == NUMBER)?.1;
    netlink::word(number, 0).map(|number| number as i32).filter(|number| *number >= 0)
}

/// Calls `f` on a thread that has entered the namespace, and ends there.
fn enter<T: Send>(file: &File, f: &(impl Fn() -> Option<T> + Sync)) -> Option<T> {
    let inside = || {
        // SAFETY: no memory is involved. Only this thread changes its namespace.
        let entered = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
        if entered < 0 { None } else { f() }
    };
    thread::scope(|scope| scope.spawn(inside).join().ok().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_no_namespace_has_leads_nowhere() {
        assert_eq!(within(i32::MAX, || Some(())), None);
    }
}
