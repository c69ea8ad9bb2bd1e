//! The bytes of a file, mapped or in memory.

use anyhow::{Context, Result, bail};
use memmap2::Mmap;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

/// A file's bytes: mapped, part of the program, or in memory.
#[derive(Debug)]
pub enum Bytes {
    /// A mapped file.
    Mapped(Mmap),
    /// Part of the program (the demo draft).
    Static(&'static [u8]),
    /// In memory.
    Owned(Vec<u8>),
}

impl Bytes {
    /// Map a file.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped, or is empty.
    #[allow(unsafe_code)]
    pub fn map(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let meta = file.metadata().with_context(|| format!("cannot read {}", path.display()))?;
        if !meta.is_file() {
            bail!("{} is not a file", path.display());
        }
        if meta.len() == 0 {
            bail!("{} is empty; download it again", path.display());
        }
        // SAFETY: the mapping is read-only and private to this value. As with every mapped
        // weights file, somebody else who cuts the file short while we run can make a read
        // fault; all numbers read from it are checked, so changed contents cannot do harm.
        let map = unsafe { Mmap::map(&file) }
            .with_context(|| format!("cannot map {} into memory", path.display()))?;
        Ok(Self::Mapped(map))
    }
}

impl Bytes {
    /// The bytes of `range` are not needed for now: where they are a file's, the memory that
    /// holds them is given back. They can be read again all the same.
    #[allow(unsafe_code)]
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Self::Mapped(map) = self
            && range.end <= map.len()
        {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: what is dropped of a read-only mapping of a file comes from the file again.
            let released = unsafe { map.unchecked_advise_range(advice, range.start, range.len()) };
            if let Err(error) = released {
                tracing::debug!("memory of a file is kept: {error}");
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Static(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}
