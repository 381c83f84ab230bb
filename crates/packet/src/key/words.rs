//! Plain data as arrays of 64-bit words, for memory that cores share through word-sized atomics.

use crate::headers::Mac;
use crate::key::{FiveTuple4, FiveTuple6, Host4, Host6, HostPair4, HostPair6, NoKey};
use crate::time::Nanos;

/// Data that can be stored as 64-bit words. Two values are equal if and only if their words are.
pub trait Words: Copy {
    /// The words: an array of `u64`.
    type Array: Copy + AsRef<[u64]> + AsMut<[u64]>;
    /// As many zero words.
    const ZEROS: Self::Array;
    /// Number of words.
    const COUNT: usize = size_of::<Self::Array>() / size_of::<u64>();

    /// Converts to words.
    fn to_words(&self) -> Self::Array;

    /// Converts back from words of [`to_words`](Self::to_words).
    fn from_words(words: Self::Array) -> Self;
}

/// Implements [`Words`] for types: number of words, conversion to words, conversion from words.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Meter { bytes: u64, packets: u32, open: bool }
///
/// millrace_packet::words! { Meter: [2], meter => [meter.bytes, u64::from(meter.packets) << 1 | u64::from(meter.open)], words => Self { bytes: words[0], packets: (words[1] >> 1) as u32, open: words[1] & 1 == 1 }; }
///
/// use millrace_packet::Words; let meter = Meter { bytes: 1500, packets: 3, open: true }; assert_eq!(Meter::from_words(meter.to_words()), meter);
/// ```
#[macro_export]
macro_rules! words {
    ($($type:ty: [$count:literal], $data:ident => $to:expr, $words:ident => $from:expr;)*) => {$(
        impl $crate::Words for $type {
            type Array = [u64; $count];
            const ZEROS: Self::Array = [0; $count];

            #[inline(always)]
            fn to_words(&self) -> Self::Array {
                let $data = *self;
                $to
            }

            #[inline(always)]
            fn from_words($words: Self::Array) -> Self {
                $from
            }
        }
    )*};
}

words! {
    FiveTuple4: [2], key => [key.hosts, key.rest], words => Self { hosts: words[0], rest: words[1] };
    FiveTuple6: [5], key => {
        let ([a, b], [c, d]) = (key.hosts.src, key.hosts.dst);
        [a, b, c, d, key.rest]
    }, words => {
        let [a, b, c, d, rest] = words;
        Self { hosts: HostPair6 { src: [a, b], dst: [c, d] }, rest }
    };
    Host4: [1], key => [u64::from(key.0)], words => Self(words[0] as u32);
    Host6: [2], key => key.0, words => Self(words);
    HostPair4: [1], key => [key.0], words => Self(words[0]);
    HostPair6: [4], key => {
        let ([a, b], [c, d]) = (key.src, key.dst);
        [a, b, c, d]
    }, words => {
        let [a, b, c, d] = words;
        Self { src: [a, b], dst: [c, d] }
    };
    Mac: [1], key => {
        let [a, b, c, d, e, f] = key.0;
        [u64::from_be_bytes([0, 0, a, b, c, d, e, f])]
    }, words => {
        let [_, _, a, b, c, d, e, f] = words[0].to_be_bytes();
        Self([a, b, c, d, e, f])
    };
    NoKey: [0], key => match key {}, _words => unreachable!("the key that does not exist was never stored");
    Nanos: [1], time => [time.0], words => Self(words[0]);
    u8: [1], number => [u64::from(number)], words => words[0] as Self;
    u16: [1], number => [u64::from(number)], words => words[0] as Self;
    u32: [1], number => [u64::from(number)], words => words[0] as Self;
    u64: [1], number => [number], words => words[0];
    i64: [1], number => [number as u64], words => words[0] as Self;
    bool: [1], flag => [u64::from(flag)], words => words[0] != 0;
    (): [0], _unit => [], _words => ();
}

impl<const N: usize> Words for [u64; N] {
    type Array = Self;
    const ZEROS: Self = [0; N];

    #[inline(always)]
    fn to_words(&self) -> Self {
        *self
    }

    #[inline(always)]
    fn from_words(words: Self) -> Self {
        words
    }
}

#[cfg(test)]
mod tests {
    use core::fmt::Debug;
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::key::{Family, FiveTuple, FlowKey, Host, HostPair};

    fn there_and_back<T: Words + PartialEq + Debug>(data: T) {
        let words = data.to_words();
        assert_eq!((words.as_ref().len(), T::ZEROS.as_ref().len()), (T::COUNT, T::COUNT));
        assert_eq!(T::from_words(words), data);
    }

    fn both<K: FlowKey<V4: Words, V6: Words>>(v4: K, v6: K) {
        for key in [v4, v6] {
            match key.family() {
                Family::V4(key) => there_and_back(key),
                Family::V6(key) => there_and_back(key),
            }
        }
    }

    #[test]
    fn data_comes_back_from_its_words() {
        let (a, b) = (Ipv4Addr::new(192, 0, 2, 255), Ipv4Addr::new(255, 1, 2, 3));
        let (c, d) = (Ipv6Addr::from_bits(u128::MAX - 7), Ipv6Addr::from_bits(0x2001_0db8 << 96 | 1));
        both(FiveTuple::v4(a, b, 65_535, 80, 17), FiveTuple::v6(c, d, 1, 65_535, 6));
        both(Host::v4(a), Host::v6(c));
        both(HostPair::v4(a, b), HostPair::v6(c, d));
        both(Mac([1, 2, 3, 4, 5, 0xff]), Mac([0xff, 0, 0, 0, 0, 0]));
        there_and_back(Nanos::NEVER);
        there_and_back([1, 2, u64::MAX]);
        there_and_back((u8::MAX, u16::MAX, u32::MAX, u64::MAX).0);
        there_and_back(u16::MAX);
        there_and_back(u32::MAX);
        there_and_back(u64::MAX);
    }
}
