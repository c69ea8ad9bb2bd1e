//! The code blocks of a text, to be copied.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};

/// A code block, whole or on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeBlock {
    /// What stands behind its fence; mostly the language.
    pub info: String,
    /// Its lines, without the end of the last one: pasted into a shell, that would run them.
    pub text: String,
}

/// The code blocks of `text` in order, those in lists and quotes too.
pub fn code_blocks(text: &str) -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<CodeBlock> = None;
    for event in Parser::new_ext(text, super::blocks::options()) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let info = match kind {
                    CodeBlockKind::Fenced(info) => info.trim().to_owned(),
                    CodeBlockKind::Indented => String::new(),
                };
                open = Some(CodeBlock { info, text: String::new() });
            }
            Event::Text(line) => {
                if let Some(block) = &mut open {
                    block.text.push_str(&line);
                }
            }
            Event::End(_) => {
                if let Some(mut block) = open.take() {
                    block.text.truncate(block.text.trim_end_matches('\n').len());
                    blocks.push(block);
                }
            }
            _ => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_whole_and_in_order() {
        let text = "Do\n\n```sh\nmake  && \\\n\tmake test\n\n```\n\n- a list\n\n  ~~~ rust,ignore\n  let x;\n  ~~~\n\n> ```\n> quoted\n> ```\n\n    indented\n\n```\nnot closed";
        let got: Vec<(String, String)> =
            code_blocks(text).into_iter().map(|block| (block.info, block.text)).collect();
        let expected = [
            ("sh", "make  && \\\n\tmake test"),
            ("rust,ignore", "let x;"),
            ("", "quoted"),
            ("", "indented"),
            ("", "not closed"),
        ];
        assert_eq!(got, expected.map(|(info, text)| (info.to_owned(), text.to_owned())));
        assert!(code_blocks("`inline` only").is_empty());
    }
}
