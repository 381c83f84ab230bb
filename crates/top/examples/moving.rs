//! Shows a made-up run: `cargo run -p millrace-top --example moving`. It ends after two minutes.
#![allow(clippy::print_stdout)]

// The name that the crate has on a registry, which the made-up run uses.
extern crate daemon as millrace_daemon;

#[path = "../../daemon/examples/page/made_up.rs"]
mod made_up;

use std::error::Error;
use std::time::{Duration, Instant};

use made_up::MadeUp;
use millrace_top::{Closed, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let (start, mut run) = (Instant::now(), MadeUp::default());
    let source = move || match start.elapsed() {
        over if over > Duration::from_secs(120) => Err("two minutes are over"),
        elapsed => Ok(run.next(elapsed)),
    };
    match millrace_top::run(source, &Options::default())? {
        Closed::Quit => println!("the run goes on"),
        Closed::Ended(reason) => println!("the run has ended: {reason}"),
        Closed::Signal(signal) => println!("signal {signal}"),
    }
    Ok(())
}
