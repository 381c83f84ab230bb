//! A throw-away transactional memory after TL2 (Dice, Shalev, Shavit: DISC '06), to prove that [`Memory`] fits one: a
//! global version clock, a versioned lock for each element, writes buffered until commit. It favours few lines over speed.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use memory::{Allocator, Map, Memory, Value, Vector};
use packet::{Key, Nanos};

#[derive(Default)]
pub(crate) struct Optimistic {
    clock: AtomicU64,
}

/// Another transaction got in between.
#[derive(Debug)]
pub(crate) struct Conflict;

/// Where a committed transaction stands in the serial order that it is equivalent to: those that wrote by the version that
/// they made, those that only read right behind the version that they saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64, bool);

pub(crate) struct Tx<'a> {
    clock: &'a AtomicU64,
    seen: u64,
    reads: Vec<&'a dyn Slot>,
    writes: BTreeMap<usize, (&'a dyn Slot, Box<dyn Any>)>,
}

impl Optimistic {
    pub(crate) fn begin(&self) -> Tx<'_> {
        // ORDERING: SeqCst, with the increment in `commit`: a version that is seen here has all its locks taken.
        let seen = self.clock.load(Ordering::SeqCst);
        Tx { clock: &self.clock, seen, reads: Vec::new(), writes: BTreeMap::new() }
    }
}

impl Tx<'_> {
    pub(crate) fn commit(self) -> Result<Place, Conflict> {
        if self.writes.is_empty() {
            return Ok(Place(self.seen, true));
        }
        let mut locked = BTreeMap::new();
        for (&address, (slot, _)) in &self.writes {
            locked.insert(address, slot.try_lock().ok_or(Conflict)?);
        }
        // ORDERING: SeqCst, with the load in `begin`.
        let version = self.clock.fetch_add(1, Ordering::SeqCst) + 1;
        for slot in self.reads {
            let now = match locked.get(&address(slot)) {
                Some(own) => own.version(),
                None => slot.try_lock().ok_or(Conflict)?.version(),
            };
            if now > self.seen {
                return Err(Conflict);
            }
        }
        for (address, (_, value)) in self.writes {
            locked.get_mut(&address).expect("all written slots are locked").store(&*value, version);
        }
        Ok(Place(version, false))
    }
}

/// An element of any type, as the transaction knows it.
trait Slot: Sync {
    fn try_lock(&self) -> Option<Box<dyn Locked + '_>>;
}

trait Locked {
    fn version(&self) -> u64;
    fn store(&mut self, value: &dyn Any, version: u64);
}

fn address(slot: &dyn Slot) -> usize {
    std::ptr::from_ref(slot).cast::<()>().addr()
}

struct Element<T>(Mutex<(u64, T)>);

impl<T: Value> Element<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new((0, value)))
    }

    fn read<'a>(&'a self, tx: &mut Tx<'a>) -> Result<T, Conflict> {
        if let Some((_, value)) = tx.writes.get(&address(self)) {
            return Ok(*value.downcast_ref().expect("a slot is written with its own type"));
        }
        let (version, value) = *self.0.lock().expect("no holder panics");
        tx.reads.push(self);
        if version <= tx.seen { Ok(value) } else { Err(Conflict) }
    }

    fn write<'a>(&'a self, tx: &mut Tx<'a>, value: T) {
        tx.writes.insert(address(self), (self, Box::new(value)));
    }
}

impl<T: Value> Slot for Element<T> {
    fn try_lock(&self) -> Option<Box<dyn Locked + '_>> {
        self.0.try_lock().ok().map(|guard| Box::new(guard) as Box<dyn Locked>)
    }
}

impl<T: Value> Locked for MutexGuard<'_, (u64, T)> {
    fn version(&self) -> u64 {
        self.0
    }

    fn store(&mut self, value: &dyn Any, version: u64) {
        **self = (version, *value.downcast_ref().expect("a slot is written with its own type"));
    }
}

pub(crate) struct Array<T>(Box<[Element<T>]>);

/// Linear probing over elements, with removed pairs left as `Gone`: enough for a test's length.
pub(crate) struct Table<K, V> {
    slots: Box<[Element<Pair<K, V>>]>,
    free: Element<usize>,
}

#[derive(Clone, Copy)]
enum Pair<K, V> {
    Empty,
    Gone,
    Full(K, V),
}

/// The deadlines of all indices, searched from the first.
pub(crate) struct Pool(Box<[Element<Option<Nanos>>]>);

impl Memory for Optimistic {
    type Conflict = Conflict;
    type Tx<'a> = Tx<'a>;
    type Vector<T: Value> = Array<T>;
    type Map<K: Key, V: Value> = Table<K, V>;
    type Allocator = Pool;

    fn vector<T: Value>(&self, len: usize, initial: T) -> Array<T> {
        Array((0..len).map(|_| Element::new(initial)).collect())
    }

    fn map<K: Key, V: Value>(&self, capacity: usize) -> Table<K, V> {
        let slots = (0..capacity * 8 + 1).map(|_| Element::new(Pair::Empty)).collect();
        Table { slots, free: Element::new(capacity) }
    }

    fn allocator(&self, capacity: usize) -> Pool {
        Pool((0..capacity).map(|_| Element::new(None)).collect())
    }
}

impl<T: Value> Vector<T, Optimistic> for Array<T> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn read<'a>(&'a self, tx: &mut Tx<'a>, index: usize) -> Result<T, Conflict> {
        self.0[index].read(tx)
    }

    fn write<'a>(&'a self, tx: &mut Tx<'a>, index: usize, value: T) -> Result<(), Conflict> {
        self.0[index].write(tx, value);
        Ok(())
    }
}

impl<K: Key, V: Value> Table<K, V> {
    /// Where the key is, and the first slot that could take it.
    fn find<'a>(&'a self, tx: &mut Tx<'a>, key: &K) -> Result<(Option<(usize, V)>, usize), Conflict> {
        let (len, mut gone) = (self.slots.len(), None);
        let home = key.hash(0) as usize % len;
        for at in (home..len).chain(0..home) {
            match self.slots[at].read(tx)? {
                Pair::Empty => return Ok((None, gone.unwrap_or(at))),
                Pair::Gone => gone = gone.or(Some(at)),
                Pair::Full(found, value) if found == *key => return Ok((Some((at, value)), at)),
                Pair::Full(..) => {}
            }
        }
        Ok((None, gone.expect("a table has more slots than pairs")))
    }
}

impl<K: Key, V: Value> Map<K, V, Optimistic> for Table<K, V> {
    fn get<'a>(&'a self, tx: &mut Tx<'a>, key: &K) -> Result<Option<V>, Conflict> {
        Ok(self.find(tx, key)?.0.map(|(_, value)| value))
    }

    fn insert<'a>(&'a self, tx: &mut Tx<'a>, key: K, value: V) -> Result<bool, Conflict> {
        let (known, at) = self.find(tx, &key)?;
        if known.is_none() {
            match self.free.read(tx)? {
                0 => return Ok(false),
                free => self.free.write(tx, free - 1),
            }
        }
        self.slots[at].write(tx, Pair::Full(key, value));
        Ok(true)
    }

    fn remove<'a>(&'a self, tx: &mut Tx<'a>, key: &K) -> Result<Option<V>, Conflict> {
        let Some((at, value)) = self.find(tx, key)?.0 else { return Ok(None) };
        let free = self.free.read(tx)?;
        self.free.write(tx, free + 1);
        self.slots[at].write(tx, Pair::Gone);
        Ok(Some(value))
    }
}

impl Allocator<Optimistic> for Pool {
    fn capacity(&self) -> usize {
        self.0.len()
    }

    fn allocate<'a>(&'a self, tx: &mut Tx<'a>, deadline: Nanos) -> Result<Option<usize>, Conflict> {
        for index in 0..self.0.len() {
            if self.allocate_exact(tx, index, deadline)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn allocate_exact<'a>(&'a self, tx: &mut Tx<'a>, index: usize, deadline: Nanos) -> Result<bool, Conflict> {
        let free = self.deadline(tx, index)?.is_none();
        if free {
            self.0[index].write(tx, Some(deadline));
        }
        Ok(free)
    }

    fn deadline<'a>(&'a self, tx: &mut Tx<'a>, index: usize) -> Result<Option<Nanos>, Conflict> {
        self.0[index].read(tx)
    }

    fn refresh<'a>(&'a self, tx: &mut Tx<'a>, index: usize, deadline: Nanos) -> Result<(), Conflict> {
        if self.deadline(tx, index)?.is_some() {
            self.0[index].write(tx, Some(deadline));
        }
        Ok(())
    }

    fn free<'a>(&'a self, tx: &mut Tx<'a>, index: usize) -> Result<(), Conflict> {
        self.0[index].write(tx, None);
        Ok(())
    }

    fn expire<'a>(&'a self, tx: &mut Tx<'a>, now: Nanos) -> Result<Option<usize>, Conflict> {
        let mut first = None;
        for (index, slot) in self.0.iter().enumerate() {
            first = first.into_iter().chain(slot.read(tx)?.map(|deadline| (deadline, index))).min();
        }
        let due = first.filter(|&(deadline, _)| deadline <= now).map(|(_, index)| index);
        due.map_or(Ok(None), |index| self.free(tx, index).map(|()| Some(index)))
    }
}
