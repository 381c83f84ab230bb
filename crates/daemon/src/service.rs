//! Notification of the service manager: the protocol of sd_notify(3).

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::DaemonError;

/// Time for the service manager to take a message.
const WITHIN: Duration = Duration::from_secs(5);

/// Tells the service manager how the run is. Does nothing in a process that no service manager has started.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<(PathBuf, UnixDatagram)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Connects to the socket that the environment names in NOTIFY_SOCKET, and reads WATCHDOG_USEC and WATCHDOG_PID.
    ///
    /// # Errors
    /// A variable has no meaning, or nobody listens at the socket.
    pub fn from_env() -> Result<Self, DaemonError> {
        Self::from(|name| env::var_os(name).filter(|value| !value.is_empty()), std::process::id())
    }

    /// The same with other variables and another number of the process.
    fn from(variable: impl Fn(&'static str) -> Option<OsString>, process: u32) -> Result<Self, DaemonError> {
        let Some(name) = variable("NOTIFY_SOCKET") else { return Ok(Self::default()) };
        let number = |name: &'static str| {
            let value = variable(name)?.to_string_lossy().into_owned();
            let parsed = value.parse::<u64>();
            Some(parsed.map_err(|_| DaemonError::Environment { name, value, what: "no number" }))
        };
        let micros = number("WATCHDOG_USEC").transpose()?.filter(|micros| *micros > 0);
        let watched = number("WATCHDOG_PID").transpose()?.is_none_or(|pid| pid == u64::from(process));
        Ok(Self {
            socket: Some(connect(&name)?),
            watchdog: micros.filter(|_| watched).map(|micros| Duration::from_micros(micros / 2)),
        })
    }

    /// The run has begun, or a reload is over. `status` is a line for people.
    ///
    /// # Errors
    /// The service manager doesn't take the message.
    pub fn ready(&self, status: &str) -> Result<(), DaemonError> {
        self.send(&format!("READY=1\nSTATUS={}", line(status)))
    }

    /// What the run is doing, in a line for people.
    ///
    /// # Errors
    /// The service manager doesn't take the message.
    pub fn status(&self, text: &str) -> Result<(), DaemonError> {
        self.send(&format!("STATUS={}", line(text)))
    }

    /// A reload begins. [`ready`](Self::ready) must follow, also after a reload that failed.
    ///
    /// # Errors
    /// The service manager doesn't take the message.
    pub fn reloading(&self) -> Result<(), DaemonError> {
        // The service manager takes READY=1 for this reload only if it is later than this time.
        let now = clock_gettime(ClockId::Monotonic);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000))
    }

    /// The run begins to end.
    ///
    /// # Errors
    /// The service manager doesn't take the message.
    pub fn stopping(&self) -> Result<(), DaemonError> {
        self.send("STOPPING=1")
    }

    /// The run works. To be sent once in each [`watchdog_interval`](Self::watchdog_interval), if there is one.
    ///
    /// # Errors
    /// The service manager doesn't take the message.
    pub fn alive(&self) -> Result<(), DaemonError> {
        self.send("WATCHDOG=1")
    }

    /// The interval at which to send [`alive`](Self::alive): half the time after which the service manager takes the run for hung. None if
    /// nobody watches this process.
    #[must_use]
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends a message of lines `NAME=VALUE`.
    fn send(&self, message: &str) -> Result<(), DaemonError> {
        let Some((path, socket)) = &self.socket else { return Ok(()) };
        let failed =
            |source| DaemonError::Io { path: path.clone(), action: "the service manager can't be told", source };
        loop {
            match socket.send(message.as_bytes()) {
                // A datagram goes as a whole.
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// Connects to a socket at a path, or in the abstract namespace if the name begins with `@`.
fn connect(name: &OsStr) -> Result<(PathBuf, UnixDatagram), DaemonError> {
    let path = PathBuf::from(name);
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        [b'/', ..] => SocketAddr::from_pathname(&path),
        _ => {
            let value = name.to_string_lossy().into_owned();
            let what = "neither an absolute path nor an abstract Unix socket";
            return Err(DaemonError::Environment { name: "NOTIFY_SOCKET", value, what });
        }
    };
    let connected = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A service manager that hangs must not hang the run.
        socket.set_write_timeout(Some(WITHIN))?;
        Ok(socket)
    });
    match connected {
        Ok(socket) => Ok((path, socket)),
        Err(source) => Err(DaemonError::Io { path, action: "the service manager can't be reached", source }),
    }
}

/// The text as one line: a line break would begin another variable.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service manager that listens at a path.
    struct Manager {
        folder: tempfile::TempDir,
        socket: UnixDatagram,
    }

    impl Manager {
        fn listens() -> Self {
            let folder = tempfile::tempdir().expect("there is room");
            let socket = UnixDatagram::bind(folder.path().join("notify")).expect("nobody is there");
            Self { folder, socket }
        }

        /// A notifier of process 7 with these variables and the socket's.
        fn notifier(&self, variables: &[(&str, &str)]) -> Result<Notifier, DaemonError> {
            let socket = self.folder.path().join("notify").into_os_string();
            let find = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into());
            Notifier::from(|name| if name == "NOTIFY_SOCKET" { Some(socket.clone()) } else { find(name) }, 7)
        }

        fn heard(&self) -> String {
            take(&self.socket)
        }
    }

    /// The next message.
    fn take(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        // Nothing is waited for: a sent datagram is there.
        socket.set_nonblocking(true).expect("it is open");
        let len = socket.recv(&mut bytes).expect("a message was sent");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    #[test]
    fn messages_come_as_the_protocol_wants() {
        let manager = Manager::listens();
        let notifier = manager.notifier(&[]).expect("it listens");
        notifier.ready("nat on 2 cores").expect("it listens");
        assert_eq!(manager.heard(), "READY=1\nSTATUS=nat on 2 cores");
        notifier.status("a\nSTOPPING=1\r\nb").expect("it listens");
        assert_eq!(manager.heard(), "STATUS=a STOPPING=1  b");
        notifier.stopping().expect("it listens");
        assert_eq!(manager.heard(), "STOPPING=1");
        notifier.alive().expect("it listens");
        assert_eq!(manager.heard(), "WATCHDOG=1");
    }

    #[test]
    fn a_reload_tells_the_time_of_the_monotonic_clock() {
        let manager = Manager::listens();
        let notifier = manager.notifier(&[]).expect("it listens");
        let now = || {
            let now = clock_gettime(ClockId::Monotonic);
            now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
        };
        let before = now();
        notifier.reloading().expect("it listens");
        let after = now();
        let heard = manager.heard();
        let micros = heard.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("in this order").parse::<i64>();
        assert!((before..=after).contains(&micros.expect("a number")), "{heard}");
    }

    #[test]
    fn an_abstract_socket_is_reached() {
        let name = format!("millrace-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("it is short");
        let socket = UnixDatagram::bind_addr(&address).expect("nobody is there");
        let notifier = Notifier::from(|key| (key == "NOTIFY_SOCKET").then(|| format!("@{name}").into()), 7);
        notifier.expect("it listens").ready("").expect("it listens");
        assert_eq!(take(&socket), "READY=1\nSTATUS=");
    }

    #[test]
    fn the_watchdog_is_fed_twice_in_its_time() {
        let manager = Manager::listens();
        let interval =
            |variables: &[(&str, &str)]| manager.notifier(variables).expect("it listens").watchdog_interval();
        assert_eq!(interval(&[("WATCHDOG_USEC", "30000000")]), Some(Duration::from_secs(15)));
        assert_eq!(interval(&[("WATCHDOG_USEC", "3000"), ("WATCHDOG_PID", "7")]), Some(Duration::from_micros(1500)));
        // Another process is watched; the watchdog is off; there is none.
        assert_eq!(interval(&[("WATCHDOG_USEC", "3000"), ("WATCHDOG_PID", "8")]), None);
        assert_eq!(interval(&[("WATCHDOG_USEC", "0")]), None);
        assert_eq!(interval(&[("WATCHDOG_PID", "7")]), None);
    }

    #[test]
    fn without_a_service_manager_nothing_happens() {
        let notifier = Notifier::from(|name| (name == "WATCHDOG_USEC").then(|| "3000".into()), 7).expect("no socket");
        assert_eq!(notifier.watchdog_interval(), None);
        for told in [notifier.ready("a"), notifier.status("a"), notifier.reloading(), notifier.alive()] {
            told.expect("nobody is there to fail");
        }
    }

    #[test]
    fn what_has_no_meaning_is_named() {
        let socket = |value: &'static str| {
            let error = Notifier::from(|name| (name == "NOTIFY_SOCKET").then(|| value.into()), 7);
            error.expect_err("nobody is there").to_string()
        };
        assert!(socket("vsock:2:1").starts_with("NOTIFY_SOCKET=vsock:2:1: this is neither an absolute path nor"));
        assert!(socket("/nowhere/notify").starts_with("/nowhere/notify: the service manager can't be reached: "));
        let manager = Manager::listens();
        for name in ["WATCHDOG_USEC", "WATCHDOG_PID"] {
            let error = manager.notifier(&[(name, "soon")]).expect_err("it is no number").to_string();
            assert!(error.starts_with(&format!("{name}=soon: this is no number")), "{error}");
        }
        // A service manager that has gone.
        let notifier = manager.notifier(&[]).expect("it listens");
        drop(manager);
        let error = notifier.alive().expect_err("nobody listens").to_string();
        assert!(error.contains("notify: the service manager can't be told: "), "{error}");
    }
}
