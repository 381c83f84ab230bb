//! The control socket: who may open it, what it reads, and that no client can stop it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use millrace_daemon::{ControlSocket, DaemonError, LINE_MAX, Reply, Request, ask};
use proptest::prelude::*;

/// Runs a socket whose run answers every request with its name, and `look`s at it from outside.
fn with_socket(look: impl FnOnce(&Path, &AtomicUsize)) {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("control.sock");
    let socket = ControlSocket::bind(&path).expect("nobody is there");
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            socket.serve(
                || is_over.load(Ordering::SeqCst),
                |request| {
                    answered.fetch_add(1, Ordering::SeqCst);
                    Reply::Done(format!("{request:?}"))
                },
            );
        });
        let _ends = Ends(&is_over);
        look(&path, &answered);
        drop(_ends);
        server.join().expect("it never panics");
    });
    drop(socket);
    assert!(!path.exists(), "the file goes with the socket");
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn every_request() -> [Request; 6] {
    [
        Request::Stats {},
        Request::Flows { filter: Some("src net 10.0.0.0/8".to_owned()), rows_max: 7 },
        Request::Flows { filter: None, rows_max: 0 },
        Request::Report {},
        Request::Reload { name: "fw.toml".to_owned(), text: "a = \"\u{1f600}\"\n\0".to_owned() },
        Request::Stop {},
    ]
}

#[test]
fn a_request_comes_as_it_was_sent() {
    with_socket(|path, _| {
        for request in every_request() {
            assert_eq!(ask(path, &request).expect("it answers"), Reply::Done(format!("{request:?}")));
        }
    });
}

#[test]
fn only_the_owner_may_ask() {
    with_socket(|path, _| {
        let mode = fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    });
}

/// A socket that listens is not taken away, a dead one is replaced, and a file is left alone.
#[test]
fn whoever_was_there_before() {
    with_socket(|path, _| {
        assert!(matches!(ControlSocket::bind(path), Err(DaemonError::InUse(_))));
        ask(path, &Request::Stats {}).expect("it still answers");
    });
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("dead.sock");
    drop(UnixListener::bind(&path).expect("nobody is there"));
    assert!(path.exists());
    assert!(matches!(ask(&path, &Request::Stats {}), Err(DaemonError::Nobody(_))));
    let first = ControlSocket::bind(&path).expect("who listened has ended");
    // A file that another has put in its place is not removed with the socket.
    fs::remove_file(&path).expect("it is there");
    fs::write(&path, "mine").expect("there is room");
    drop(first);
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "mine");
    assert!(matches!(ControlSocket::bind(&path), Err(DaemonError::NoSocket(_))));
    assert!(matches!(ask(&folder.path().join("none"), &Request::Stats {}), Err(DaemonError::Nobody(_))));
    assert!(matches!(ControlSocket::bind(&folder.path().join("no/folder")), Err(DaemonError::Io { .. })));
}

/// Writes bytes and returns what comes back.
fn raw(path: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    // The other end may stop reading.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn what_is_no_request_is_told_so() {
    with_socket(|path, answered| {
        for bytes in [
            &b""[..],
            b"\n",
            b"hello\n",
            b"{}\n",
            b"{\"ask\":\"nothing\"}\n",
            b"{\"ask\":\"stats\",\"more\":1}\n",
            b"{\"ask\":\"flows\"}\n",
            b"{\"ask\":\"flows\",\"rows_max\":-1}\n",
            b"\xff\xfe\n",
        ] {
            let answer = raw(path, bytes);
            assert!(answer.starts_with("{\"error\":\"this is no request: "), "{bytes:?}: {answer}");
        }
        let long = vec![b' '; LINE_MAX + 2];
        assert!(raw(path, &long).contains("longer than 32 MiB"));
        // Deep nesting ends in an error, not in a full stack.
        let deep = [vec![b'['; 1 << 20], b"\n".to_vec()].concat();
        assert!(raw(path, &deep).contains("no request"));
        // Clients that go at once, before and after they have asked.
        drop(UnixStream::connect(path).expect("it listens"));
        UnixStream::connect(path).expect("it listens").write_all(b"{\"ask\":\"stats\"}\n").expect("there is room");
        assert_eq!(ask(path, &Request::Stats {}).expect("it still answers"), Reply::Done("Stats".to_owned()));
        assert!(answered.load(Ordering::SeqCst) <= 2);
    });
}

#[test]
fn noise_never_stops_it() {
    with_socket(|path, _| {
        let good = every_request().map(|request| serde_json::to_vec(&request).expect("it is JSON"));
        let noise = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..300),
            // A request with some bytes changed, or cut off.
            (0..good.len(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(
                move |(which, at, byte, cuts)| {
                    let mut line = good[which].clone();
                    let at = at.index(line.len());
                    if cuts {
                        line.truncate(at)
                    } else {
                        line[at] = byte
                    }
                    line
                }
            ),
        ];
        let config = ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(noise in noise)| {
            let answer = raw(path, &noise);
            prop_assert!(serde_json::from_str::<Reply>(&answer).is_ok(), "{:?}", answer);
        });
        assert_eq!(ask(path, &Request::Stats {}).expect("it still answers"), Reply::Done("Stats".to_owned()));
    });
}
