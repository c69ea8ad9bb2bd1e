//! One block of Markdown into rows.

use super::table::Table;
use super::{Look, blocks};
use crate::text::{sanitise, sanitise_line};
use crate::tui::highlight::Highlighter;
use crate::tui::theme::Role;
use crate::tui::wrap::{self, Break, Piece, Row};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use std::ops::Range;

/// The rows of `block`, which stands at `base` in the whole text, its plain text in `role`.
pub fn render(
    block: &str,
    base: usize,
    role: Role,
    look: Look<'_>,
    code: &mut Highlighter,
) -> Vec<Row> {
    let mut renderer = Renderer::new(block, base, look, code);
    renderer.styles = vec![look.theme.style(role)];
    let masked = blocks::mask(block);
    for (event, range) in Parser::new_ext(&masked, blocks::options()).into_offset_iter() {
        renderer.event(event, range);
    }
    renderer.flush();
    renderer.rows
}

/// What stands before the rows of a list item or a quote: once, then on every further row.
struct Prefix {
    first: Piece,
    rest: Piece,
    used: bool,
}

struct Renderer<'a> {
    highlighter: &'a mut Highlighter,
    block: &'a str,
    base: usize,
    look: Look<'a>,
    rows: Vec<Row>,
    line: Row,
    prefixes: Vec<Prefix>,
    styles: Vec<Style>,
    lists: Vec<Option<u64>>,
    links: Vec<String>,
    code: Option<Code>,
    table: Option<Table>,
    /// Whether the next block inside this one is set off by an empty row.
    gap: bool,
}

/// A code block on its way: its language and text.
struct Code {
    lang: String,
    lines: Vec<Row>,
}

impl<'a> Renderer<'a> {
    fn new(block: &'a str, base: usize, look: Look<'a>, highlighter: &'a mut Highlighter) -> Self {
        Renderer {
            highlighter,
            block,
            base,
            look,
            rows: Vec::new(),
            line: Row::new(),
            prefixes: Vec::new(),
            styles: Vec::new(),
            lists: Vec::new(),
            links: Vec::new(),
            code: None,
            table: None,
            gap: false,
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn role(&self, role: Role) -> Style {
        self.style().patch(self.look.theme.style(role))
    }

    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => {
                let source = (range.len() == text.len()).then_some(range.start);
                self.text(&text, source);
            }
            Event::Code(text) => {
                let text = blocks::unmask(&text);
                let source = self.block[range.clone()].find(&*text).map(|at| range.start + at);
                let style = self.role(Role::Code);
                self.push(&text, source, style);
            }
            Event::Html(text) | Event::InlineHtml(text) => self.text(&text, Some(range.start)),
            Event::SoftBreak | Event::HardBreak => self.flush(),
            Event::Rule => {
                let rule = self.look.glyphs.horizontal.repeat(self.inner_width().min(40));
                let style = self.look.theme.style(Role::Border);
                self.line.push(Piece::new(rule, style));
                self.flush();
            }
            Event::TaskListMarker(done) => {
                let style = self.role(Role::List);
                self.line.push(Piece::new(if done { "[x] " } else { "[ ] " }, style));
            }
            Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text, None),
            Event::FootnoteReference(name) => self.text(&format!("[^{name}]"), None),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let modifier = match &tag {
            Tag::Emphasis => Some(Modifier::ITALIC),
            Tag::Strong => Some(Modifier::BOLD),
            Tag::Strikethrough => Some(Modifier::CROSSED_OUT),
            _ => None,
        };
        if let Some(modifier) = modifier {
            return self.styles.push(self.style().add_modifier(modifier));
        }
        match tag {
            Tag::Link { dest_url, .. } => {
                self.links.push(sanitise_line(&blocks::unmask(&dest_url)));
                self.styles.push(self.role(Role::Link));
            }
            Tag::Image { dest_url, .. } => {
                self.links.push(sanitise_line(&blocks::unmask(&dest_url)));
                self.styles.push(self.role(Role::Link));
                self.push("image: ", None, self.style());
            }
            _ => self.start_block(tag),
        }
    }

    fn start_block(&mut self, tag: Tag<'_>) {
        self.flush();
        let nested_list = matches!(tag, Tag::List(_)) && !self.lists.is_empty();
        if self.gap && !nested_list && !matches!(tag, Tag::Item) {
            self.gap = false;
            self.blank();
        }
        match tag {
            Tag::Heading { .. } => self.styles.push(self.role(Role::Heading)),
            Tag::BlockQuote(_) => {
                let bar = format!("{} ", self.look.glyphs.quote);
                let bar = Piece::new(bar, self.look.theme.style(Role::Quote));
                self.prefixes.push(Prefix { first: bar.clone(), rest: bar, used: false });
                self.styles.push(self.role(Role::Quote));
            }
            Tag::List(start) => self.lists.push(start),
            Tag::Item => {
                if self.gap {
                    self.gap = false;
                    self.blank();
                }
                self.start_item();
            }
            Tag::CodeBlock(kind) => {
                let lang = match kind {
                    CodeBlockKind::Fenced(info) => sanitise_line(&blocks::unmask(&info)),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some(Code { lang, lines: vec![Row::new()] });
            }
            Tag::Table(alignments) => self.table = Some(Table::new(alignments)),
            _ => {}
        }
    }

    fn start_item(&mut self) {
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                let marker = format!("{number}. ");
                *number += 1;
                marker
            }
            _ => format!("{} ", self.look.glyphs.bullet),
        };
        let style = self.look.theme.style(Role::List);
        let rest = Piece::new(" ".repeat(wrap::width(&marker)), style);
        self.prefixes.push(Prefix { first: Piece::new(marker, style), rest, used: false });
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                let url = self.links.pop().unwrap_or_default();
                let shown = self.line.iter().any(|piece| url.ends_with(&piece.text));
                if !shown && !url.is_empty() {
                    let style = self.look.theme.style(Role::Muted);
                    self.push(&format!(" ({url})"), None, style);
                }
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.line);
                if let Some(table) = &mut self.table {
                    table.end_cell(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    for row in table.rows(self.inner_width(), self.look) {
                        self.prefixed(row);
                    }
                }
                self.gap = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
                self.gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.prefixes.pop();
                self.styles.pop();
                self.gap = true;
            }
            TagEnd::Item => {
                self.flush();
                self.empty_item();
                self.prefixes.pop();
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.gap |= self.lists.is_empty();
            }
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.flush();
                self.gap = true;
            }
            _ => self.flush(),
        }
    }

    /// An item without text still has its marker.
    fn empty_item(&mut self) {
        if self.prefixes.last().is_some_and(|prefix| !prefix.used) {
            self.prefixed(Row::new());
        }
    }

    /// Text of the source, or decoded from it; line breaks in it break the row.
    fn text(&mut self, text: &str, source: Option<usize>) {
        let style =
            if self.code.is_some() { self.look.theme.style(Role::CodeBlock) } else { self.style() };
        let mut at = 0;
        for (i, part) in text.split('\n').enumerate() {
            if i > 0 {
                match &mut self.code {
                    Some(code) => code.lines.push(Row::new()),
                    None => self.flush(),
                }
            }
            self.push(part, source.map(|source| source + at), style);
            at += part.len() + 1;
        }
    }

    /// One piece, made safe: an entity may have been decoded into a control character.
    fn push(&mut self, text: &str, source: Option<usize>, style: Style) {
        if text.is_empty() {
            return;
        }
        let text = &*blocks::unmask(text);
        let safe = sanitise(text).replace('\n', " ");
        let source = source.filter(|_| safe == text).map(|source| self.base + source);
        let piece = Piece { text: safe, style, source };
        match &mut self.code {
            Some(Code { lines, .. }) => {
                if let Some(line) = lines.last_mut() {
                    line.push(piece);
                }
            }
            None => self.line.push(piece),
        }
    }

    fn end_code(&mut self) {
        let Some(mut code) = self.code.take() else { return };
        if code.lines.last().is_some_and(Vec::is_empty) {
            code.lines.pop();
        }
        self.highlight(&mut code);
        let width = self.inner_width().saturating_sub(2).max(1);
        if !code.lang.is_empty() {
            let label = wrap::truncate(&code.lang, width, self.look.glyphs.ellipsis);
            let style = self.look.theme.style(Role::Muted);
            self.prefixed(vec![Piece::new(format!("  {label}"), style)]);
        }
        let bar = format!("{} ", self.look.glyphs.quote);
        let bar = Piece::new(bar, self.look.theme.style(Role::Border));
        for line in code.lines {
            for row in wrap::wrap(&line, width, Break::Anywhere) {
                self.prefixed(std::iter::once(bar.clone()).chain(row).collect());
            }
        }
        self.gap = true;
    }

    fn highlight(&mut self, code: &mut Code) {
        let texts: Vec<String> =
            code.lines.iter().map(|line| line.iter().map(|p| p.text.as_str()).collect()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let runs = self.highlighter.runs(&code.lang, &texts, self.look.theme);
        for (line, runs) in code.lines.iter_mut().zip(runs) {
            if let [piece] = line.as_slice() {
                *line = wrap::split(piece, &runs);
            }
        }
    }

    fn inner_width(&self) -> usize {
        let taken: usize = self.prefixes.iter().map(|p| wrap::width(&p.first.text)).sum();
        self.look.width.saturating_sub(taken).max(1)
    }

    /// End the row in progress, if there is one.
    fn flush(&mut self) {
        if self.line.is_empty() || self.table.is_some() {
            return;
        }
        let line = std::mem::take(&mut self.line);
        for row in wrap::wrap(&line, self.inner_width(), Break::Words) {
            self.prefixed(row);
        }
    }

    fn blank(&mut self) {
        let row = self.prefixes.iter().map(|prefix| prefix.rest.clone()).collect();
        self.rows.push(row);
    }

    fn prefixed(&mut self, row: Row) {
        let mut out = Row::new();
        for prefix in &mut self.prefixes {
            out.push(if prefix.used { prefix.rest.clone() } else { prefix.first.clone() });
            prefix.used = true;
        }
        out.extend(row);
        // Deep nesting can leave less room than the prefixes take.
        self.rows.extend(wrap::wrap(&out, self.look.width, Break::Anywhere).into_iter().take(1));
    }
}
