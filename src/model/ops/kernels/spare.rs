//! Buffers that are used again.
//!
//! A forward pass takes and drops dozens of buffers, the larger ones of megabytes. Fresh memory
//! of that size comes from the system page by page, which costs more than filling it.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Buffers that a thread keeps.
const KEPT: usize = 16;

/// Numbers in the largest buffer that it keeps: the logits of a block and more.
const LARGEST: usize = 4 << 20;

thread_local! {
    static SPARE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// A vector of numbers whose memory the thread that drops it keeps for the next one.
#[derive(Debug, PartialEq)]
pub struct Buffer(Vec<f32>);

impl Buffer {
    /// A buffer of `len` numbers, whatever they are.
    pub fn any(len: usize) -> Buffer {
        let spare = SPARE.with_borrow_mut(|spare| {
            // The smallest that is large enough.
            let fits = spare.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= len);
            let best = fits.min_by_key(|(_, buffer)| buffer.capacity()).map(|(i, _)| i);
            best.map(|i| spare.swap_remove(i))
        });
        let mut buffer = spare.unwrap_or_default();
        buffer.resize(len, 0.0);
        Buffer(buffer)
    }

    /// The numbers of `parts`, one after the other.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [f32]> + Clone) -> Buffer {
        let mut buffer = Buffer::any(parts.clone().into_iter().map(<[f32]>::len).sum());
        let mut rest = &mut buffer[..];
        for part in parts {
            let (to, after) = rest.split_at_mut(part.len());
            to.copy_from_slice(part);
            rest = after;
        }
        buffer
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        if buffer.capacity() > LARGEST {
            return;
        }
        // The thread may be at its end, its list gone.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            spare.push(buffer);
            if spare.len() > KEPT {
                let smallest = spare.iter().enumerate().min_by_key(|(_, b)| b.capacity());
                if let Some((i, _)) = smallest {
                    spare.swap_remove(i);
                }
            }
        });
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        Buffer::of([&self[..]])
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let first = Buffer::any(1000);
        let at = first.as_ptr();
        drop(first);
        let second = Buffer::any(900);
        assert_eq!((second.as_ptr(), second.len()), (at, 900));
        let third = Buffer::any(1000);
        assert_ne!(third.as_ptr(), at);
        assert_eq!(third.len(), 1000);
        assert_eq!(&Buffer::of([&[1.0, 2.0][..], &[], &[3.0]])[..], [1.0, 2.0, 3.0]);
    }

    #[test]
    fn a_thread_keeps_only_some() {
        let many: Vec<Buffer> = (1..100).map(Buffer::any).collect();
        drop(many);
        SPARE.with_borrow(|spare| assert!(spare.len() <= KEPT));
    }
}
