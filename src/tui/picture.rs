//! A screen as an SVG picture, for slides and pages. Every run of text stands at its place in
//! the grid of cells, whatever font the viewer has; bars and rules are drawn as shapes, since
//! fonts leave gaps between them.

use super::app::{Event, update};
use super::caps::Depth;
use super::glyphs::UNICODE;
use super::run::{ScreenOptions, new_app};
use super::theme::{Role, Theme};
use super::view;
use super::wrap::width;
use crate::event::EngineEvent;
use crate::record::{Recording, Run as Recorded};
use anyhow::{Context, Result};
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;
use std::time::Instant;

/// A cell's width and height in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 12.0;
/// From a cell's top to the line that its text stands on.
const BASE: f64 = 13.5;

/// A colour of 8 bits a channel.
type Rgb = (u8, u8, u8);

/// The picture of `screen`, on the background of `theme`.
pub fn svg(screen: &Buffer, theme: &Theme) -> String {
    let (paper, ink) = match theme.light {
        true => ((255, 255, 255), (0x24, 0x29, 0x2f)),
        false => ((0x14, 0x18, 0x1d), (0xd8, 0xde, 0xe4)),
    };
    let of = |colour: Option<Color>, usual| colour.and_then(rgb).unwrap_or(usual);
    let paper = of(theme.style(Role::Background).bg, paper);
    let ink = of(theme.style(Role::Text).fg, ink);
    let area = screen.area;
    let size = (
        f64::from(area.width) * CELL.0 + 2.0 * MARGIN,
        f64::from(area.height) * CELL.1 + 2.0 * MARGIN,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0}\" height=\"{1:.0}\" \
         viewBox=\"0 0 {0:.0} {1:.0}\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" \
         fill=\"{2}\"/>\n<g font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', \
         monospace\" font-size=\"14\" fill=\"{3}\">\n",
        size.0,
        size.1,
        hex(paper),
        hex(ink)
    );
    for y in area.top()..area.bottom() {
        for run in runs(screen, y) {
            run.draw(&mut out, f64::from(y - area.top()) * CELL.1 + MARGIN, paper, ink);
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

/// The picture of round `index` of the first answer of `recording`, as the screen shows it.
///
/// # Errors
/// It has no such round.
pub fn round(recording: &Recording, index: usize, light: bool) -> Result<String> {
    let events = recording.runs.first().map_or(&[][..], |run: &Recorded| &run.events);
    let is_round = |event: &EngineEvent| matches!(event, EngineEvent::Round(_));
    let rounds = events.iter().enumerate().filter(|(_, event)| is_round(event));
    let count = rounds.clone().count();
    let (last, _) = rounds.clone().nth(index).with_context(|| {
        format!("there is no round {}; the answer has {count}", index.saturating_add(1))
    })?;
    let name = if light { "light" } else { "dark" };
    let mut app = new_app(&ScreenOptions { theme: Some(name.into()), ..Default::default() })?;
    // A picture has all colours and marks, whatever this terminal has.
    app.dress.theme = Theme::built_in(name, Depth::TrueColor).context("a theme is missing")?;
    app.dress.glyphs = &UNICODE;
    let ready = recording.ready.clone().map(|ready| EngineEvent::ModelReady(Box::new(ready)));
    for event in ready.into_iter().chain(events[..=last].iter().cloned()) {
        update(&mut app, Event::Engine(event), Instant::now());
    }
    Ok(svg(&view::round_alone(&app), &app.dress.theme))
}

/// Cells of a row that look the same and are drawn together.
struct Run {
    /// Cells before it.
    column: usize,
    /// Cells that it takes.
    cells: usize,
    text: String,
    fg: Color,
    bg: Color,
    modifier: Modifier,
    shape: Option<Shape>,
}

/// The runs of row `y` that have something to be seen.
fn runs(screen: &Buffer, y: u16) -> Vec<Run> {
    let area = screen.area;
    let mut runs: Vec<Run> = Vec::new();
    let mut x = area.left();
    while x < area.right() {
        let cell = &screen[(x, y)];
        let column = usize::from(x - area.left());
        let cells = width(cell.symbol()).max(1);
        x = x.saturating_add(cells as u16);
        match runs.last_mut() {
            Some(run) if run.goes_on_with(cell) => {
                run.text.push_str(cell.symbol());
                run.cells += cells;
            }
            _ => runs.push(Run {
                column,
                cells,
                text: cell.symbol().to_string(),
                fg: cell.fg,
                bg: cell.bg,
                modifier: cell.modifier,
                shape: shape(cell.symbol()),
            }),
        }
    }
    runs
}

impl Run {
    /// Whether `cell`, which follows it, can be part of it. Two blanks end a text, since viewers
    /// make one of them; so does a shape that is not the same.
    fn goes_on_with(&self, cell: &Cell) -> bool {
        let same = (self.fg, self.bg, self.modifier) == (cell.fg, cell.bg, cell.modifier);
        let blank = |text: &str| text.ends_with(' ') || text.is_empty();
        let together = match &self.shape {
            Some(shape) => shape.is_wide() && self.text.ends_with(cell.symbol()),
            None if self.text.trim().is_empty() => blank(cell.symbol()),
            None => shape(cell.symbol()).is_none() && !(blank(&self.text) && blank(cell.symbol())),
        };
        same && together
    }

    fn draw(&self, out: &mut String, top: f64, paper: Rgb, ink: Rgb) {
        let reversed = self.modifier.contains(Modifier::REVERSED);
        let (fg, bg) = (rgb(self.fg).unwrap_or(ink), rgb(self.bg));
        let (fg, bg) = if reversed { (bg.unwrap_or(paper), Some(fg)) } else { (fg, bg) };
        let left = MARGIN + self.column as f64 * CELL.0;
        let (wide, high) = (self.cells as f64 * CELL.0, CELL.1);
        // Writing to a string cannot fail.
        if let Some(bg) = bg.filter(|bg| *bg != paper) {
            let fill = hex(bg);
            let _ = writeln!(
                out,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"{fill}\"/>"
            );
        }
        let mut look = String::new();
        if fg != ink {
            let _ = write!(look, " fill=\"{}\"", hex(fg));
        }
        if let Some(shape) = &self.shape {
            let cells = self.cells as f64;
            for (x0, y0, x1, y1) in &shape.parts {
                let x = left + x0 * CELL.0;
                let wide = (x1 - x0) * CELL.0 + (cells - 1.0) * CELL.0;
                let (y, high) = (top + y0 * CELL.1, (y1 - y0) * CELL.1);
                let faint = match shape.opacity {
                    1.0 => String::new(),
                    opacity => format!(" fill-opacity=\"{opacity}\""),
                };
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\"{look}{faint}/>"
                );
            }
            return;
        }
        let text = self.text.trim_matches(' ');
        if text.is_empty() {
            return;
        }
        for (modifier, attribute) in [
            (Modifier::BOLD, " font-weight=\"bold\""),
            (Modifier::ITALIC, " font-style=\"italic\""),
            (Modifier::DIM, " fill-opacity=\"0.65\""),
            (Modifier::UNDERLINED, " text-decoration=\"underline\""),
            (Modifier::CROSSED_OUT, " text-decoration=\"line-through\""),
        ] {
            if self.modifier.contains(modifier) {
                look.push_str(attribute);
            }
        }
        let before = self.text.len() - self.text.trim_start_matches(' ').len();
        let x = left + before as f64 * CELL.0;
        let length = width(text) as f64 * CELL.0;
        let text = escape(text);
        let y = top + BASE;
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\"{look}>{text}</text>"
        );
    }
}

/// What a bar or rule looks like within its cell, whose corners are (0, 0) and (1, 1).
struct Shape {
    /// Rectangles: left, top, right, bottom.
    parts: Vec<(f64, f64, f64, f64)>,
    opacity: f64,
}

impl Shape {
    /// Whether it joins its like beside it.
    fn is_wide(&self) -> bool {
        self.parts.iter().all(|(left, _, right, _)| (*left, *right) == (0.0, 1.0))
    }
}

/// The shape of a symbol; `None` for text.
fn shape(symbol: &str) -> Option<Shape> {
    const THIN: (f64, f64) = (1.0 / CELL.0, 1.0 / CELL.1);
    let across = |left: f64, right: f64| (left, 0.5 - THIN.1 / 2.0, right, 0.5 + THIN.1 / 2.0);
    let down = |top: f64, bottom: f64| (0.5 - THIN.0 / 2.0, top, 0.5 + THIN.0 / 2.0, bottom);
    let mut opacity = 1.0;
    let parts = match symbol {
        "█" => vec![(0.0, 0.0, 1.0, 1.0)],
        "▌" => vec![(0.0, 0.0, 0.5, 1.0)],
        "▎" => vec![(0.0, 0.0, 0.25, 1.0)],
        "┃" => vec![(0.35, 0.0, 0.65, 1.0)],
        "─" => vec![across(0.0, 1.0)],
        "│" => vec![down(0.0, 1.0)],
        "┼" => vec![across(0.0, 1.0), down(0.0, 1.0)],
        "╭" => vec![across(0.5, 1.0), down(0.5, 1.0)],
        "╮" => vec![across(0.0, 0.5), down(0.5, 1.0)],
        "╰" => vec![across(0.5, 1.0), down(0.0, 0.5)],
        "╯" => vec![across(0.0, 0.5), down(0.0, 0.5)],
        "░" | "▒" => {
            opacity = if symbol == "░" { 0.3 } else { 0.6 };
            vec![(0.0, 0.0, 1.0, 1.0)]
        }
        _ => {
            let eighths = "▁▂▃▄▅▆▇".chars().position(|c| symbol.chars().eq([c]))? + 1;
            vec![(0.0, 1.0 - eighths as f64 / 8.0, 1.0, 1.0)]
        }
    };
    Some(Shape { parts, opacity })
}

fn hex((r, g, b): Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The colour as numbers; `None` for the terminal's own.
fn rgb(colour: Color) -> Option<Rgb> {
    const SIXTEEN: [Rgb; 16] = [
        (0x1c, 0x1f, 0x24),
        (0xd1, 0x4d, 0x41),
        (0x5a, 0xa0, 0x4a),
        (0xc4, 0x98, 0x2e),
        (0x43, 0x85, 0xbe),
        (0xa6, 0x5f, 0xb5),
        (0x3a, 0xa9, 0x9f),
        (0xc8, 0xcd, 0xd2),
        (0x6f, 0x77, 0x80),
        (0xf0, 0x7a, 0x6d),
        (0x86, 0xc9, 0x72),
        (0xe8, 0xc3, 0x5c),
        (0x7a, 0xb8, 0xf5),
        (0xd0, 0x95, 0xdc),
        (0x6c, 0xd4, 0xc8),
        (0xf4, 0xf7, 0xfa),
    ];
    let named = |n: usize| Some(SIXTEEN[n]);
    match colour {
        Color::Reset => None,
        Color::Rgb(r, g, b) => Some((r, g, b)),
        Color::Indexed(n @ 0..16) => named(usize::from(n)),
        Color::Indexed(n @ 16..232) => {
            let step = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            let n = n - 16;
            Some((step(n / 36), step(n / 6 % 6), step(n % 6)))
        }
        Color::Indexed(n) => {
            let grey = 8 + 10 * (n - 232);
            Some((grey, grey, grey))
        }
        Color::Black => named(0),
        Color::Red => named(1),
        Color::Green => named(2),
        Color::Yellow => named(3),
        Color::Blue => named(4),
        Color::Magenta => named(5),
        Color::Cyan => named(6),
        Color::Gray => named(7),
        Color::DarkGray => named(8),
        Color::LightRed => named(9),
        Color::LightGreen => named(10),
        Color::LightYellow => named(11),
        Color::LightBlue => named(12),
        Color::LightMagenta => named(13),
        Color::LightCyan => named(14),
        Color::White => named(15),
    }
}

/// Text between tags. Characters that XML does not allow are shown as the replacement character.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::caps::Depth;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    fn picture(name: &str, draw: impl Fn(&mut Buffer)) -> String {
        let theme = Theme::built_in(name, Depth::TrueColor).unwrap();
        let mut screen = Buffer::empty(Rect::new(0, 0, 20, 2));
        draw(&mut screen);
        svg(&screen, &theme)
    }

    #[test]
    fn text_is_escaped_and_stands_in_its_cell() {
        let red = Style::new().fg(Color::Rgb(255, 0, 0)).add_modifier(Modifier::CROSSED_OUT);
        let made = picture("dark", |screen| {
            screen.set_string(0, 0, "日本", Style::new());
            screen.set_string(4, 0, "<b>&", red);
            screen.set_string(0, 1, "a b  c", Style::new());
        });
        // Two wide characters before it: 12 + 4 × 8.4.
        let marked = "<text x=\"45.6\" y=\"25.5\" textLength=\"33.6\" fill=\"#ff0000\" \
                      text-decoration=\"line-through\">&lt;b&gt;&amp;</text>";
        assert!(made.contains(marked), "{made}");
        assert!(made.contains("textLength=\"33.6\">日本</text>"), "{made}");
        assert!(made.contains(">a b</text>") && made.contains(">c</text>"), "{made}");
        assert!(made.contains("fill=\"#14181d\""), "{made}");
    }

    #[test]
    fn bars_and_rules_are_shapes_and_colours_are_reversed() {
        let made = picture("light", |screen| {
            screen.set_string(0, 0, "───▂▂│", Style::new());
            let style = Style::new().fg(Color::Blue).add_modifier(Modifier::REVERSED);
            screen.set_string(0, 1, "x", style);
        });
        // A rule of three cells, a bar of two, a rule down; the text's ground.
        for shape in [
            "width=\"25.2\" height=\"1.0\"",
            "width=\"16.8\" height=\"4.5\"",
            "width=\"1.0\" height=\"18.0\"",
        ] {
            assert!(made.contains(shape), "{shape}: {made}");
        }
        assert!(
            made.contains("fill=\"#4385be\"/>") && made.contains("fill=\"#ffffff\">x</text>"),
            "{made}"
        );
        assert_eq!(made.matches("<text").count(), 1);
    }
}
