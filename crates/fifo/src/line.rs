//! A line: a header that says who owns it, and items.

use core::mem::MaybeUninit;
use core::{ptr, slice};

use crate::sync::{AtomicU32, Ordering, UnsafeCell, broken};

/// Room for the items of a line: what is left of a cache line beside the header, or one larger item.
#[repr(C)]
pub(crate) union Items<T: Copy> {
    /// Gives the union the alignment of an item, and the size of a large one.
    item: MaybeUninit<T>,
    line: [MaybeUninit<u64>; 7],
}

impl<T: Copy> Items<T> {
    /// Number of items that fit. Items without a size take no room, so any number would do.
    pub(crate) const COUNT: usize = match size_of::<T>() {
        0 => 7,
        size => size_of::<Self>() / size,
    };

    /// Room without items.
    pub(crate) const fn new() -> Self {
        Self { line: [MaybeUninit::uninit(); 7] }
    }

    /// The room as places of items.
    #[inline(always)]
    pub(crate) const fn places(&self) -> &[MaybeUninit<T>] {
        // SAFETY: the union is aligned for `T` and `COUNT` of them fit; they need not be initialised.
        unsafe { slice::from_raw_parts((&raw const *self).cast(), Self::COUNT) }
    }

    /// The room as places to write to.
    #[inline(always)]
    pub(crate) const fn places_mut(&mut self) -> &mut [MaybeUninit<T>] {
        // SAFETY: as above; the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut((&raw mut *self).cast(), Self::COUNT) }
    }
}

/// A line. It belongs to the producer while its header is 0, and to the consumer otherwise.
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
pub(crate) struct Line<T: Copy> {
    /// Number of items that the consumer may read.
    filled: AtomicU32,
    items: UnsafeCell<Items<T>>,
}

impl<T: Copy> Line<T> {
    /// A line that belongs to the producer.
    pub(crate) fn free() -> Self {
        Self { filled: AtomicU32::new(0), items: UnsafeCell::new(Items::new()) }
    }

    /// Number of items that the consumer may read; 0 if the line belongs to the producer.
    #[inline(always)]
    pub(crate) fn filled(&self) -> usize {
        // ORDERING: Acquire pairs with the Release in `fill` when the consumer looks, and with that in `release` when the producer does.
        self.filled.load(Ordering::Acquire) as usize
    }

    /// Copies the items into the line and hands it to the consumer.
    ///
    /// # Safety
    /// The caller is the producer, and has seen that the line belongs to it. There are 1 to [`Items::COUNT`] items, all initialised.
    #[inline(always)]
    pub(crate) unsafe fn fill(&self, items: &[MaybeUninit<T>]) {
        self.items.with_mut(|room| {
            // SAFETY: the line belongs to the producer, so the consumer doesn't touch its items.
            let places = unsafe { &mut *room }.places_mut();
            for (place, item) in places.iter_mut().zip(items) {
                // Volatile, so that it is copied item by item: a wider load right behind the stores of single items waits for them.
                // SAFETY: a reference may be read.
                *place = unsafe { ptr::read_volatile(item) };
            }
        });
        self.hand_over(items.len());
    }

    /// Copies a line's worth of items into the line at once, and hands it to the consumer.
    ///
    /// # Safety
    /// As for [`fill`](Self::fill), with exactly [`Items::COUNT`] items.
    #[inline(always)]
    pub(crate) unsafe fn fill_whole(&self, items: &[MaybeUninit<T>]) {
        debug_assert_eq!(items.len(), Items::<T>::COUNT);
        self.items.with_mut(|room| {
            // SAFETY: the line belongs to the producer, so the consumer doesn't touch its items.
            unsafe { &mut *room }.places_mut().copy_from_slice(items);
        });
        self.hand_over(items.len());
    }

    /// Hands the line with so many items to the consumer.
    #[inline(always)]
    fn hand_over(&self, items: usize) {
        // ORDERING: Release pairs with the Acquire in `filled`: the consumer sees the items.
        let order = if broken!(UnorderedFill) { Ordering::Relaxed } else { Ordering::Release };
        self.filled.store(items as u32, order);
    }

    /// The first `count` items.
    ///
    /// # Safety
    /// The caller is the consumer, has read that at least `count` items are filled, and ends the borrow before it releases the line.
    #[inline(always)]
    pub(crate) unsafe fn items(&self, count: usize) -> &[T] {
        self.items.with(|room| {
            // SAFETY: the line belongs to the consumer, so the producer doesn't write to it; the items were initialised by `fill`.
            unsafe { slice::from_raw_parts((&*room).places().as_ptr().cast(), count) }
        })
    }

    /// Hands the line back to the producer. Only the consumer calls it, for a line that it owns.
    #[inline(always)]
    pub(crate) fn release(&self) {
        // ORDERING: Release pairs with the Acquire in `filled`: the producer writes after the items were read.
        let order = if broken!(UnorderedRelease) { Ordering::Relaxed } else { Ordering::Release };
        self.filled.store(0, order);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_cache_line_unless_an_item_is_larger() {
        assert_eq!((size_of::<Line<u8>>(), Items::<u8>::COUNT), (64, 56));
        assert_eq!((size_of::<Line<u32>>(), Items::<u32>::COUNT), (64, 14));
        assert_eq!((size_of::<Line<u64>>(), Items::<u64>::COUNT), (64, 7));
        assert_eq!((size_of::<Line<[u64; 2]>>(), Items::<[u64; 2]>::COUNT), (64, 3));
        assert_eq!((size_of::<Line<[u8; 56]>>(), Items::<[u8; 56]>::COUNT), (64, 1));
        assert_eq!((size_of::<Line<[u8; 57]>>(), Items::<[u8; 57]>::COUNT), (128, 1));
        assert_eq!((size_of::<Line<[u64; 20]>>(), Items::<[u64; 20]>::COUNT), (192, 1));
        assert_eq!((size_of::<Line<u128>>(), Items::<u128>::COUNT), (128, 4));
        assert_eq!((size_of::<Line<()>>(), Items::<()>::COUNT), (64, 7));
        assert_eq!(align_of::<Line<u8>>(), 64);
    }
}
