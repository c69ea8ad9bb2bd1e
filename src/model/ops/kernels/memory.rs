//! Memory for what every pass reads from end to end: weights, keys and values.
//!
//! It lies in large regions for which the system is asked to use huge pages. With small ones
//! a pass over a hundred megabytes looks up tens of thousands of addresses, which on a virtual
//! machine costs more than reading (measured: 14 GB/s a thread instead of 24).

use anyhow::{Context, Result};
use memmap2::{MmapMut, MmapOptions, MmapRaw};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Size and alignment of a huge page where it matters; elsewhere this is only a rounding.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes that are taken from the system at once.
const REGION: usize = 32 << 20;

/// Numbers, and arrays and structures of them, for which all bits zero are a value.
///
/// # Safety
/// All bits zero must be a value, dropping must do nothing, and the alignment must divide 64.
pub unsafe trait Plain: Copy + Send + Sync {}

// SAFETY: a number.
unsafe impl Plain for f32 {}
// SAFETY: a number.
unsafe impl Plain for u16 {}
// SAFETY: an array of plain elements is as plain as they are.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Where slabs come from.
#[derive(Debug, Default)]
pub struct Memory {
    region: Mutex<Option<Region>>,
}

/// A piece of address space; the bytes before `used` belong to slabs.
#[derive(Debug)]
struct Region {
    map: Arc<MmapRaw>,
    used: usize,
    end: usize,
}

impl Region {
    fn new(bytes: usize) -> Result<Region> {
        let len = bytes.checked_next_multiple_of(HUGE_PAGE).and_then(|n| n.checked_add(HUGE_PAGE));
        let map = len
            .context("more than the address space")
            .and_then(|len| Ok(MmapOptions::new().len(len).map_anon()?))
            .with_context(|| format!("no memory for {} MB; close other programs", bytes >> 20))?;
        prefer_huge_pages(&map);
        // A huge page lies at a multiple of its size.
        let used = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        let end = map.len();
        Ok(Region { map: Arc::new(map.into()), used, end })
    }

    fn slab<T: Plain>(&mut self, len: usize, bytes: usize) -> Option<Slab<T>> {
        let used = self.used.checked_add(bytes)?;
        if used > self.end {
            return None;
        }
        // SAFETY: `self.used` is inside of the map.
        let start = unsafe { self.map.as_mut_ptr().add(self.used) }.cast();
        self.used = used;
        Some(Slab { start, len, _map: self.map.clone(), owns: PhantomData })
    }
}

fn prefer_huge_pages(map: &MmapMut) {
    // Advice that the system may decline.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    #[cfg(not(target_os = "linux"))]
    let _ = map;
}

/// Bytes of a slab, filled up so that the next one begins at a cache line.
fn bytes<T>(len: usize) -> Result<usize> {
    let bytes = len.checked_mul(size_of::<T>()).and_then(|n| n.checked_next_multiple_of(64));
    bytes.context("more than the address space")
}

impl Memory {
    /// A slab of `len` zeros, next to the others.
    pub fn slab<T: Plain>(&self, len: usize) -> Result<Slab<T>> {
        let bytes = bytes::<T>(len)?;
        let mut region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slab) = region.as_mut().and_then(|region| region.slab(len, bytes)) {
            return Ok(slab);
        }
        let fresh = region.insert(Region::new(bytes.max(REGION))?);
        fresh.slab(len, bytes).context("a region smaller than asked for")
    }
}

/// A slice with memory of its own, which goes back to the system when the last slab of its
/// region is dropped.
pub struct Slab<T> {
    start: *mut T,
    len: usize,
    _map: Arc<MmapRaw>,
    owns: PhantomData<T>,
}

// SAFETY: a slab owns its elements as a `Vec` does.
unsafe impl<T: Send> Send for Slab<T> {}
// SAFETY: see above.
unsafe impl<T: Sync> Sync for Slab<T> {}

impl<T: Plain> Slab<T> {
    /// A slab of at least `len` zeros in a region of its own, filled up to whole huge pages.
    pub fn alone(len: usize) -> Result<Slab<T>> {
        let len = len.max(1).checked_mul(size_of::<T>()).context("more than the address space")?;
        let len = len.next_multiple_of(HUGE_PAGE) / size_of::<T>();
        let bytes = bytes::<T>(len)?;
        Region::new(bytes)?.slab(len, bytes).context("a region smaller than asked for")
    }

    /// Its size in memory.
    pub fn bytes(&self) -> usize {
        size_of_val::<[T]>(self)
    }
}

impl<T> Deref for Slab<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the elements are inside of the map, aligned (regions begin at pages, slabs at
        // cache lines), no other slab's, and have been zero, which is a value, from the start.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T> DerefMut for Slab<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: see `deref`; the slab is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl<T> std::fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slab of {}", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_zero_apart_and_aligned() {
        let memory = Memory::default();
        let mut slabs: Vec<Slab<[u16; 3]>> =
            (0..200).map(|i| memory.slab(i * 100).unwrap()).collect();
        slabs.push(memory.slab(REGION).unwrap());
        slabs.push(Slab::alone(5).unwrap());
        for (i, slab) in slabs.iter_mut().enumerate() {
            assert!(slab.iter().all(|x| *x == [0; 3]));
            assert_eq!(slab.as_ptr() as usize % 64, 0);
            slab.fill([i as u16; 3]);
        }
        drop(memory);
        for (i, slab) in slabs.iter().enumerate() {
            assert!(slab.iter().all(|x| *x == [i as u16; 3]));
        }
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        let memory = Memory::default();
        assert!(memory.slab::<f32>(usize::MAX / 2).is_err());
        assert!(memory.slab::<f32>(usize::MAX / 5).is_err());
        assert!(Slab::<f32>::alone(usize::MAX / 5).is_err());
    }
}
