//! Mail, files and chat in lines of text, where one side alone does not tell. What one line tells is in `signatures/mail.sig`.

use crate::bytes::{Bytes, Found, Stop, Told, contains, either, ensure};
use crate::protocol::{FTP, IMAP, NNTP, POP3, SMTP, XMPP};

/// Returns true if the line begins with one of these words, ignoring case, and the word ends there.
fn begins(line: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| {
        line.split_at_checked(word.len()).is_some_and(|(head, rest)| {
            head.eq_ignore_ascii_case(word) && matches!(rest.first(), None | Some(b' ' | b'\t' | b':'))
        })
    })
}

/// RFC 1939: the server's `+OK`, which Redis and others say too, and a command.
pub(super) fn pop3(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    answer.has(0, b"+OK")?;
    let (line, _) = bytes.line(0, 512)?;
    ensure(begins(
        line,
        &[b"USER", b"PASS", b"APOP", b"CAPA", b"STLS", b"AUTH", b"STAT", b"UIDL", b"RETR", b"TOP", b"QUIT", b"LIST"],
    ))?;
    Ok(POP3.certain())
}

/// RFC 959 and RFC 5321: a reply of three digits, and a command that one of both alone has.
pub(super) fn ftp_or_smtp(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    let [a, b, c, behind] = answer.array(0)?;
    ensure([a, b, c].iter().all(u8::is_ascii_digit) && matches!(behind, b' ' | b'-'))?;
    const FTP_WORDS: &[&[u8]] = &[
        b"USER", b"PASS", b"PASV", b"EPSV", b"PORT", b"EPRT", b"FEAT", b"SYST", b"TYPE", b"CWD", b"PWD", b"XPWD",
        b"RETR", b"STOR", b"NLST", b"MLSD", b"OPTS", b"CLNT", b"PBSZ", b"PROT", b"SITE", b"CDUP", b"REST", b"MKD",
        b"RMD", b"DELE", b"RNFR", b"ACCT", b"ALLO", b"MDTM", b"SIZE",
    ];
    const SMTP_WORDS: &[&[u8]] = &[
        b"EHLO",
        b"HELO",
        b"LHLO",
        b"MAIL FROM",
        b"RCPT TO",
        b"DATA",
        b"STARTTLS",
        b"VRFY",
        b"EXPN",
        b"RSET",
        b"BDAT",
    ];
    let client = || {
        let (line, _) = bytes.line(0, 512)?;
        if begins(line, FTP_WORDS) || line.eq_ignore_ascii_case(b"AUTH TLS") || line.eq_ignore_ascii_case(b"AUTH SSL") {
            return Ok(FTP.certain());
        }
        if begins(line, SMTP_WORDS) || begins(line, &[b"AUTH LOGIN", b"AUTH PLAIN", b"AUTH CRAM-MD5", b"AUTH NTLM"]) {
            return Ok(SMTP.certain());
        }
        Err(Stop::No)
    };
    let server = || {
        let (line, _) = answer.line(0, 512)?;
        if contains(line, b"ESMTP") || contains(line, b" SMTP") || contains(line, b"mail service") {
            return Ok(SMTP.certain());
        }
        let passive =
            line.starts_with(b"227 Entering Passive Mode") || line.starts_with(b"229 Entering Extended Passive");
        if contains(line, b"FTP") || passive || line.starts_with(b"331 ") && contains(line, b"password") {
            return Ok(FTP.certain());
        }
        // Picked up in the middle: replies with enhanced codes (RFC 2034), or before data.
        let enhanced = matches!(line, [b'2' | b'4' | b'5', _, _, b' ' | b'-', x, b'.', b'0'..=b'9', b'.', b'0'..=b'9', ..] if *x == line[0]);
        ensure(enhanced || line.starts_with(b"354 "))?;
        Ok(SMTP.likely())
    };
    either(client(), server)
}

/// RFC 3977: a greeting of 200 or 201, and a command that no other protocol has.
pub(super) fn nntp(bytes: &Bytes<'_>, answer: &Bytes<'_>) -> Told<Found> {
    let [a, b, c, behind] = answer.array(0)?;
    ensure(matches!([a, b, c], [b'2', b'0', b'0' | b'1']) && behind == b' ')?;
    let server = || {
        let (line, _) = answer.line(0, 512)?;
        ensure(
            contains(line, b"NNTP")
                || contains(line, b"InterNetNews")
                || contains(line, b"posting")
                || contains(line, b"usenet"),
        )?;
        Ok(NNTP.certain())
    };
    let client = || {
        let (line, _) = bytes.line(0, 512)?;
        ensure(begins(
            line,
            &[
                b"MODE READER",
                b"MODE STREAM",
                b"CAPABILITIES",
                b"AUTHINFO",
                b"GROUP",
                b"XOVER",
                b"LIST",
                b"ARTICLE",
                b"IHAVE",
                b"XFEATURE",
                b"DATE",
            ],
        ))?;
        Ok(NNTP.certain())
    };
    either(server(), client)
}

/// RFC 9051: a tag, then a command.
pub(super) fn imap(bytes: &Bytes<'_>) -> Told<Found> {
    // The tag ends soon, or this is something else.
    let mut space = 0;
    loop {
        match bytes.u8(space)? {
            b' ' if space > 0 => break,
            byte if space < 14 && (byte.is_ascii_alphanumeric() || byte == b'.') => space += 1,
            _ => return Err(Stop::No),
        }
    }
    let tag = bytes.slice(0, space)?;
    ensure(tag.iter().any(u8::is_ascii_digit))?;
    let (line, _) = bytes.from(space + 1)?.line(0, 256)?;
    ensure(begins(
        line,
        &[
            b"CAPABILITY",
            b"LOGIN",
            b"STARTTLS",
            b"AUTHENTICATE",
            b"SELECT",
            b"EXAMINE",
            b"NOOP",
            b"LOGOUT",
            b"LIST",
            b"LSUB",
            b"ID",
            b"NAMESPACE",
            b"UID",
            b"FETCH",
            b"STATUS",
            b"IDLE",
            b"ENABLE",
        ],
    ))?;
    Ok(IMAP.certain())
}

/// RFC 6120: the opening of a stream, or a stanza of one.
pub(super) fn xmpp(bytes: &Bytes<'_>) -> Told<Found> {
    let mut at = 0;
    // A declaration may come first.
    if bytes
        .has_word(0, b"<?xml")
        .map_or_else(|stop| if stop == Stop::More { Err(stop) } else { Ok(false) }, |()| Ok(true))?
    {
        at = bytes.find(0, b'>', 100)? + 1;
        while matches!(bytes.u8(at)?, b' ' | b'\r' | b'\n' | b'\t') {
            at += 1;
            ensure(at < 120)?;
        }
    }
    either(bytes.has(at, b"<stream:stream"), || bytes.has(at, b"<flash:stream"))?;
    let end = bytes.find(at, b'>', 600)?;
    ensure(
        contains(bytes.slice(at, end - at)?, b"jabber:") || contains(bytes.slice(at, end - at)?, b"etherx.jabber.org"),
    )?;
    Ok(XMPP.certain())
}
