//! `millrace store`: a payload server.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use split::{PAYLOAD_MAX, StoreServer};

use super::failure::Failed;
use super::signals;
use crate::print::number::{self, bytes, count, counted};
use crate::print::output::{print, print_json, remark};

/// Serve memory for payloads that `millrace split` parks
///
/// Listens for datagrams of UDP until Ctrl-C. A split asks for as many slots of 2 KiB as it needs, and says which slot each payload goes to. The
/// memory of a split that says nothing for 30 seconds may go to another. The server believes whoever knows a split's number, and payloads
/// are not encrypted: put it on a network of its own.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace store --listen 127.0.0.1:7000 --memory 1G
  sudo millrace split --interface wire0 --function-port nf0 --store udp://127.0.0.1:7000")]
pub(super) struct Args {
    /// Address, or name of this host, and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listened)]
    listen: SocketAddr,
    /// Memory for payloads in bytes, such as 64M or 1G
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = number::parse_positive)]
    memory: u64,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = number::parse_positive)]
    seconds: Option<u64>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

fn listened(text: &str) -> Result<SocketAddr, String> {
    let write = "write ADDRESS:PORT, such as 127.0.0.1:7000 or [::1]:7000";
    let mut found = text.to_socket_addrs().map_err(|error| format!("{error}; {write}"))?;
    found.next().ok_or_else(|| format!("it has no address; {write}"))
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    if args.memory < PAYLOAD_MAX as u64 {
        return Err(Failed::usage(format_args!("--memory: one payload takes {PAYLOAD_MAX} bytes; take at least that")));
    }
    let listen = |error| Failed::input(format_args!("{}: can't be listened on: {error}", args.listen));
    let mut server = StoreServer::bind(args.listen, args.memory).map_err(listen)?;
    let (address, room) = (server.address().map_err(listen)?, server.slots_free());
    let stop = Arc::new(AtomicBool::new(false));
    signals::stop_on_interrupt(&stop);
    signals::stop_on_hangup(&stop);
    remark(&format!("listening on {address}, with room for {}\n", counted(room.into(), "payload", "payloads")));
    let end = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let is_over = || stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
    let served = server.serve(is_over).map_err(listen)?;
    if args.json {
        print_json(&json!({
            "address": address.to_string(), "room": room, "sessions": served.sessions, "put": served.put, "put_bytes": served.bytes,
            "handed_out": served.handed_out, "empty": served.empty, "unknown": served.unknown, "full": served.full,
            "malformed": served.malformed, "unsent": served.unsent,
        }))?;
        return Ok(());
    }
    let mut out = format!(
        "{address}: {} parked ({}), {} handed out\n",
        counted(served.put, "payload", "payloads"),
        bytes(served.bytes),
        count(served.handed_out)
    );
    let rest = [
        ("asked for and not there", served.empty),
        ("messages of unknown splits", served.unknown),
        ("splits without room", served.full),
        ("malformed datagrams", served.malformed),
        ("answers that could not be sent", served.unsent),
    ];
    rest.iter().filter(|(_, number)| *number > 0).for_each(|(what, number)| {
        out += &format!("  {what}: {}\n", count(*number));
    });
    print(&out)?;
    Ok(())
}
