//! Keys and values of one layer.

use super::shared::Shared;
use super::simd::{LANES, Simd};
use anyhow::{Result, ensure};
use half::f16;

/// Positions that attention takes together; memory grows by as many.
pub const CHUNK: usize = 64;

/// The widest head.
pub const MAX_HEAD: usize = 512;

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
pub trait Element: Copy + Send + Sync + Default + 'static {
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

/// The keys and values of one head.
#[derive(Debug, Default)]
pub struct Head<T> {
    /// By tile of sixteen positions, then dimension, then position.
    pub keys: Vec<T>,
    /// By position, then dimension, filled up to whole vectors.
    pub values: Vec<T>,
}

/// The heads of a cache, in one of the types.
#[derive(Debug)]
pub enum Heads {
    /// [`KvType::F32`]
    F32(Vec<Head<f32>>),
    /// [`KvType::F16`]
    F16(Vec<Head<Half>>),
}

/// Keys and values of one layer.
#[derive(Debug)]
pub struct Cache {
    /// One a key and value head.
    pub heads: Heads,
    /// Width of a head.
    pub head_dim: usize,
    len: usize,
    capacity: usize,
}

impl Cache {
    /// An empty cache for up to `capacity` positions. Memory grows with use.
    pub fn new(kv_heads: usize, head_dim: usize, capacity: usize, kv: KvType) -> Result<Cache> {
        ensure!(
            (1..=MAX_HEAD).contains(&head_dim) && head_dim.is_multiple_of(2),
            "a head of {head_dim}: only even widths up to {MAX_HEAD} are supported"
        );
        ensure!(kv_heads > 0, "an attention without key heads");
        let heads = match kv {
            KvType::F32 => Heads::F32((0..kv_heads).map(|_| Head::default()).collect()),
            KvType::F16 => Heads::F16((0..kv_heads).map(|_| Head::default()).collect()),
        };
        Ok(Cache { heads, head_dim, len: 0, capacity })
    }

    /// Positions that it holds.
    pub fn positions(&self) -> usize {
        self.len
    }

    /// Keep the first `len` positions.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Make room for `rows` more and count them in; they are to be filled.
    pub fn extend(&mut self, position: usize, rows: usize) -> Result<()> {
        ensure!(position == self.len, "position {position} after {} cached ones", self.len);
        let len = position + rows;
        ensure!(len <= self.capacity, "the context of {} tokens is full", self.capacity);
        let room = len.next_multiple_of(CHUNK);
        let (keys, values) = (room * self.head_dim, room * padded(self.head_dim));
        fn grow<T: Element>(heads: &mut [Head<T>], keys: usize, values: usize) {
            for head in heads {
                // After a cut they are already long enough.
                head.keys.resize(keys.max(head.keys.len()), T::default());
                head.values.resize(values.max(head.values.len()), T::default());
            }
        }
        match &mut self.heads {
            Heads::F32(heads) => grow(heads, keys, values),
            Heads::F16(heads) => grow(heads, keys, values),
        }
        self.len = len;
        Ok(())
    }
}

/// Bytes that `positions` take.
pub fn bytes(kv_heads: usize, head_dim: usize, positions: usize, kv: KvType) -> u64 {
    let element = match kv {
        KvType::F32 => size_of::<f32>(),
        KvType::F16 => size_of::<f16>(),
    };
    let positions = positions.next_multiple_of(CHUNK);
    (kv_heads * (head_dim + padded(head_dim)) * element) as u64 * positions as u64
}

/// Width of a cached value: whole vectors.
pub fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES)
}

/// One head's memory, to be filled position by position.
#[derive(Clone, Copy)]
pub struct HeadWriter<'a, T> {
    keys: Shared<'a, T>,
    values: Shared<'a, T>,
}

impl<'a, T: Element> HeadWriter<'a, T> {
    /// To fill `head`.
    pub fn new(head: &'a mut Head<T>) -> Self {
        HeadWriter { keys: Shared::new(&mut head.keys), values: Shared::new(&mut head.values) }
    }

    /// Store the key and the value of `position`: `head_dim` numbers each, followed by zeros
    /// up to whole vectors.
    ///
    /// # Safety
    /// No other thread may write the same position, or read the head.
    #[inline(always)]
    pub unsafe fn set<S: Simd>(
        self,
        s: S,
        position: usize,
        head_dim: usize,
        key: &[f32; MAX_HEAD],
        value: &[f32; MAX_HEAD],
    ) {
        let width = padded(head_dim);
        // SAFETY: a position's value is disjoint from all others'.
        let to = unsafe { self.values.part(position * width..(position + 1) * width) };
        for (to, x) in to.as_chunks_mut().0.iter_mut().zip(value.as_chunks().0) {
            T::store(s, to, s.load(x));
        }
        let first = position / LANES * LANES * head_dim + position % LANES;
        for (i, x) in key[..width].as_chunks().0.iter().enumerate() {
            let mut rounded = [T::default(); LANES];
            T::store(s, &mut rounded, s.load(x));
            for (lane, &x) in rounded.iter().enumerate().take(head_dim - i * LANES) {
                let at = first + (i * LANES + lane) * LANES;
                // SAFETY: a position's lane of a key's dimension is disjoint from all others'.
                unsafe { self.keys.part(at..at + 1)[0] = x };
            }
        }
    }
}
