//! A small HTTP/1.1 server on threads: metrics for Prometheus, and a live page.
//!
//! Everything is bounded: connections, the bytes of a request, the time to send it and to take the answer. Only GET and HEAD are served.
//! A request must name its host by address or as localhost, so that no page of another site can read the answer.

mod latest;
mod metrics;
mod request;
mod response;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use self::latest::Latest;

use self::latest::Next;
use self::response::{Kind, Refusal, Status};
use crate::error::DaemonError;

/// Time for a client to send its request, and to take its answer or an event of it.
const WITHIN: Duration = Duration::from_secs(5);
/// The most connections at one time.
const CLIENTS_MAX: usize = 32;
/// The most of them that may be streams of events, which last. Scrapes have the others.
const STREAMS_MAX: usize = 24;
/// Interval of signs of life to a stream while the run has no sample.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// Time for streams to end by themselves when the server stops.
const GOODBYE: Duration = Duration::from_millis(500);
/// Stack of a connection's thread in bytes.
const STACK_LEN: usize = 256 << 10;
/// The live page.
const PAGE: &str = include_str!("page.html");

/// Paths that a server serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// `/metrics`, the newest sample in the text format of Prometheus.
    pub metrics: bool,
    /// `/`, the live page, and `/events`, the samples that it shows.
    pub page: bool,
}

/// A server that listens.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    addr: SocketAddr,
}

impl HttpServer {
    /// Listens at an address. Port 0 takes a free port: see [`Self::addr`]. Nobody has to log in: whoever reaches the address can read the
    /// counters, so it should be one of this machine alone (127.0.0.1), or of a network that is trusted.
    ///
    /// # Errors
    /// Another program listens there; the address is not this machine's; the system refuses.
    pub fn bind(addr: SocketAddr) -> Result<Self, DaemonError> {
        let failed = |source| DaemonError::Listen { addr, source };
        let listener = TcpListener::bind(addr).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, addr })
    }

    /// The address that it listens at.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves on threads of its own until the result is dropped. Several servers may have the same samples.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn serve(self, routes: Routes, latest: Arc<Latest>) -> Result<Serving, DaemonError> {
        let failed = |source| DaemonError::Listen { addr: self.addr, source };
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        let shared = Arc::new(Shared {
            routes,
            latest,
            is_over: AtomicBool::new(false),
            clients: Mutex::default(),
            left: Condvar::new(),
        });
        let (server, listener) = (Arc::clone(&shared), self.listener);
        let serves = move || server.accept_all(&listener, &woken);
        let thread = thread::Builder::new().name("millrace-http".to_owned()).spawn(serves).map_err(failed)?;
        Ok(Serving { shared, addr: self.addr, wake, thread: Some(thread) })
    }
}

/// A server at work. It stops on drop: streams are told that the run has ended, and all connections are closed.
#[derive(Debug)]
pub struct Serving {
    shared: Arc<Shared>,
    addr: SocketAddr,
    /// Wakes the thread that accepts when it is closed.
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// The address that it listens at.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire in Shared::is_over.
        self.shared.is_over.store(true, Ordering::Release);
        // A server whose thread can't be woken looks again by itself.
        let _ = self.wake.shutdown(Shutdown::Both);
        self.shared.latest.wake();
        self.shared.say_goodbye();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

/// State that the threads of a server share.
#[derive(Debug)]
struct Shared {
    routes: Routes,
    latest: Arc<Latest>,
    is_over: AtomicBool,
    clients: Mutex<Clients>,
    /// A client has left.
    left: Condvar,
}

/// The connections now.
#[derive(Debug, Default)]
struct Clients {
    streams: BTreeMap<u64, Arc<TcpStream>>,
    /// The number of the next one.
    next: u64,
    /// Number of them that are streams of events.
    events: usize,
}

/// Place of a client, if it has one.
enum Place {
    Taken(u64),
    Full,
    Over,
}

impl Shared {
    fn is_over(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in Serving::drop.
        self.is_over.load(Ordering::Acquire)
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes connections until it is over, each on a thread.
    fn accept_all(&self, listener: &TcpListener, woken: &UnixStream) {
        thread::scope(|scope| {
            while !self.is_over() {
                let mut waiting = [PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
                // A signal ends the wait early, which does no harm.
                let _ = poll(&mut waiting, None);
                let client = match listener.accept() {
                    Ok((client, _)) => Arc::new(client),
                    Err(error) if is_of_one_client(&error) => continue,
                    // Files or memory are short. The client stays in the queue, so wait a little instead of asking at once.
                    Err(_) => {
                        let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                        let _ = poll(&mut [PollFd::new(woken, PollFlags::IN)], Some(&pause));
                        continue;
                    }
                };
                match self.enter(&client) {
                    Place::Over => break,
                    Place::Full => turn_away(&client),
                    Place::Taken(number) => {
                        let (stream, leaves) = (Arc::clone(&client), Leaves(self, number));
                        let converses = move || {
                            // Also without a thread, since the place is given back all the same.
                            let _leaves = leaves;
                            // A client that has gone hears nothing.
                            let _ = self.converse(&stream);
                        };
                        let thread = thread::Builder::new().name("millrace-http".to_owned()).stack_size(STACK_LEN);
                        if thread.spawn_scoped(scope, converses).is_err() {
                            turn_away(&client);
                        }
                    }
                }
            }
        });
    }

    /// Notes a client, if there is room.
    fn enter(&self, client: &Arc<TcpStream>) -> Place {
        let mut clients = self.clients();
        // Under the lock: a client that enters is either seen by `say_goodbye` or turned away here.
        if self.is_over() {
            return Place::Over;
        }
        if clients.streams.len() >= CLIENTS_MAX {
            return Place::Full;
        }
        let number = clients.next;
        clients.next += 1;
        clients.streams.insert(number, Arc::clone(client));
        Place::Taken(number)
    }

    /// Lets all clients go: at first those that have their answers, then the others.
    fn say_goodbye(&self) {
        let clients = self.clients();
        for stream in clients.streams.values() {
            // Nobody reads another request.
            let _ = stream.shutdown(Shutdown::Read);
        }
        let waited = self.left.wait_timeout_while(clients, GOODBYE, |clients| !clients.streams.is_empty());
        let (clients, _) = waited.unwrap_or_else(PoisonError::into_inner);
        for stream in clients.streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Answers one client.
    fn converse(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let request = request::read(stream, WITHIN);
        // What can't be read may have been a request for a head: its client stops at the end of the head all the same.
        let wants_body = request.as_ref().map_or(true, |request| request.wants_body);
        match request.and_then(|request| self.route(&request.path)) {
            Ok(Answer::Metrics(text)) => {
                response::whole(stream, Status::Fine, Kind::Metrics, &text, wants_body, WITHIN)?;
            }
            Ok(Answer::Page) => response::page(stream, PAGE, wants_body, WITHIN)?,
            Ok(Answer::Events) if wants_body => self.stream(stream)?,
            Ok(Answer::Events) => response::begin(stream, Kind::Events, WITHIN)?,
            Err(refusal) => refusal.tell(stream, wants_body, WITHIN)?,
        }
        response::end(stream)
    }

    /// Finds the answer to a request for a path.
    fn route(&self, path: &str) -> Result<Answer, Refusal> {
        match path {
            "/metrics" if self.routes.metrics => match self.latest.sample() {
                Some(sample) => Ok(Answer::Metrics(metrics::encode(&sample.stats, sample.taken.elapsed()))),
                None => Err(Refusal::new(Status::Unavailable, "The run has only just begun: ask again in a second.")),
            },
            "/" if self.routes.page => Ok(Answer::Page),
            "/events" if self.routes.page => Ok(Answer::Events),
            _ => {
                let there = match self.routes {
                    Routes { metrics: true, page: true } => "this server has / and /metrics",
                    Routes { metrics: true, page: false } => "this server has /metrics",
                    Routes { metrics: false, page: true } => "this server has /",
                    Routes { metrics: false, page: false } => "this server has nothing",
                };
                Err(Refusal::new(Status::NotFound, format!("There is no such page: {there}.")))
            }
        }
    }

    /// Sends samples as they come: at first the totals of the last two minutes, then a sample each time that there is one.
    fn stream(&self, stream: &TcpStream) -> io::Result<()> {
        let Some(_ends) = self.begin_events() else {
            let why = format!("There are {STREAMS_MAX} viewers already: close another page and load this one again.");
            return Refusal::new(Status::Unavailable, why).tell(stream, true, WITHIN);
        };
        response::begin(stream, Kind::Events, WITHIN)?;
        let (number, history) = self.latest.history();
        let history = serde_json::to_string(&history).map_err(io::Error::other)?;
        response::write(stream, format!("retry: 2000\n\nevent: history\ndata: {history}\n\n").as_bytes(), WITHIN)?;
        // The newest of these is sent whole, too.
        let mut seen = number.saturating_sub(1);
        loop {
            match self.latest.next(seen, SIGN_OF_LIFE, || self.is_over()) {
                Next::Sample(number, sample) => {
                    seen = number;
                    response::write(stream, sample.event().as_bytes(), WITHIN)?;
                }
                Next::Nothing => response::write(stream, b": no sample yet\n\n", WITHIN)?,
                Next::Over => return response::write(stream, b"event: end\ndata: the run has ended\n\n", GOODBYE),
            }
        }
    }

    /// Counts another stream of events, if there is room.
    fn begin_events(&self) -> Option<EndsEvents<'_>> {
        let mut clients = self.clients();
        (clients.events < STREAMS_MAX).then(|| {
            clients.events += 1;
            EndsEvents(self)
        })
    }
}

/// The answer to a request.
enum Answer {
    Metrics(String),
    Page,
    Events,
}

/// Gives a client's place to others on drop.
struct Leaves<'a>(&'a Shared, u64);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.clients().streams.remove(&self.1);
        self.0.left.notify_all();
    }
}

/// Gives the place of a stream of events to others on drop.
struct EndsEvents<'a>(&'a Shared);

impl Drop for EndsEvents<'_> {
    fn drop(&mut self) {
        self.0.clients().events -= 1;
    }
}

/// True if accepting failed for a reason that is one client's, or none: others may wait behind it.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

/// Tells a client that there is no room, without waiting for it.
fn turn_away(client: &TcpStream) {
    // The answer fits the buffer of a new connection, so this doesn't wait. A client that sends meanwhile may miss the answer.
    let why = format!("There are {CLIENTS_MAX} connections already.");
    let _ = Refusal::new(Status::Unavailable, why).tell(client, true, Duration::from_millis(100));
    let _ = client.shutdown(Shutdown::Write);
}
