//! Text on its way to a terminal.

use std::borrow::Cow;

/// `text` with everything that could drive a terminal made visible, newlines kept: tabs become
/// spaces, other C0 controls and DEL their control pictures, C1 and bidirectional controls
/// `<U+XXXX>`. A bare carriage return is a control; `\r\n` becomes `\n`.
pub fn sanitise(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\t' => out.push_str("    "),
            '\u{7f}' => out.push('\u{2421}'),
            c if (c as u32) < 0x20 && c != '\n' => {
                out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'));
            }
            c if is_unsafe(c) => out.push_str(&format!("<U+{:04X}>", c as u32)),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Like [`sanitise`], on one line: newlines are shown as `⏎` (`\n` in ASCII is for the caller).
pub fn sanitise_line(text: &str) -> String {
    sanitise(text).replace('\n', "\u{23ce}")
}

/// What a panic said, where it said something.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("an internal error")
}

/// A token's text on one line, each blank at its start shown as `blank`.
pub fn blanks_shown(text: &str, blank: &str) -> String {
    let safe = sanitise_line(text);
    let trimmed = safe.trim_start_matches(' ');
    blank.repeat(safe.len() - trimmed.len()) + trimmed
}

/// Whether `c` could drive a terminal; newlines are no such thing, tabs are.
pub fn is_unsafe(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn controls_become_visible() {
        assert_eq!(sanitise("a\x1b[2Jb"), "a␛[2Jb");
        assert_eq!(sanitise("a\r\nb\rc\td"), "a\nb␍c    d");
        assert_eq!(sanitise("\u{9b}31m"), "<U+009B>31m");
        assert_eq!(sanitise("\u{202e}"), "<U+202E>");
        assert_eq!(sanitise_line("a\nb"), "a⏎b");
        assert_eq!(blanks_shown("  a b\n", "␣"), "␣␣a b⏎");
    }

    proptest! {
        #[test]
        fn nothing_that_drives_a_terminal_survives(s in "\\PC*|[\\x00-\\xff]*") {
            let out = sanitise(&s);
            prop_assert!(!out.chars().any(is_unsafe));
            prop_assert_eq!(sanitise(&out).into_owned(), out.into_owned());
        }
    }
}
