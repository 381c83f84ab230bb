//! What can go out doesn't wait for what may come: a pipe that stops in the middle of a capture.

use std::io::{Read, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::folder::{ENGINES, Folder};

/// Long enough for any machine; nothing is held to it but what never comes.
const NEVER: Duration = Duration::from_secs(60);

fn spawn(folder: &Folder, line: &str) -> Child {
    let mut command = folder.command(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// What comes out, piece by piece as it comes.
fn pieces(mut output: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut piece = [0; 64 << 10];
        while let Ok(count @ 1..) = output.read(&mut piece) {
            if sender.send(piece[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Reads on until there are `bytes` bytes.
fn read_to(pieces: &Receiver<Vec<u8>>, out: &mut Vec<u8>, bytes: usize, what: &str) {
    while out.len() < bytes {
        let piece = pieces.recv_timeout(NEVER);
        out.extend(piece.unwrap_or_else(|_| panic!("{what}: {} of {bytes} bytes came out", out.len())));
    }
}

/// The bytes of a capture's header, and where each record ends.
pub(crate) fn ends(capture: &[u8]) -> Vec<usize> {
    let mut ends = vec![24];
    while let Some(len) = capture.get(ends[ends.len() - 1] + 8..).and_then(|rest| rest.first_chunk::<4>()) {
        ends.push(ends[ends.len() - 1] + 16 + u32::from_le_bytes(*len) as usize);
    }
    ends
}

#[test]
fn what_came_goes_out_while_the_input_pauses() {
    let folder = Folder::empty();
    folder.stdout("synth --profile university-dc --packets 6k --flows 200 --seed 5 --out in.pcap");
    let capture = folder.bytes("in.pcap");
    let ends = ends(&capture);
    for engine in ENGINES {
        let mut child = spawn(&folder, &format!("run ddos --set threshold=1000000 --in - --out - {engine}"));
        let (mut input, output) = (child.stdin.take().unwrap(), pieces(child.stdout.take().unwrap()));
        let mut out = Vec::new();
        // A few packets, half of all, one packet, and the half of one that has to wait for its rest.
        let (few, half, one) = (ends[7], ends[3_000], ends[3_001]);
        let mut written = 0;
        for (upto, whole) in [(few, few), (half, half), (one, one), (one + 30, one)] {
            input.write_all(&capture[written..upto]).unwrap();
            written = upto;
            read_to(&output, &mut out, whole, engine);
        }
        input.write_all(&capture[written..]).unwrap();
        drop(input);
        read_to(&output, &mut out, capture.len(), engine);
        assert!(child.wait().unwrap().success(), "{engine}");
        assert!(out == capture, "{engine}: another output");
    }
}
