//! Memory that the threads of a pool fill together.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice of which each thread takes parts that no other takes.
pub struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

// SAFETY: elements move between threads as through `&mut`; taking parts is `unsafe` and asks for
// disjoint ones.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: see above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Share `slice`.
    pub fn new(slice: &'a mut [T]) -> Self {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The elements of `range`; panics if it leaves the slice.
    ///
    /// # Safety
    /// While the result is in use no other part that overlaps it may be.
    #[inline(always)]
    pub unsafe fn part(self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside of the slice");
        // SAFETY: inside the slice, which is borrowed for 'a; the caller keeps parts disjoint.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start)
        }
    }
}
