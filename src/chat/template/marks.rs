//! Finding a message's content in a rendered conversation.

use super::Piece;
use crate::event::{ChatMessage, Role};

/// Marks that stand for contents: text that occurs in no message and that no template looks for.
#[derive(Debug)]
pub(super) struct Marks {
    open: String,
}

const CLOSE: char = '\u{f0001}';

impl Marks {
    pub(super) fn new(messages: &[ChatMessage]) -> Marks {
        let mut open = String::from('\u{f0000}');
        while messages.iter().any(|m| m.content.contains(&open)) {
            open.push('\u{f0000}');
        }
        Marks { open }
    }

    fn mark(&self, message: usize) -> String {
        format!("{}{message}{CLOSE}", self.open)
    }

    /// The messages whose content is worth finding: all but empty ones, on whose emptiness
    /// templates decide.
    pub(super) fn worth_marking(&self, messages: &[ChatMessage]) -> Vec<usize> {
        (0..messages.len()).filter(|&m| !messages[m].content.is_empty()).collect()
    }

    /// All contents, marks in the place of the `chosen` ones.
    pub(super) fn contents(&self, messages: &[ChatMessage], chosen: &[usize]) -> Vec<String> {
        let mut contents: Vec<String> = messages.iter().map(|m| m.content.clone()).collect();
        for &m in chosen {
            contents[m] = self.mark(m);
        }
        contents
    }

    /// Split `marked`, a rendering with marks, into pieces that together are `text`, the same
    /// rendering without marks. `None` where it is not the same with the contents (or the
    /// contents without the white space around them) put back.
    pub(super) fn split(
        &self,
        marked: &str,
        text: &str,
        messages: &[ChatMessage],
    ) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut rest = text;
        let mut sections = marked.split(self.open.as_str());
        let first = sections.next()?;
        rest = rest.strip_prefix(first)?;
        push_text(&mut pieces, first);
        let mut seen = vec![false; messages.len()];
        for section in sections {
            let (number, after) = section.split_once(CLOSE)?;
            let index: usize = number.parse().ok()?;
            let message = messages.get(index)?;
            let whole = message.content.as_str();
            let forms = [whole, whole.trim_end(), whole.trim_start(), whole.trim()];
            let (form, left) = forms.iter().find_map(|form| {
                let left = rest.strip_prefix(*form)?.strip_prefix(after)?;
                Some((*form, left))
            })?;
            if std::mem::replace(&mut seen[index], true) {
                return None;
            }
            rest = left;
            pieces.push(match (&message.ids, message.role) {
                (Some(ids), Role::Assistant) => Piece::Ids(ids.clone()),
                _ => Piece::Content(form.to_owned()),
            });
            push_text(&mut pieces, after);
        }
        rest.is_empty().then_some(pieces)
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}
