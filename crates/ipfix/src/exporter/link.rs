//! The way to a collector: a UDP socket, a TCP connection, or a file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Destination, ExporterOptions};
use crate::error::IpfixError;

#[derive(Debug)]
pub(super) enum Link {
    Udp { socket: UdpSocket, collector: SocketAddr },
    Tcp(Tcp),
    File { out: File, path: PathBuf, len: u64 },
}

/// A connection that is made anew when it breaks.
#[derive(Debug)]
pub(super) struct Tcp {
    collector: SocketAddr,
    stream: Option<TcpStream>,
    timeout: Duration,
    /// Least and greatest time from one attempt to the next, and the present one.
    retry: [Duration; 2],
    pause: Duration,
    /// The next attempt isn't made before this.
    not_before: Option<Instant>,
}

/// Fate of a message.
#[derive(Debug)]
pub(super) enum Sent {
    Yes,
    /// The message is on its way. Nobody listened when the one before arrived.
    PreviousLost(io::Error),
    No(io::Error),
}

/// State of the way to the collector: messages can be sent or not.
#[derive(Debug)]
pub(super) enum Readiness {
    Ready,
    /// A new connection: a new transport session begins.
    Connected,
    /// Not for now. With the error of an attempt that was just made.
    Away(Option<io::Error>),
}

impl Link {
    pub(super) fn open(destination: &Destination, options: &ExporterOptions) -> Result<Self, IpfixError> {
        match destination {
            Destination::Udp(collector) => {
                let collector = *collector;
                let any = match collector {
                    SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                    SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                };
                let connected = UdpSocket::bind(any).and_then(|socket| socket.connect(collector).map(|()| socket));
                let socket = connected.map_err(|source| IpfixError::Socket { collector, source })?;
                Ok(Self::Udp { socket, collector })
            }
            Destination::Tcp(collector) => Ok(Self::Tcp(Tcp {
                collector: *collector,
                stream: None,
                timeout: options.timeout,
                retry: options.retry,
                pause: options.retry[0],
                not_before: None,
            })),
            Destination::File(path) => {
                let file = File::create(path).map_err(|source| IpfixError::File { path: path.clone(), source })?;
                Ok(Self::File { out: file, path: path.clone(), len: 0 })
            }
        }
    }

    /// True if templates have to be sent again.
    pub(super) const fn forgets_templates(&self) -> bool {
        matches!(self, Self::Udp { .. })
    }

    /// True if the time of messages is the time of their flows, so that the same packets make the same file.
    pub(super) const fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Connects if that is needed and due. `is_last` tries once more at once.
    pub(super) fn ready(&mut self, now: Instant, is_last: bool) -> Readiness {
        match self {
            Self::Udp { .. } | Self::File { .. } => Readiness::Ready,
            Self::Tcp(tcp) => tcp.ready(now, is_last),
        }
    }

    /// Sends a message, whole or not at all.
    pub(super) fn send(&mut self, message: &[u8]) -> Sent {
        match self {
            Self::Udp { socket, .. } => match socket.send(message) {
                Ok(_) => Sent::Yes,
                // The kernel tells of an earlier message, and has not sent this one.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => match socket.send(message) {
                    Ok(_) => Sent::PreviousLost(error),
                    Err(error) => Sent::No(error),
                },
                Err(error) => Sent::No(error),
            },
            Self::Tcp(tcp) => match tcp.send(message) {
                Ok(()) => Sent::Yes,
                Err(error) => {
                    // The collector may have a part of the message, and can't find the next one behind it.
                    tcp.stream = None;
                    Sent::No(error)
                }
            },
            Self::File { out, len, .. } => match out.write_all(message) {
                Ok(()) => {
                    *len += message.len() as u64;
                    Sent::Yes
                }
                Err(error) => {
                    // Without the part that was written, readers find the next message.
                    let _ = out.set_len(*len).and_then(|()| out.seek(SeekFrom::Start(*len)));
                    Sent::No(error)
                }
            },
        }
    }

    /// Its name in messages to the operator.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Udp { collector, .. } => format!("IPFIX collector {collector} (UDP)"),
            Self::Tcp(Tcp { collector, .. }) => format!("IPFIX collector {collector} (TCP)"),
            Self::File { path, .. } => format!("IPFIX file {}", path.display()),
        }
    }
}

impl Tcp {
    fn ready(&mut self, now: Instant, is_last: bool) -> Readiness {
        if let Some(stream) = &mut self.stream {
            match has_ended(stream) {
                Ok(()) => return Readiness::Ready,
                Err(error) => {
                    self.stream = None;
                    self.not_before = Some(now + self.pause);
                    if !is_last {
                        return Readiness::Away(Some(error));
                    }
                }
            }
        }
        if !is_last && self.not_before.is_some_and(|then| now < then) {
            return Readiness::Away(None);
        }
        match self.connect() {
            Ok(stream) => {
                self.stream = Some(stream);
                self.pause = self.retry[0];
                Readiness::Connected
            }
            Err(error) => {
                self.not_before = Some(now + self.pause);
                self.pause = (self.pause * 2).min(self.retry[1]);
                Readiness::Away(Some(error))
            }
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.collector, self.timeout)?;
        stream.set_write_timeout(Some(self.timeout))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        has_ended(stream)?;
        let end = Instant::now() + self.timeout;
        let mut rest = message;
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // Each write may take as long as the timeout, however few bytes the collector takes.
            if !rest.is_empty() && Instant::now() >= end {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the collector takes no more"));
            }
        }
        Ok(())
    }
}

/// An error if the collector has closed the connection. The first write after that would succeed, and its records be lost. Collectors send
/// nothing, and what comes is thrown away.
fn has_ended(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let read = stream.read(&mut [0; 256]);
    stream.set_nonblocking(false)?;
    match read {
        Ok(0) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the collector has closed the connection")),
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
        Err(error) => Err(error),
    }
}
