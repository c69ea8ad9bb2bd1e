//! Keys and values of one layer.
//!
//! They lie in chunks of positions, each in memory of its own, so that a longer context moves
//! nothing. A chunk has, head by head, its keys and its values. Keys are in tiles of sixteen
//! positions, by dimension and then position, so that a vector has one dimension of sixteen
//! keys. Values are by position and then dimension.
//!
//! Where queries look back over a window only, chunks from the front are forgotten and serve
//! again at the end. Chunks begin at the same positions whatever was forgotten, so that attention
//! adds up in the same order.

use super::memory::{Memory, Plain, Slab};
use super::shared::Shared;
use super::simd::{LANES, Simd};
use crate::model::ops::{TAKE_BACK, kept_positions};
use anyhow::{Result, ensure};
use half::f16;
use std::sync::Arc;

/// Positions that attention takes together; memory grows by as many.
pub const CHUNK: usize = 64;

/// The widest head.
pub const MAX_HEAD: usize = 512;

/// The most key heads: far more than any model has, so that sizes stay in range.
const MAX_HEADS: usize = 1 << 16;

/// How cached keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvType {
    /// IEEE single.
    F32,
    /// IEEE binary16: half the memory to read, and the rounding is far below that of the
    /// quantised products.
    F16,
}

/// A number in the cache.
pub trait Element: Plain + Default + 'static {
    /// Sixteen of them.
    fn load<S: Simd>(s: S, x: &[Self; LANES]) -> S::F;
    /// Sixteen of them, rounded.
    fn store<S: Simd>(s: S, to: &mut [Self; LANES], x: S::F);
}

impl Element for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[f32; LANES]) -> S::F {
        s.load(x)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, to: &mut [f32; LANES], x: S::F) {
        s.store(to, x);
    }
}

/// The bits of an IEEE binary16.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct Half(u16);

// SAFETY: a number.
unsafe impl Plain for Half {}

impl Element for Half {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[Half; LANES]) -> S::F {
        // SAFETY: `Half` is a transparent `u16`.
        s.load_f16(unsafe { &*std::ptr::from_ref(x).cast() })
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, to: &mut [Half; LANES], x: S::F) {
        // SAFETY: `Half` is a transparent `u16`.
        s.store_f16(unsafe { &mut *std::ptr::from_mut(to).cast() }, x);
    }
}

/// The numbers of a cache, chunk by chunk, in one of the types.
#[derive(Debug)]
pub enum Store {
    /// [`KvType::F32`]
    F32(Vec<Slab<f32>>),
    /// [`KvType::F16`]
    F16(Vec<Slab<Half>>),
}

/// How heads lie in a cache.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Key and value heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl Shape {
    /// Elements of a chunk's keys of one head.
    fn keys(self) -> usize {
        CHUNK * self.head_dim
    }

    /// Elements of a chunk of one head.
    fn block(self) -> usize {
        self.keys() + CHUNK * padded(self.head_dim)
    }

    /// Elements of a chunk.
    fn chunk(self) -> usize {
        self.heads * self.block()
    }
}

/// Keys and values of one layer.
#[derive(Debug)]
pub struct Cache {
    /// The numbers.
    pub store: Store,
    /// How they lie.
    pub shape: Shape,
    /// The first chunk that is kept; what was before is forgotten.
    first: usize,
    /// How far queries look back, themselves included.
    window: Option<usize>,
    memory: Arc<Memory>,
    len: usize,
    capacity: usize,
}

impl Cache {
    /// An empty cache for up to `capacity` positions, of which queries see the last `window`.
    /// Memory grows with use.
    pub fn new(
        memory: &Arc<Memory>,
        shape: Shape,
        window: Option<usize>,
        capacity: usize,
        kv: KvType,
    ) -> Result<Cache> {
        let Shape { heads, head_dim } = shape;
        ensure!(
            (1..=MAX_HEAD).contains(&head_dim) && head_dim.is_multiple_of(2),
            "a head of {head_dim}: only even widths up to {MAX_HEAD} are supported"
        );
        ensure!((1..=MAX_HEADS).contains(&heads), "an attention with {heads} key heads");
        let store = match kv {
            KvType::F32 => Store::F32(vec![]),
            KvType::F16 => Store::F16(vec![]),
        };
        Ok(Cache { memory: memory.clone(), store, shape, first: 0, window, len: 0, capacity })
    }

    /// The number of positions that were appended and not cut off, forgotten ones included.
    pub fn positions(&self) -> usize {
        self.len
    }

    /// The first of the chunks that are kept.
    pub fn first_chunk(&self) -> usize {
        self.first
    }

    /// The least length, besides 0, that it can be cut to: there a query sees what is kept.
    pub fn shortest(&self) -> usize {
        match (self.first, self.window) {
            (1.., Some(window)) => (self.first * CHUNK).saturating_add(window) - 1,
            _ => 0,
        }
    }

    /// Keep the first `len` positions; none if that is less than [`Cache::shortest`].
    pub fn truncate(&mut self, len: usize) {
        if len < self.shortest() {
            (self.len, self.first) = (0, 0);
        } else {
            self.len = self.len.min(len);
        }
    }

    /// Make room for `rows` more and count them in; they are to be filled.
    pub fn extend(&mut self, position: usize, rows: usize) -> Result<()> {
        ensure!(position == self.len, "position {position} after {} cached ones", self.len);
        let len = position + rows;
        ensure!(len <= self.capacity, "the context of {} tokens is full", self.capacity);
        let most = kept_positions(self.window, rows).min(self.capacity);
        if len - self.first * CHUNK > most {
            self.forget(position);
        }
        /// At least `count` chunks of so many elements.
        fn grow<T: Plain>(
            memory: &Memory,
            chunks: &mut Vec<Slab<T>>,
            count: usize,
            elements: usize,
        ) -> Result<()> {
            while chunks.len() < count {
                chunks.push(memory.slab(elements)?);
            }
            Ok(())
        }
        let (count, elements) = (len.div_ceil(CHUNK) - self.first, self.shape.chunk());
        match &mut self.store {
            Store::F32(chunks) => grow(&self.memory, chunks, count, elements)?,
            Store::F16(chunks) => grow(&self.memory, chunks, count, elements)?,
        }
        self.len = len;
        Ok(())
    }

    /// Drop the chunks that no query from `position` on sees, nor one of those before it that an
    /// answer may be taken back to.
    fn forget(&mut self, position: usize) {
        let Some(window) = self.window else { return };
        let first = position.saturating_sub(window).saturating_sub(TAKE_BACK) / CHUNK;
        if first <= self.first {
            return;
        }
        let forgotten = first - self.first;
        match &mut self.store {
            Store::F32(chunks) => chunks.rotate_left(forgotten),
            Store::F16(chunks) => chunks.rotate_left(forgotten),
        }
        self.first = first;
    }
}

/// Bytes that `positions` take where queries see the last `window`.
pub fn bytes(shape: Shape, window: Option<usize>, positions: usize, kv: KvType) -> u64 {
    let element = match kv {
        KvType::F32 => size_of::<f32>(),
        KvType::F16 => size_of::<f16>(),
    };
    let kept = kept_positions(window, 0).min(positions);
    (kept.div_ceil(CHUNK) as u64).saturating_mul(shape.chunk() as u64 * element as u64)
}

/// Width of a cached value: whole vectors.
pub fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES)
}

/// A cache's numbers, to be read.
#[derive(Clone, Copy)]
pub struct Reader<'a, T> {
    /// What is kept.
    pub chunks: &'a [Slab<T>],
    /// How heads lie in it.
    pub shape: Shape,
    /// Which chunk the first one is.
    pub first: usize,
}

impl<'a, T: Element> Reader<'a, T> {
    /// The keys and the values of `head` in a chunk.
    #[inline(always)]
    pub fn block(self, head: usize, chunk: usize) -> (&'a [T], &'a [T]) {
        let block = self.shape.block();
        self.chunks[chunk - self.first][head * block..][..block].split_at(self.shape.keys())
    }
}

/// A cache's numbers, to be filled position by position.
pub struct Writer<'a, T> {
    chunks: Vec<Shared<'a, T>>,
    shape: Shape,
    /// Which chunk the first one is.
    first: usize,
}

impl<'a, T: Element> Writer<'a, T> {
    /// To fill `chunks`, whose first is the chunk `first` of the context, from `position` on.
    pub fn new(chunks: &'a mut [Slab<T>], shape: Shape, first: usize, position: usize) -> Self {
        let written = position / CHUNK;
        let chunks = chunks[written - first..].iter_mut().map(|chunk| Shared::new(chunk)).collect();
        Writer { chunks, shape, first: written }
    }

    /// Store the key and the value of `position` of `head`: `head_dim` numbers each, followed
    /// by zeros up to whole vectors.
    ///
    /// # Safety
    /// No other thread may write the same position and head, and none may read.
    #[inline(always)]
    pub unsafe fn set<S: Simd>(
        &self,
        s: S,
        (head, position): (usize, usize),
        key: &[f32; MAX_HEAD],
        value: &[f32; MAX_HEAD],
    ) {
        let (head_dim, width) = (self.shape.head_dim, padded(self.shape.head_dim));
        let numbers = self.chunks[position / CHUNK - self.first];
        let block = head * self.shape.block();
        let position = position % CHUNK;
        let at = block + self.shape.keys() + position * width;
        // SAFETY: a position's value is disjoint from all others'.
        let to = unsafe { numbers.part(at..at + width) };
        for (to, x) in to.as_chunks_mut().0.iter_mut().zip(value.as_chunks().0) {
            T::store(s, to, s.load(x));
        }
        let first = block + position / LANES * LANES * head_dim + position % LANES;
        for (i, x) in key[..width].as_chunks().0.iter().enumerate() {
            let mut rounded = [T::default(); LANES];
            T::store(s, &mut rounded, s.load(x));
            for (lane, &x) in rounded.iter().enumerate().take(head_dim - i * LANES) {
                let at = first + (i * LANES + lane) * LANES;
                // SAFETY: a position's lane of a key's dimension is disjoint from all others'.
                unsafe { numbers.part(at..at + 1)[0] = x };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_windows_cache_stays_small_and_knows_how_far_back_it_goes() {
        let (memory, shape) = (Arc::default(), Shape { heads: 2, head_dim: 32 });
        let mut cache = Cache::new(&memory, shape, Some(100), 100_000, KvType::F16).unwrap();
        let mut position = 0;
        for rows in [7, 256, 16, 1].into_iter().cycle().take(800) {
            cache.extend(position, rows).unwrap();
            position += rows;
            let Store::F16(chunks) = &cache.store else { panic!("another type") };
            assert!(chunks.len() <= kept_positions(Some(100), 256) / CHUNK + 2);
            assert!(position - cache.first_chunk() * CHUNK <= chunks.len() * CHUNK);
            // A rejected block, and the last answer too, can be taken back.
            assert!(cache.shortest() <= position.saturating_sub(rows + TAKE_BACK));
        }
        assert!(cache.shortest() > 50_000);
        cache.truncate(cache.shortest());
        assert_eq!(cache.positions(), cache.shortest());
        cache.truncate(cache.shortest() - 1);
        assert_eq!((cache.positions(), cache.shortest()), (0, 0));
        cache.extend(0, 5).unwrap();
        assert_eq!(cache.positions(), 5);
    }

    #[test]
    fn without_a_window_nothing_is_forgotten() {
        let (memory, shape) = (Arc::default(), Shape { heads: 1, head_dim: 2 });
        let mut cache = Cache::new(&memory, shape, None, 5000, KvType::F32).unwrap();
        cache.extend(0, 1000).unwrap();
        let first = |cache: &Cache| match &cache.store {
            Store::F32(chunks) => chunks[0].as_ptr(),
            Store::F16(_) => panic!("another type"),
        };
        let at = first(&cache);
        (1..5).for_each(|i| cache.extend(1000 * i, 1000).unwrap());
        assert_eq!(first(&cache), at, "what is there was moved");
        assert_eq!((cache.first_chunk(), cache.shortest()), (0, 0));
        assert!(cache.extend(5000, 1).is_err());
    }
}
