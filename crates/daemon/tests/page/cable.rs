//! A cable between a browser and a server, to be cut.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// Passes connections on to a server until it is cut.
pub(crate) struct Cable {
    addr: SocketAddr,
    is_cut: Arc<AtomicBool>,
    ends: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Cable {
    pub(crate) fn plug(addr: SocketAddr, server: SocketAddr) -> Self {
        let listener = TcpListener::bind(addr).expect("the port is free");
        let addr = listener.local_addr().expect("it listens");
        let (is_cut, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (over, all) = (Arc::clone(&is_cut), Arc::clone(&ends));
        let passes = move || {
            for client in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                // The server may be away.
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
                all.lock().expect("nobody panics").extend([copy(&client), copy(&server)]);
                for (mut from, mut to) in [(copy(&client), copy(&server)), (copy(&server), copy(&client))] {
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        };
        Self { addr, is_cut, ends, thread: Some(thread::spawn(passes)) }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn cut(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.is_cut.store(true, Ordering::SeqCst);
        // The thread waits for a connection.
        let _ = TcpStream::connect(self.addr);
        thread.join().expect("it doesn't panic");
        for end in self.ends.lock().expect("nobody panics").drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.cut();
    }
}

fn copy(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("there are descriptors")
}
