//! The messages of earlier sessions, for Up: one JSON string a line.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Most bytes of the file that are read; what is older is forgotten.
const MOST: u64 = 1 << 20;

/// The messages in the file, oldest first; none where there is no file. Lines that are no JSON
/// string are passed over.
pub fn load(path: &Path) -> Vec<String> {
    let small = fs::metadata(path).is_ok_and(|meta| meta.len() <= MOST);
    let text = if small { fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Append `message`, readable by its owner only.
///
/// # Errors
/// A folder or file that cannot be written.
pub fn append(path: &Path, message: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.create(true);
    // A file that has grown too large to be read is begun anew.
    let full = fs::metadata(path).is_ok_and(|meta| meta.len() > MOST);
    options.append(!full).write(true).truncate(full);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let line = serde_json::to_string(message).map_err(io::Error::other)?;
    writeln!(options.open(path)?, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_whole_and_broken_lines_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/history.jsonl");
        assert!(load(&path).is_empty());
        append(&path, "two\nlines \u{1b}").unwrap();
        fs::write(&path, format!("{}broken\n", fs::read_to_string(&path).unwrap())).unwrap();
        append(&path, "second").unwrap();
        assert_eq!(load(&path), ["two\nlines \u{1b}", "second"]);
    }

    #[test]
    fn a_file_that_grew_too_large_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        fs::write(&path, vec![b'x'; MOST as usize + 1]).unwrap();
        assert!(load(&path).is_empty());
        append(&path, "new").unwrap();
        assert_eq!(load(&path), ["new"]);
    }
}
