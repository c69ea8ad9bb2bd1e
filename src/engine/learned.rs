//! What the block-length planner learned, kept between runs of the program: one file for each
//! pair, device, number of threads and quantisation, in the cache folder. It is a cache: a file
//! that cannot be read or written is as good as none.

use crate::decode::block_length::Learned;
use crate::event::ModelReady;
use crate::model::ops::Quantise;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Larger files than this are not ours.
const LARGEST: u64 = 1 << 20;

/// The file for these networks on this machine.
#[derive(Debug, Clone)]
pub struct LearnedFile(PathBuf);

impl LearnedFile {
    /// In the cache folder `cache`.
    pub fn new(cache: &Path, ready: &ModelReady, quantise: Quantise) -> Self {
        let draft = ready.draft.as_ref().map_or("none", |draft| draft.name.as_str());
        let key = format!(
            "{}-{draft}-{}-{}-{}-{quantise:?}",
            ready.target.name, ready.device, ready.device_detail, ready.threads
        );
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = key.chars().map(safe).take(180).collect();
        LearnedFile(cache.join("planner").join(format!("{name}.json")))
    }

    /// What is in it; nothing learned where it cannot be used.
    pub fn read(&self) -> Learned {
        let small = fs::metadata(&self.0).is_ok_and(|facts| facts.len() <= LARGEST);
        let text = small.then(|| fs::read_to_string(&self.0).ok()).flatten();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Keep what was learned. Written beside and renamed, so that no reader sees half a file.
    pub fn write(&self, learned: &Learned) {
        let Ok(text) = serde_json::to_string(learned) else { return };
        let part = self.part();
        let folder = self.0.parent().unwrap_or(Path::new("."));
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&part, text))
            .and_then(|()| fs::rename(&part, &self.0));
        if let Err(error) = written {
            tracing::debug!("what the planner learned is not kept: {error}");
        }
    }

    /// A name that nobody else writes to, neither another program nor another engine of this one.
    fn part(&self) -> PathBuf {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        self.0.with_extension(format!("{}-{number}.part", std::process::id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_and_missing_files_are_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = LearnedFile(dir.path().join("a/b.json"));
        assert_eq!(file.read(), Learned::default());
        let mut learned = Learned::default();
        learned.verify.observe(1, 0, 100.0);
        file.write(&learned);
        assert_eq!(file.read().verify.at(1, 0), Some(100.0));
        fs::write(&file.0, "{\"verify\": 3").unwrap();
        assert_eq!(file.read(), Learned::default());
        LearnedFile("/proc/none/x.json".into()).write(&learned);
    }

    #[test]
    fn engines_of_one_program_do_not_write_to_the_same_part() {
        let file = LearnedFile("folder/pair-1.5.json".into());
        let [one, other] = [file.part(), file.clone().part()];
        assert_ne!(one, other);
        assert!([one, other].iter().all(|part| part.parent() == file.0.parent()));
    }
}
