//! Writes hostile traffic to a capture:
//! `cargo run -p millrace-testkit --features checks --example hostile -- ATTACK SIZE HONEST FILE`. Prints the number of packets.

use std::io::{self, Write};
use std::path::Path;

use millrace_testkit::hostile::{Attack, Hostile};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wrong = || {
        let names = Attack::ALL.map(Attack::name).join(", ");
        io::Error::other(format!("ATTACK ({names}) SIZE HONEST FILE are needed"))
    };
    let [attack, size, honest, file] = arguments.as_slice() else { return Err(wrong()) };
    let hostile = Hostile {
        attack: Attack::from_name(attack).ok_or_else(wrong)?,
        size: size.parse().map_err(|_| wrong())?,
        honest: honest.parse().map_err(|_| wrong())?,
        seed: 1,
    };
    let count = hostile.write(Path::new(file))?;
    writeln!(io::stdout(), "{count}")
}
