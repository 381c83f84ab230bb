//! The hello of a client (RFC 8446, section 4.1.2; RFC 6066, section 3; RFC 7301), read byte by byte from wherever it lies.

use super::{NameKind, Names};
use crate::bytes::{Stop, Told, ensure};

/// Gives the next byte of the handshake.
type Next<'a> = &'a mut dyn FnMut() -> Told<u8>;

fn be16(next: Next<'_>) -> Told<usize> {
    Ok(usize::from(next()?) << 8 | usize::from(next()?))
}

fn skip(next: Next<'_>, len: usize) -> Told<()> {
    (0..len).try_for_each(|_| next().map(|_| ()))
}

/// Reads a hello. With `cookie` it has the field of DTLS.
pub(super) fn read(next: Next<'_>, cookie: bool, names: &mut Names) -> Told<()> {
    ensure(next()? == 1)?;
    // Length, version, random bytes.
    skip(next, 3 + 2 + 32)?;
    let session = next()?;
    skip(next, session.into())?;
    if cookie {
        let cookie = next()?;
        skip(next, cookie.into())?;
    }
    let ciphers = be16(next)?;
    skip(next, ciphers)?;
    let compressions = next()?;
    skip(next, compressions.into())?;
    let mut left = be16(next)?;
    while left >= 4 {
        let (kind, len) = (be16(next)?, be16(next)?);
        left = left.checked_sub(4 + len).ok_or(Stop::No)?;
        match kind {
            0 if len >= 5 => {
                let (_list, kind, name) = (be16(next)?, next()?, be16(next)?);
                ensure(name + 5 <= len && kind == 0)?;
                names.kind = NameKind::Server;
                names.name.len = 0;
                for _ in 0..name {
                    let byte = next()?;
                    names.name.push(byte)?;
                }
                skip(next, len - 5 - name)?;
            }
            16 if len >= 3 => {
                let (_list, name) = (be16(next)?, usize::from(next()?));
                ensure(name + 3 <= len)?;
                names.alpn.len = 0;
                for _ in 0..name {
                    let byte = next()?;
                    if names.alpn.len < 32 {
                        names.alpn.push(byte)?;
                    }
                }
                skip(next, len - 3 - name)?;
            }
            _ => skip(next, len)?,
        }
    }
    ensure(names.name.len > 0 || names.alpn.len > 0)
}
