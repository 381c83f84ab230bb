//! Remote calls and file services.

use crate::bytes::{Bytes, Found, Stop, Told, ensure, is_printable};
use crate::protocol::{AFP, DCE_RPC, ISCSI, NETBIOS, NFS, PORTMAP, SMB, SUN_RPC, THRIFT};

/// MS-SMB and MS-SMB2 behind the head of the session service (RFC 1002, section 4.3).
pub(super) fn smb(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(bytes.be24(1)? >= 32)?;
    ensure(matches!(bytes.u8(4)?, 0xfc..=0xff))?;
    bytes.has(5, b"SMB")?;
    Ok(SMB.certain())
}

/// A request for a session: two names of 32 letters from A to P.
pub(super) fn netbios_session(bytes: &Bytes<'_>) -> Told<Found> {
    ensure(bytes.u8(1)? <= 1)?;
    ensure((68..=600).contains(&bytes.be16(2)?))?;
    bytes.has(4, &[32])?;
    ensure(bytes.slice(5, 32)?.iter().all(|letter| matches!(letter, b'A'..=b'P')))?;
    Ok(NETBIOS.certain())
}

/// RFC 5531 behind a record mark (section 11).
pub(super) fn sun_rpc(bytes: &Bytes<'_>) -> Told<Found> {
    let len = bytes.be32(0)? & 0x7fff_ffff;
    ensure((24..=1 << 21).contains(&len))?;
    sun_rpc_at(bytes, 4)
}

/// A call of version 2 to an assigned program, or the answer to one.
pub(crate) fn sun_rpc_at(bytes: &Bytes<'_>, at: usize) -> Told<Found> {
    match bytes.be32(at + 4)? {
        0 => {
            ensure(bytes.be32(at + 8)? == 2)?;
            let (program, version, procedure) = (bytes.be32(at + 12)?, bytes.be32(at + 16)?, bytes.be32(at + 20)?);
            ensure((100_000..=400_000).contains(&program) || (0x2000_0000..=0x5fff_ffff).contains(&program))?;
            ensure(version <= 64 && procedure <= 1_024)?;
            // How the caller proves who it is.
            ensure(matches!(bytes.be32(at + 24)?, 0..=6 | 300_000..=400_000) && bytes.be32(at + 28)? <= 400)?;
            Ok(match program {
                100_000 => PORTMAP.certain(),
                100_003 => NFS.certain(),
                _ => SUN_RPC.certain(),
            })
        }
        1 => match bytes.be32(at + 8)? {
            // Accepted: a verifier, one of six outcomes.
            0 => {
                ensure(bytes.be32(at + 12)? <= 6)?;
                let verifier = bytes.be32(at + 16)?;
                ensure(verifier <= 400)?;
                let outcome = bytes.be32(at + 20 + verifier.next_multiple_of(4) as usize)?;
                ensure(outcome <= 5)?;
                Ok(SUN_RPC.likely())
            }
            // Denied: another version, or no proof.
            1 => {
                ensure(bytes.be32(at + 12)? <= 1 && bytes.be32(at + 16)? <= 14)?;
                Ok(SUN_RPC.likely())
            }
            _ => Err(Stop::No),
        },
        _ => Err(Stop::No),
    }
}

/// DCE 1.1, section 12.6: the head of the connection-oriented protocol.
pub(super) fn dce_rpc(bytes: &Bytes<'_>) -> Told<Found> {
    let [version, minor, kind] = bytes.array(0)?;
    ensure(version == 5 && minor <= 1 && kind <= 20)?;
    let order = bytes.u8(4)?;
    ensure(matches!(order, 0 | 1 | 0x10 | 0x11) && bytes.u8(5)? <= 3)?;
    bytes.has(6, &[0, 0])?;
    let little = order & 0x10 != 0;
    let be_or_le = |at: usize| if little { bytes.le16(at) } else { bytes.be16(at) };
    let (len, proof) = (be_or_le(8)?, be_or_le(10)?);
    ensure(len >= 16 && proof < len)?;
    Ok(DCE_RPC.certain())
}

/// The session layer of AFP: a command, a number, an offset, a length, four zeros.
pub(super) fn afp(bytes: &Bytes<'_>) -> Told<Found> {
    let (direction, command) = (bytes.u8(0)?, bytes.u8(1)?);
    let (len, reserved) = (bytes.be32(8)?, bytes.be32(12)?);
    ensure(reserved == 0 && len < 1 << 16)?;
    match (direction, command) {
        // The server's status, asked for by a client as its first call.
        (0, 3) => ensure(bytes.be32(4)? == 0 && matches!(len, 0 | 2) && (len == 0 || bytes.u8(16)? == 15))?,
        // A session is opened, with an option: the quantum, four bytes.
        (0, 4) => {
            ensure(bytes.be32(4)? == 0 && matches!(len, 6 | 12 | 18))?;
            ensure(matches!(bytes.array(16)?, [0..=2, 4 | 8]))?;
        }
        // Within a session: it is closed, a command of AFP, a sign of life, a write.
        (0, 1 | 2 | 5 | 6) => {
            ensure(bytes.be32(4)? < 1 << 16 && (command == 6 || bytes.be32(4)? == 0))?;
            ensure(matches!(command, 1 | 5) == (len == 0) && (len == 0 || (1..=80).contains(&bytes.u8(16)?)))?;
        }
        // The status: offsets that rise.
        (1, 3) => {
            let (machine, versions, methods) = (bytes.be16(16)?, bytes.be16(18)?, bytes.be16(20)?);
            ensure(10 <= machine && machine < versions && versions < methods && u32::from(methods) < len)?;
        }
        _ => return Err(Stop::No),
    }
    // A session counts from 0 or 1.
    ensure(direction == 1 || command != 4 || bytes.be16(2)? <= 1)?;
    Ok(AFP.certain())
}

/// A login, or the answer to one (RFC 7143, sections 11.12 and 11.13): keys and values follow the head of 48 bytes.
pub(super) fn iscsi(bytes: &Bytes<'_>) -> Told<Found> {
    let kind = bytes.u8(0)?;
    ensure(kind != 3 || bytes.u8(1)? & 0x30 == 0)?;
    // Versions are 0.
    bytes.has(2, &[0, 0])?;
    ensure(bytes.u8(4)? == 0 && (8..8_192).contains(&bytes.be24(5)?))?;
    let text = bytes.slice(48, 8)?;
    ensure(text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'=') && text[0].is_ascii_uppercase())?;
    Ok(ISCSI.certain())
}

/// A call in the strict encoding: version 1, a name, a number; framed or not.
pub(super) fn thrift(bytes: &Bytes<'_>) -> Told<Found> {
    let at = if bytes.u8(0)? == 0 { 4 } else { 0 };
    bytes.has(at, &[0x80, 1, 0])?;
    ensure((1..=4).contains(&bytes.u8(at + 3)?))?;
    let len = bytes.be32(at + 4)?;
    ensure((1..=100).contains(&len))?;
    let name = bytes.slice(at + 8, len as usize)?;
    ensure(is_printable(name) && name[0].is_ascii_alphabetic())?;
    Ok(THRIFT.certain())
}
