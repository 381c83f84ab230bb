//! Serves the live page and the metrics of a run that is made up: `cargo run -p millrace-daemon --example page [ADDRESS]`.

#![allow(clippy::print_stdout)]

mod made_up;

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use made_up::MadeUp;
use millrace_daemon::{HttpServer, Latest, Routes};

fn main() -> Result<(), Box<dyn Error>> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let latest = Arc::new(Latest::new());
    let serving = HttpServer::bind(addr.parse()?)?.serve(Routes { metrics: true, page: true }, Arc::clone(&latest))?;
    println!("http://{}/ and http://{}/metrics; Ctrl-C ends this", serving.addr(), serving.addr());
    let start = Instant::now();
    let mut stats = MadeUp::default();
    loop {
        latest.set(stats.next(start.elapsed()));
        thread::sleep(Duration::from_secs(1));
    }
}
