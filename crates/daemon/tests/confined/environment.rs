//! The service manager, as a process finds it in its environment.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use millrace_daemon::Notifier;

use crate::{Case, process, text};

pub(crate) const CASES: &[Case] =
    &[("the environment names the service manager", manager), ("nobody is to be told", nobody)];

/// A process that is a service.
pub(crate) const HELPERS: &[Case] = &[(TELLS, tell)];

const TELLS: &str = "tells the service manager";

fn manager() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("nobody is there");
    let output = process(TELLS).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "4000000").output();
    let output = output.expect("this program can be started");
    assert!(output.status.success(), "{}", text(&output));
    let mut bytes = [0; 256];
    let mut heard = || socket.recv(&mut bytes).map(|len| String::from_utf8_lossy(&bytes[..len]).into_owned());
    socket.set_nonblocking(true).expect("it is open");
    assert_eq!(heard().expect("it was told"), "READY=1\nSTATUS=2s");
    assert_eq!(heard().expect("it was told"), "STOPPING=1");
    heard().expect_err("there is no more");
}

fn tell() {
    let notifier = Notifier::from_env().expect("who listens is there");
    let interval = notifier.watchdog_interval();
    notifier.ready(&format!("{:?}", interval.expect("it is watched"))).expect("it listens");
    notifier.stopping().expect("it listens");
}

fn nobody() {
    let notifier = Notifier::from_env().expect("there is nothing to fail");
    assert_eq!(notifier.watchdog_interval(), None::<Duration>);
    notifier.alive().expect("nobody has to hear it");
}
