//! CRC32c, which SCTP carries (RFC 9260, appendix A), and its incremental update.
//!
//! A CRC is linear. The CRC of a changed message differs by the CRC of the difference, and zeros after the difference multiply that by a
//! power of x. So ports can be changed without reading the payload, which may not be captured.

/// The polynomial, bits reversed: the register's top bit stands for x^0.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The value to xor to the CRC32c of a message if `difference` is xored to four bytes of it, with `behind` bytes after them.
pub(crate) fn change(difference: [u8; 4], behind: u32) -> u32 {
    let crc = difference.iter().fold(0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8);
    multiply(crc, power_of_x8(behind))
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = times_x(crc);
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

const fn times_x(a: u32) -> u32 {
    if a & 1 == 1 { a >> 1 ^ POLYNOMIAL } else { a >> 1 }
}

/// The product of two polynomials, modulo [`POLYNOMIAL`].
const fn multiply(mut a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if b & bit != 0 {
            product ^= a;
        }
        a = times_x(a);
        bit >>= 1;
    }
    product
}

/// x to the power of eight times `exponent`, by squaring.
const fn power_of_x8(mut exponent: u32) -> u32 {
    let mut power = 1 << 31;
    let mut square = 1 << (31 - 8);
    while exponent != 0 {
        if exponent & 1 == 1 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    power
}

/// The CRC32c of a whole message.
pub(crate) fn crc32c<'a>(message: impl IntoIterator<Item = &'a u8>) -> u32 {
    !message.into_iter().fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    #[test]
    fn published_vectors() {
        // RFC 3720, appendix B.4, and the check value of the catalogue of CRC algorithms.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn change_is_as_good_as_whole(
            mut message in prop::collection::vec(any::<u8>(), 4..3000),
            difference in any::<[u8; 4]>(),
            at in any::<prop::sample::Index>(),
        ) {
            let at = at.index(message.len() - 3);
            let before = crc32c(&message);
            for (byte, difference) in message[at..].iter_mut().zip(difference) {
                *byte ^= difference;
            }
            let behind = (message.len() - at - 4) as u32;
            prop_assert_eq!(before ^ change(difference, behind), crc32c(&message));
        }
    }
}
