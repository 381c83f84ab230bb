//! A memory that allocates nothing and counts how many bytes other memories would allocate, so that a configuration can be refused before
//! it is built.

use core::convert::Infallible;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use packet::Nanos;

use crate::local::{LocalAllocator, LocalMap};
use crate::transactional::{TxAllocator, TxDistributed, TxMap, TxVector};
use crate::{Allocator, Distributed, Map, Memory, Name, Portion, Value, Vector};

/// Counts the bytes of the structures that it makes. These can't be used.
#[derive(Debug)]
pub struct Weighed {
    cores: usize,
    local: AtomicU64,
    transactional: AtomicU64,
}

/// A structure that was counted and doesn't exist.
#[derive(Debug)]
pub struct Absent<T>(PhantomData<fn() -> T>);

impl Weighed {
    /// A count of zero. The transactional memory is one for so many cores.
    #[must_use]
    pub const fn new(cores: usize) -> Self {
        Self { cores, local: AtomicU64::new(0), transactional: AtomicU64::new(0) }
    }

    /// Bytes in [`Local`](crate::Local) memory, each copy.
    #[must_use]
    pub fn local(&self) -> u64 {
        // ORDERING: Relaxed, here and below. A sum that its own thread reads.
        self.local.load(Ordering::Relaxed)
    }

    /// Bytes in [`Transactional`](crate::Transactional) memory.
    #[must_use]
    pub fn transactional(&self) -> u64 {
        self.transactional.load(Ordering::Relaxed)
    }

    fn add<T>(&self, local: u64, transactional: u64) -> Absent<T> {
        self.local.fetch_add(local, Ordering::Relaxed);
        self.transactional.fetch_add(transactional, Ordering::Relaxed);
        Absent(PhantomData)
    }
}

impl Memory for Weighed {
    type Conflict = Infallible;
    type Tx<'a> = ();
    type Vector<T: Value> = Absent<T>;
    type Map<K: Name, V: Value> = Absent<(K, V)>;
    type Allocator = Absent<()>;
    type Distributed<T: Portion> = Absent<T>;

    fn take<'a>((): &mut ())
    where
        'a: 'a,
    {
    }

    fn vector<T: Value>(&self, len: usize, _: T) -> Absent<T> {
        self.add(len as u64 * size_of::<T>() as u64, TxVector::<T>::bytes(len))
    }

    fn map<K: Name, V: Value>(&self, capacity: usize) -> Absent<(K, V)> {
        self.add(LocalMap::<K, V>::bytes(capacity), TxMap::<K, V>::bytes(capacity))
    }

    fn allocator(&self, capacity: usize) -> Absent<()> {
        self.add(LocalAllocator::bytes(capacity), TxAllocator::bytes(capacity))
    }

    fn distributed<T: Portion>(&self, _: T, _: Nanos) -> Absent<T> {
        self.add(size_of::<T>() as u64, TxDistributed::<T>::bytes(self.cores))
    }
}

fn absent() -> ! {
    unreachable!("what was only weighed can't be used")
}

impl<T: Value> Vector<T, Weighed> for Absent<T> {
    fn len(&self) -> usize {
        absent()
    }

    fn read(&self, (): &mut (), _: usize) -> Result<T, Infallible> {
        absent()
    }

    fn write(&self, (): &mut (), _: usize, _: T) -> Result<(), Infallible> {
        absent()
    }
}

impl<K: Name, V: Value> Map<K, V, Weighed> for Absent<(K, V)> {
    fn get(&self, (): &mut (), _: &K) -> Result<Option<V>, Infallible> {
        absent()
    }

    fn insert(&self, (): &mut (), _: K, _: V) -> Result<bool, Infallible> {
        absent()
    }

    fn remove(&self, (): &mut (), _: &K) -> Result<Option<V>, Infallible> {
        absent()
    }
}

impl Allocator<Weighed> for Absent<()> {
    fn capacity(&self) -> usize {
        absent()
    }

    fn allocate(&self, (): &mut (), _: Nanos) -> Result<Option<usize>, Infallible> {
        absent()
    }

    fn allocate_exact(&self, (): &mut (), _: usize, _: Nanos) -> Result<bool, Infallible> {
        absent()
    }

    fn deadline(&self, (): &mut (), _: usize) -> Result<Option<Nanos>, Infallible> {
        absent()
    }

    fn refresh(&self, (): &mut (), _: usize, _: Nanos) -> Result<(), Infallible> {
        absent()
    }

    fn free(&self, (): &mut (), _: usize) -> Result<(), Infallible> {
        absent()
    }

    fn expire(&self, (): &mut (), _: Nanos) -> Result<Option<usize>, Infallible> {
        absent()
    }
}

impl<T: Portion> Distributed<T, Weighed> for Absent<T> {
    fn update(&self, (): &mut (), _: impl FnOnce(&mut T)) -> Result<(), Infallible> {
        absent()
    }

    fn read(&self, (): &mut (), _: Nanos) -> Result<T, Infallible> {
        absent()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use packet::FiveTuple6;

    use super::*;

    /// Bytes in local and in transactional memory.
    fn weigh(of: impl Fn(&Weighed)) -> (u64, u64) {
        let weighed = Weighed::new(4);
        of(&weighed);
        (weighed.local(), weighed.transactional())
    }

    #[test]
    fn structures_weigh_what_their_documentation_says() {
        let none = weigh(|_| ());
        assert_eq!(none, (0, 0));
        let vector = weigh(|memory| _ = memory.vector(1_000, 0_u64));
        assert_eq!(vector, (8_000, 64_000), "an element's bytes; a line");
        let wide = weigh(|memory| _ = memory.vector(1_000, [0_u64; 8]));
        assert_eq!(wide, (64_000, 80_000), "a line, and two words that don't fit on it");
        let (local, transactional) = weigh(|memory| _ = memory.allocator(1 << 20));
        assert!((24 << 20..25 << 20).contains(&local), "24 bytes an index: {local}");
        assert_eq!(transactional, 64 << 20, "a line");
        let (local, transactional) = weigh(|memory| _ = memory.map::<FiveTuple6, u32>(1_000));
        assert!((80_000..=112_000).contains(&local), "two slots for each pair: {local}");
        // A pair is six words, which two of the bucket's come before and a node's one.
        assert_eq!(transactional, 1_501 * (64 + 16) + 1_000 * 56, "a bucket and a half, and a node");
        let both = weigh(|memory| _ = (memory.vector(10, 0_u64), memory.vector(20, 0_u64)));
        assert_eq!(both, (240, 30 * 64));
    }
}
