//! The message in the person's own editor.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most bytes that are taken over.
const MOST: u64 = 1 << 20;

/// Let the person write `text` in the editor that `VISUAL` or `EDITOR` names, which has the
/// terminal until this returns.
///
/// # Errors
/// What went wrong, for the person. `text` still stands then; what the editor wrote in its place
/// is kept in a file, which the message names.
pub fn edit(text: &str) -> Result<String, String> {
    let named = |name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    match named("VISUAL").or_else(|| named("EDITOR")) {
        Some(editor) => edit_in(&editor, text),
        None => Err("no editor is named; set VISUAL or EDITOR, for example EDITOR=nano".into()),
    }
}

fn edit_in(editor: &str, text: &str) -> Result<String, String> {
    let draft =
        Draft::new(text).map_err(|error| format!("the editor gets no file to write: {error}"))?;
    let status = run(editor, &draft.file);
    let outcome = match status {
        Err(error) => Err(format!("the editor `{editor}` cannot be started: {error}")),
        // What the shell says of a program that it does not find.
        Ok(status) if status.code() == Some(127) => {
            Err(format!("the editor `{editor}` is not there; VISUAL or EDITOR names it"))
        }
        Ok(status) if !status.success() => {
            Err(format!("the editor `{editor}` failed ({status}); the message is as it was"))
        }
        Ok(_) => draft.read().map_err(|why| format!("{why}; the message is as it was")),
    };
    let changed = draft.read().ok().as_deref() != Some(text);
    match outcome {
        Err(why) if changed && draft.file.exists() => {
            Err(format!("{why}; what the editor wrote is in {}", draft.file.display()))
        }
        outcome => {
            draft.remove();
            outcome
        }
    }
}

/// Run `editor`, which may have arguments of its own, on `file`. Ctrl+C is the editor's meanwhile.
fn run(editor: &str, file: &Path) -> io::Result<ExitStatus> {
    #[cfg(unix)]
    {
        let ignored = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let signals = [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT];
        let hold = |signal| signal_hook::flag::register(signal, ignored.clone());
        let held = signals.map(hold);
        let script = format!("{editor} \"$@\"");
        let status = Command::new("sh").args(["-c", &script, editor]).arg(file).status();
        for id in held.into_iter().flatten() {
            signal_hook::low_level::unregister(id);
        }
        status
    }
    #[cfg(not(unix))]
    {
        let mut words = editor.split_whitespace();
        let program = words.next().unwrap_or_default();
        Command::new(program).args(words).arg(file).status()
    }
}

/// A file with the message, in a folder that only its owner sees: editors leave copies of their
/// own beside it.
struct Draft {
    folder: PathBuf,
    file: PathBuf,
}

impl Draft {
    fn new(text: &str) -> io::Result<Draft> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let name = format!("dflash-chat-{}-{nanos}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder)?;
        let draft = Draft { file: folder.join("message.md"), folder };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let end = if text.is_empty() { "" } else { "\n" };
        let written = options
            .open(&draft.file)
            .and_then(|mut file| file.write_all(format!("{text}{end}").as_bytes()));
        if written.is_err() {
            draft.remove();
        }
        written.map(|()| draft)
    }

    /// What stands in the file, without the end of the last line, which editors add.
    fn read(&self) -> Result<String, String> {
        let unreadable = |error: io::Error| format!("the editor's file cannot be read: {error}");
        if fs::metadata(&self.file).map_err(unreadable)?.len() > MOST {
            return Err("what the editor wrote is longer than 1 MiB".into());
        }
        let bytes = fs::read(&self.file).map_err(unreadable)?;
        let mut text = String::from_utf8(bytes)
            .map_err(|_| "what the editor wrote is not UTF-8".to_string())?
            .replace("\r\n", "\n");
        if text.ends_with('\n') {
            text.pop();
        }
        Ok(text)
    }

    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A shell script as an editor; it finds the file's name in `$1`.
    fn edit_with(script: &str, text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("an editor.sh");
        fs::write(&path, script).unwrap();
        edit_in(&format!("sh '{}'", path.display()), text)
    }

    #[test]
    fn what_is_written_comes_back() {
        let script =
            "test \"$(cat \"$1\")\" = 'two\nlines' && printf 'three\r\nlines\n\n' > \"$1\"";
        assert_eq!(edit_with(script, "two\nlines").unwrap(), "three\nlines\n");
        assert_eq!(edit_with("exit 0", "as it was\n").unwrap(), "as it was\n");
        assert_eq!(edit_with("exit 0", "").unwrap(), "");
        // Many editors write a new file and put it in the place of the old one.
        assert_eq!(edit_with("printf new > \"$1.n\" && mv \"$1.n\" \"$1\"", "x").unwrap(), "new");
    }

    #[test]
    fn the_file_is_private_and_goes_afterwards() {
        let script = "ls -ld \"$(dirname \"$1\")\" \"$1\" | cut -c1-10 > \"$1.n\"; mv \"$1.n\" \"$1\"; \
                      dirname \"$1\" >> \"$1\"";
        let written = edit_with(script, "x").unwrap();
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines[..2], ["drwx------", "-rw-------"]);
        assert!(!Path::new(lines[2]).exists(), "{} is left behind", lines[2]);
    }

    #[test]
    fn a_failure_is_a_message_and_loses_nothing() {
        let why = edit_in("no-such-editor-anywhere -w", "x").unwrap_err();
        assert!(why.contains("`no-such-editor-anywhere -w` is not there"), "{why}");
        assert!(edit_with("exit 3", "x").unwrap_err().ends_with("the message is as it was"));
        let kept = |why: &str| {
            let (_, path) = why.rsplit_once("is in ").unwrap_or_else(|| panic!("{why}"));
            let bytes = fs::read(path).unwrap();
            fs::remove_dir_all(Path::new(path).parent().unwrap()).unwrap();
            bytes
        };
        let why = edit_with("printf long > \"$1\"; exit 1", "x").unwrap_err();
        assert_eq!(kept(&why), b"long");
        let why = edit_with("printf '\\377' > \"$1\"", "x").unwrap_err();
        assert!(why.starts_with("what the editor wrote is not UTF-8"), "{why}");
        assert_eq!(kept(&why), [0xff]);
        assert!(edit_with("rm \"$1\"", "x").unwrap_err().contains("cannot be read"));
    }

    /// Ctrl+C in the editor goes to all programs on the terminal; it must not end this one.
    #[test]
    fn an_interrupt_is_the_editors() {
        let script = format!("kill -INT {}; printf on > \"$1\"", std::process::id());
        assert_eq!(edit_with(&script, "x").unwrap(), "on");
    }
}
