//! What the paper has in its tables.

/// The rows of a table.
type Rows = Vec<Vec<String>>;

fn rows(table: &[&[&str]]) -> Rows {
    table.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
}

/// Table 1: file, packets, connections, connections for 1,000 packets, bytes a packet.
pub(super) fn traces() -> Rows {
    rows(&[
        &["file 1", "646,703", "9,191", "13.9", "186", "the paper"],
        &["file 2", "297,024", "4,384", "14.8", "201", "the paper"],
        &["file 3", "594,064", "8,768", "14.5", "205", "the paper"],
        &["file 4", "2,376,256", "35,072", "14.7", "204", "the paper"],
        &["file 5", "9,496,620", "140,194", "14.7", "202", "the paper"],
        &["file 6", "17,092,300", "253,371", "14.8", "208", "the paper"],
        &["file 7", "3,393,924", "111,777", "32.9", "307", "the paper"],
        &["file 8", "3,201,341", "103,578", "32.3", "243", "the paper"],
        &["file 9", "3,960,205", "12,736", "3.2", "194", "the paper"],
        &["file 10", "1,050,364", "1,043", "1.0", "851", "the paper"],
    ])
}

/// The applications of table 2, by our names.
pub(super) const APPLICATIONS: [&str; 6] = ["http", "pop3", "smtp", "imap", "telnet", "bittorrent"];
/// The files of table 2.
pub(super) const CONTENT_FILES: [&str; 5] = ["file 4", "file 7", "file 8", "file 9", "file 10"];

/// Table 2, a row for each of ours. The paper counts sessions without a name among the others.
pub(super) fn content() -> Rows {
    rows(&[
        &["21,270", "1,407", "12,064", "94,579", "483"],
        &["1,504", "110,103", "67,621", "3,934", "765"],
        &["0", "39", "7,407", "1", "0"],
        &["4", "1,265", "3,254", "11", "0"],
        &["0", "0", "2,533", "0", "0"],
        &["0", "390", "3,347", "55", "0"],
        &["18,000", "0", "0", "0", "0"],
        &["32", "201", "190", "692", "139"],
        &["-", "-", "-", "-", "-"],
        &["6", "6", "5", "3", "3"],
    ])
}

/// The columns of table 3.
pub(super) const MODES_HEAD: [&str; 7] = ["cycles", "mode 1", "mode 2", "mode 3", "mode 4", "mode 5", ""];

/// Table 3.
pub(super) fn modes() -> Rows {
    rows(&[
        &["Pcap", "450", "450", "450", "300", "300", "the paper"],
        &["malloc", "450", "700", "700", "-", "-", "the paper"],
        &["memcpy", "440", "440", "440", "440", "440", "the paper"],
        &["queue", "-", "100", "100", "100", "100", "the paper"],
        &["defragmentation", "250", "250", "250", "250", "250", "the paper"],
        &["TCP", "500", "500", "500", "500", "500", "the paper"],
        &["L7", "400", "400", "400", "400", "400", "the paper"],
        &["a frame", "2490", "1940", "1690", "1250", "840", "the paper"],
        &["Mpps", "0.97", "1.18", "1.36", "1.83", "2.73", "the paper"],
    ])
}

/// The columns of table 4.
pub(super) const QUEUES_HEAD: [&str; 7] = ["Gbit/s", "file 4", "file 7", "file 8", "file 9", "file 10", ""];

/// Table 4.
pub(super) fn queues() -> Rows {
    rows(&[
        &["FastForward", "3.60", "4.57", "3.92", "2.06", "5.68", "the paper"],
        &["optimized", "3.93", "4.74", "4.13", "2.21", "6.12", "the paper"],
        &["more", "9.2 %", "3.7 %", "5.4 %", "7.3 %", "7.4 %", "the paper"],
    ])
}

/// The columns of table 5.
pub(super) const CONNECTIONS_HEAD: [&str; 7] = ["Mpps", "file 2", "file 3", "file 4", "file 5", "file 6", ""];

/// Table 5.
pub(super) fn connections() -> Rows {
    rows(&[
        &["1 core", "1.35", "1.34", "1.25", "1.04", "0.97", "the paper"],
        &["2 cores", "1.82", "1.81", "1.72", "1.32", "1.22", "the paper"],
        &["3 cores", "2.68", "2.68", "2.59", "2.39", "1.72", "the paper"],
    ])
}

/// The columns of table 6.
pub(super) const MISSES_HEAD: [&str; 6] = ["file", "references", "misses", "miss rate", "more than before", ""];

/// Table 6.
pub(super) fn misses() -> Rows {
    rows(&[
        &["2", "14,243,536", "63,369", "0.44 %", "", "the paper"],
        &["3", "28,515,072", "177,805", "0.62 %", "41 %", "the paper"],
        &["4", "75,837,429", "629,647", "0.83 %", "34 %", "the paper"],
        &["5", "328,858,387", "9,747,387", "2.96 %", "256 %", "the paper"],
        &["6", "575,212,699", "29,246,911", "5.08 %", "72 %", "the paper"],
    ])
}
