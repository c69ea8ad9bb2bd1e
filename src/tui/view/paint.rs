//! Putting rows of pieces into cells, inside an area and never outside the buffer.

use crate::tui::app::App;
use crate::tui::theme::Role;
use crate::tui::wrap::{self, Piece, Row};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// A part of the screen to draw into, with its own origin.
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl<'a> Canvas<'a> {
    /// The part `area` of `buffer`, as far as it is there.
    pub fn new(buffer: &'a mut Buffer, area: Rect) -> Canvas<'a> {
        let area = area.intersection(buffer.area);
        Canvas { buffer, area }
    }

    /// A part of it, as far as it is there; `x` and `y` count from its own corner.
    pub fn part(&mut self, x: usize, y: usize, width: usize, height: usize) -> Canvas<'_> {
        let cut = |n: usize, most: u16| u16::try_from(n).unwrap_or(u16::MAX).min(most);
        let Rect { width: columns, height: rows, .. } = self.area;
        let (x, y) = (cut(x, columns), cut(y, rows));
        let (width, height) = (cut(width, columns - x), cut(height, rows - y));
        let area = Rect { x: self.area.x + x, y: self.area.y + y, width, height };
        Canvas::new(self.buffer, area)
    }

    /// Cells in a row.
    pub fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// Rows.
    pub fn height(&self) -> usize {
        usize::from(self.area.height)
    }

    /// Draw `text` at column `x` of row `y`, cut at the edge; returns the column after it.
    pub fn text(&mut self, x: usize, y: usize, text: &str, style: Style) -> usize {
        if x >= self.width() || y >= self.height() {
            return x;
        }
        let (column, row) = (self.area.x + x as u16, self.area.y + y as u16);
        let (end, _) = self.buffer.set_stringn(column, row, text, self.width() - x, style);
        usize::from(end - self.area.x)
    }

    /// Draw `row` at column `x` of row `y`; returns the column after it.
    pub fn row(&mut self, x: usize, y: usize, row: &[Piece]) -> usize {
        row.iter().fold(x, |x, piece| self.text(x, y, &piece.text, piece.style))
    }

    /// Draw `row` so that it ends at the right edge.
    pub fn right(&mut self, y: usize, row: &[Piece]) {
        let x = self.width().saturating_sub(wrap::row_width(row));
        self.row(x, y, row);
    }

    /// The part of the screen that this is.
    pub fn area(&self) -> Rect {
        self.area
    }

    /// Lay `style` over the cells `columns` of row `y`.
    pub fn restyle(&mut self, columns: std::ops::Range<usize>, y: usize, style: Style) {
        let end = columns.end.min(self.width());
        if columns.start >= end || y >= self.height() {
            return;
        }
        let x = self.area.x + columns.start as u16;
        let width = (end - columns.start) as u16;
        self.buffer.set_style(Rect { x, y: self.area.y + y as u16, width, height: 1 }, style);
    }

    /// A rule over row `y`, with a title in it.
    pub fn rule(&mut self, y: usize, title: &[Piece], app: &App) {
        let style = app.dress.theme.style(Role::Border);
        let line = app.dress.glyphs.horizontal.repeat(self.width());
        self.text(0, y, &line, style);
        if !title.is_empty() {
            let x = self.text(1, y, " ", style);
            let x = self.row(x, y, title);
            self.text(x, y, " ", style);
        }
    }

    /// A vertical rule over the whole area.
    pub fn vertical(&mut self, app: &App) {
        let style = app.dress.theme.style(Role::Border);
        for y in 0..self.height() {
            self.text(0, y, app.dress.glyphs.vertical, style);
        }
    }

    /// Empty the area and draw a frame around it, with a title; returns what is inside.
    pub fn window(mut self, title: &str, app: &App) -> Canvas<'a> {
        let style = app.dress.theme.style(Role::Text);
        for y in 0..self.height() {
            let blank = " ".repeat(self.width());
            self.text(0, y, &blank, style);
        }
        let position = self.area.as_position();
        for y in position.y..position.y + self.area.height {
            for x in position.x..position.x + self.area.width {
                if let Some(cell) = self.buffer.cell_mut((x, y)) {
                    cell.reset();
                }
            }
        }
        self.buffer.set_style(self.area, app.dress.theme.style(Role::Background));
        let title = [Piece::new(title, app.dress.theme.style(Role::Title))];
        let bottom = self.height().saturating_sub(1);
        self.rule(0, &title, app);
        self.rule(bottom, &[], app);
        let border = app.dress.theme.style(Role::Border);
        for y in 1..bottom {
            self.text(0, y, app.dress.glyphs.vertical, border);
            self.text(self.width().saturating_sub(1), y, app.dress.glyphs.vertical, border);
        }
        let ascii = app.dress.glyphs.horizontal == "-";
        let corners = if ascii { ["+"; 4] } else { ["╭", "╮", "╰", "╯"] };
        let right = self.width().saturating_sub(1);
        for (corner, (x, y)) in
            corners.into_iter().zip([(0, 0), (right, 0), (0, bottom), (right, bottom)])
        {
            self.text(x, y, corner, border);
        }
        let area = self.area;
        let inside = Rect {
            x: area.x + 2.min(area.width),
            y: area.y + 1.min(area.height),
            width: area.width.saturating_sub(4),
            height: area.height.saturating_sub(2),
        };
        Canvas::new(self.buffer, inside)
    }
}

/// A part of `area` in its middle.
pub fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    Rect { x, y, width, height }
}

/// Pieces joined by a muted dot.
pub fn dotted(parts: Vec<Piece>, app: &App) -> Row {
    let style = app.dress.theme.style(Role::Muted);
    let dot = Piece::new(format!(" {} ", app.dress.glyphs.dot), style);
    let mut row = Row::new();
    for part in parts {
        if !row.is_empty() {
            row.push(dot.clone());
        }
        row.push(part);
    }
    row
}

/// A horizontal bar of `cells`, `share` of it full.
pub fn bar(share: f64, cells: usize, app: &App) -> (String, String) {
    let [full, empty, _] = app.dress.glyphs.bar;
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * cells as f64).round() as usize;
    (full.repeat(filled), empty.repeat(cells - filled))
}

/// A column of one cell, `share` high.
pub fn column(share: f64, app: &App) -> &'static str {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    app.dress.glyphs.columns[((share * 8.0).ceil() as usize).saturating_sub(1).min(7)]
}

/// Microseconds in words: `41.2 ms`, `1.30 s`.
pub fn time(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} us"),
        us if us < 100_000.0 => format!("{:.1} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        let shown = [0.0, 950.0, 41_200.0, 250_000.0, 1_300_000.0].map(time);
        assert_eq!(shown, ["0 us", "950 us", "41.2 ms", "250 ms", "1.30 s"]);
    }

    /// B42: nothing is drawn outside, wherever the area lies.
    #[test]
    fn an_area_outside_the_buffer_draws_nothing() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 2));
        let mut canvas = Canvas::new(&mut buffer, Rect::new(2, 1, 50, 50));
        canvas.text(0, 0, "日本語", Style::new());
        canvas.text(0, 40, "x", Style::new());
        canvas.text(9, 0, "x", Style::new());
        let mut canvas = Canvas::new(&mut buffer, Rect::new(9, 9, 5, 5));
        assert_eq!(canvas.text(0, 0, "x", Style::new()), 0);
        assert_eq!(buffer, Buffer::with_lines(["    ", "  日"]));
    }
}
