//! Tables: columns as wide as their cells where the screen allows, else cells are wrapped.

use super::Look;
use crate::tui::theme::Role;
use crate::tui::wrap::{self, Break, Piece, Row};
use pulldown_cmark::Alignment;
use ratatui::style::Modifier;

/// A table on its way.
pub struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Row>>,
    open: Vec<Row>,
}

impl Table {
    /// A table whose columns are aligned like that.
    pub fn new(alignments: Vec<Alignment>) -> Table {
        Table { alignments, rows: Vec::new(), open: Vec::new() }
    }

    /// The cell in progress is complete.
    pub fn end_cell(&mut self, cell: Row) {
        self.open.push(cell);
    }

    /// The row in progress is complete; the first one is the head.
    pub fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.open));
    }

    /// The table in `width` cells.
    pub fn rows(mut self, width: usize, look: Look<'_>) -> Vec<Row> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        if columns == 0 {
            return Vec::new();
        }
        let natural = (0..columns).map(|c| {
            self.rows.iter().filter_map(|row| row.get(c)).map(|cell| wrap::row_width(cell)).max()
        });
        let natural: Vec<usize> = natural.map(|width| width.unwrap_or(0).max(1)).collect();
        let widths = shrink(natural, width.saturating_sub(3 * (columns - 1)));
        if widths.iter().sum::<usize>() + 3 * (columns - 1) > width {
            return self.cell_by_cell(width, look);
        }
        let line = look.theme.style(Role::Table);
        let separator = Piece::new(format!(" {} ", look.glyphs.vertical), line);
        let mut out = Vec::new();
        for (r, row) in self.rows.iter_mut().enumerate() {
            row.resize(columns, Row::new());
            if r == 0 {
                row.iter_mut().flatten().for_each(|piece| {
                    piece.style = piece.style.add_modifier(Modifier::BOLD);
                });
            }
            let cells: Vec<Vec<Row>> = row
                .iter()
                .zip(&widths)
                .map(|(cell, &width)| wrap::wrap(cell, width, Break::Words))
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(1);
            for y in 0..height {
                let mut line = Row::new();
                for (c, cell) in cells.iter().enumerate() {
                    if c > 0 {
                        line.push(separator.clone());
                    }
                    let part = cell.get(y).cloned().unwrap_or_default();
                    line.extend(aligned(part, widths[c], self.alignments.get(c)));
                }
                out.push(line);
            }
            if r == 0 {
                let rule = widths.iter().map(|&w| look.glyphs.horizontal.repeat(w));
                let dash = look.glyphs.horizontal;
                let joint = format!("{dash}{}{dash}", look.glyphs.cross);
                let rule = rule.collect::<Vec<_>>().join(&joint);
                out.push(vec![Piece::new(rule, line)]);
            }
        }
        out
    }

    /// Too many columns for the screen: a cell a row.
    fn cell_by_cell(self, width: usize, look: Look<'_>) -> Vec<Row> {
        let style = look.theme.style(Role::Table);
        let mut out = Vec::new();
        for row in self.rows {
            for cell in row {
                out.extend(wrap::wrap(&cell, width, Break::Words));
            }
            out.push(vec![Piece::new(look.glyphs.horizontal.repeat(width.min(8)), style)]);
        }
        out
    }
}

fn aligned(row: Row, width: usize, alignment: Option<&Alignment>) -> Row {
    let space = width.saturating_sub(wrap::row_width(&row));
    let left = match alignment {
        Some(Alignment::Right) => space,
        Some(Alignment::Center) => space / 2,
        _ => 0,
    };
    let blank = |cells: usize| Piece { text: " ".repeat(cells), ..Piece::default() };
    std::iter::once(blank(left)).chain(row).chain([blank(space - left)]).collect()
}

/// `widths` made smaller, the widest first, until they fit into `room`; none below 3.
fn shrink(mut widths: Vec<usize>, room: usize) -> Vec<usize> {
    while widths.iter().sum::<usize>() > room {
        match widths.iter_mut().max() {
            Some(widest) if *widest > 3 => *widest -= 1,
            _ => break,
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_columns_give_way() {
        assert_eq!(shrink(vec![10, 4, 2], 12), [6, 4, 2]);
        assert_eq!(shrink(vec![5, 5], 20), [5, 5]);
        assert_eq!(shrink(vec![9, 9], 2), [3, 3]);
    }
}
