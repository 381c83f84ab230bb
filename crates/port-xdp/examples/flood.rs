//! Sends UDP packets out of an interface as fast as one core of the kernel can, which is faster than any program with a socket: a source
//! for measurements. The XDP program at the other end of a veth pair receives them as from a driver.
//!
//! ```text
//! cargo run --release -p millrace-port-xdp --example flood -- veth0 [--seconds N] [--flows N] [--len BYTES]
//! ```
//!
//! A small program gives each packet the source port of one of the flows, at random, and redirects it to the interface. The kernel runs it
//! by bpf(2) in a loop over live packets (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18).

use std::ffi::{CString, c_int, c_long};
use std::io::{self, Write};
use std::time::{Duration, Instant};

const PROG_LOAD: c_int = 5;
const PROG_TEST_RUN: c_int = 10;
const LIVE_FRAMES: u32 = 1 << 1;
/// Source port of the first flow.
const PORT: u16 = 1024;
/// Packets of a system call, many because of the wait at its end (RCU).
const REPEAT: u32 = 1 << 19;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut interface, mut seconds, mut flows, mut len) = (None, 5, 64_u16, 60_usize);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number =
            || arguments.next().ok_or("the option needs a number")?.parse::<u64>().map_err(|_| "no number");
        match argument.as_str() {
            "--seconds" => seconds = number()?,
            "--flows" => flows = number()?.clamp(1, 60_000) as u16,
            "--len" => len = number()?.clamp(60, 1500) as usize,
            name => interface = Some(CString::new(name)?),
        }
    }
    let interface = interface.ok_or("name an interface")?;
    // SAFETY: the name is a C string.
    let index = unsafe { libc::if_nametoindex(interface.as_ptr()) };
    if index == 0 {
        return Err(format!("{}: {}", interface.to_string_lossy(), io::Error::last_os_error()).into());
    }
    let program = load(index, flows)?;
    let (start, mut sent, mut took) = (Instant::now(), 0_u64, Duration::ZERO);
    let packet = packet(len);
    while start.elapsed() < Duration::from_secs(seconds) {
        took += send(program, &packet)?;
        sent += u64::from(REPEAT);
    }
    let took = took.as_secs_f64();
    writeln!(io::stdout(), "{sent} sent in {took:.3} s, {:.2} million a second", sent as f64 / took / 1e6)?;
    Ok(())
}

/// A UDP packet, without a checksum.
fn packet(len: usize) -> Vec<u8> {
    let mut frame = vec![0_u8; len];
    frame[..15].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]);
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 9, 0, 1, 10, 9, 0, 2]);
    frame[34..36].copy_from_slice(&PORT.to_be_bytes());
    frame[36..38].copy_from_slice(&9_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&((len - 34) as u16).to_be_bytes());
    let sum: u32 = frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Loads the program: source port = `PORT` + random number % `flows`; `bpf_redirect(index, 0)`.
fn load(index: u32, flows: u16) -> io::Result<u32> {
    let instruction = |code: u8, registers: u8, offset: u8, value: u32| {
        let [a, b, c, d] = value.to_ne_bytes();
        [code, registers, offset, 0, a, b, c, d]
    };
    // Registers are written as source and destination, a digit each.
    let instructions = [
        instruction(0xbf, 0x16, 0, 0),                // r6 = r1, the packet's context
        instruction(0x85, 0, 0, 7),                   // r0 = bpf_get_prandom_u32()
        instruction(0x97, 0x00, 0, u32::from(flows)), // r0 %= flows
        instruction(0x07, 0x00, 0, u32::from(PORT)),  // r0 += PORT
        instruction(0xdc, 0x00, 0, 16),               // r0 in network byte order
        instruction(0x61, 0x62, 0, 0),                // r2 = begin of the packet
        instruction(0x61, 0x63, 4, 0),                // r3 = its end
        instruction(0xbf, 0x24, 0, 0),                // r4 = r2
        instruction(0x07, 0x04, 0, 36),               // r4 += 36
        instruction(0x2d, 0x34, 1, 0),                // skip the next one if r4 > r3
        instruction(0x6b, 0x02, 34, 0),               // source port = r0
        instruction(0xb7, 0x01, 0, index),            // r1 = index
        instruction(0xb7, 0x02, 0, 0),                // r2 = 0
        instruction(0x85, 0, 0, 23),                  // r0 = bpf_redirect(r1, r2)
        instruction(0x95, 0, 0, 0),                   // return r0
    ]
    .concat();
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        rest: [u32; 8],
    }
    let mut attributes = Attributes {
        kind: 6,
        count: (instructions.len() / 8) as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        rest: [0; 8],
    };
    call(PROG_LOAD, &mut attributes).map(|file| file as u32)
}

/// Runs the program on many copies of a packet. Returns how long the loop took.
fn send(program: u32, frame: &[u8]) -> io::Result<Duration> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        action: u32,
        frame_len: u32,
        out_len: u32,
        frame: u64,
        out: u64,
        repeat: u32,
        duration: u32,
        context: [u64; 3],
        flags: u32,
        cpu: u32,
        batch: u32,
        padding: u32,
    }
    let mut attributes = Attributes {
        program,
        action: 0,
        frame_len: frame.len() as u32,
        out_len: 0,
        frame: frame.as_ptr() as u64,
        out: 0,
        repeat: REPEAT,
        duration: 0,
        context: [0; 3],
        flags: LIVE_FRAMES,
        cpu: 0,
        batch: 64,
        padding: 0,
    };
    call(PROG_TEST_RUN, &mut attributes)?;
    // The kernel tells the mean, in nanoseconds.
    Ok(Duration::from_nanos(u64::from(attributes.duration) * u64::from(REPEAT)))
}

fn call<T>(command: c_int, attributes: &mut T) -> io::Result<c_long> {
    // SAFETY: the attributes are a prefix of `union bpf_attr`, of the length given, and their pointers lead to memory of the lengths beside
    // them.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, c_long::from(command), std::ptr::from_mut(attributes), size_of::<T>() as c_long)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
