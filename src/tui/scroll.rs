//! Where the reader is in the transcript. The place is held by entry and row, so that it stays
//! while text arrives below and when the window changes its width.

/// A place in the transcript, and what the last frame knew of its heights.
#[derive(Debug, Clone, Default)]
pub struct Scroll {
    /// The entry at the top and how many of its rows are above; `None` follows the end.
    at: Option<(usize, usize)>,
    /// Rows of each entry.
    heights: Vec<usize>,
    /// Rows on the screen.
    view: usize,
}

impl Scroll {
    /// The first row that is shown, when the entries are `heights` high and `view` rows are seen.
    pub fn layout(&mut self, heights: Vec<usize>, view: usize) -> usize {
        self.heights = heights;
        self.view = view;
        let top = self.top();
        if self.at.is_some() && top >= self.last_top() {
            self.at = None;
        }
        top
    }

    /// Rows below the screen.
    pub fn below(&self) -> usize {
        self.total().saturating_sub(self.top() + self.view)
    }

    /// Whether the end is followed.
    pub fn follows(&self) -> bool {
        self.at.is_none()
    }

    /// Go to the end and follow it.
    pub fn follow(&mut self) {
        self.at = None;
    }

    /// Go to the beginning.
    pub fn go_to_top(&mut self) {
        self.go(0);
    }

    /// Move by `rows`, down where positive; reaching the end follows it.
    pub fn by(&mut self, rows: isize) {
        self.go(self.top().saturating_add_signed(rows));
    }

    /// Move by `pages` screens, a row less each, so that the eye finds its line again.
    pub fn by_pages(&mut self, pages: isize) {
        self.by(pages * self.view.saturating_sub(1).max(1) as isize);
    }

    /// Move as little as shows row `row` of entry `item`.
    pub fn show(&mut self, item: usize, row: usize) {
        let wanted = self.heights.iter().take(item).sum::<usize>() + row;
        let top = self.top();
        if wanted < top {
            self.go(wanted);
        } else if wanted >= top + self.view {
            self.go((wanted + 1).saturating_sub(self.view));
        }
    }

    /// The entry that row `row` of the transcript belongs to, and which of its rows it is.
    pub fn entry_at(&self, row: usize) -> Option<(usize, usize)> {
        let mut rest = row;
        for (item, height) in self.heights.iter().enumerate() {
            if rest < *height {
                return Some((item, rest));
            }
            rest -= height;
        }
        None
    }

    fn go(&mut self, top: usize) {
        if top >= self.last_top() {
            self.at = None;
            return;
        }
        self.at = self.entry_at(top);
    }

    fn top(&self) -> usize {
        let Some((item, row)) = self.at else { return self.last_top() };
        let height = self.heights.get(item).copied().unwrap_or(0);
        let above: usize = self.heights.iter().take(item).sum();
        (above + row.min(height.saturating_sub(1))).min(self.last_top())
    }

    fn total(&self) -> usize {
        self.heights.iter().sum()
    }

    fn last_top(&self) -> usize {
        self.total().saturating_sub(self.view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B49: who has scrolled up stays there while text arrives; End follows again.
    #[test]
    fn the_place_is_held_while_text_arrives() {
        let mut scroll = Scroll::default();
        assert_eq!(scroll.layout(vec![10, 20], 10), 20);
        scroll.by(-5);
        assert_eq!(scroll.layout(vec![10, 40], 10), 15);
        assert_eq!((scroll.below(), scroll.follows()), (25, false));
        scroll.follow();
        assert_eq!(scroll.layout(vec![10, 41], 10), 41);
        assert_eq!(scroll.below(), 0);
    }

    #[test]
    fn scrolling_down_to_the_end_follows() {
        let mut scroll = Scroll::default();
        scroll.layout(vec![30], 10);
        scroll.by_pages(-1);
        assert_eq!(scroll.layout(vec![30], 10), 11);
        scroll.by(100);
        assert!(scroll.follows());
        scroll.go_to_top();
        assert_eq!(scroll.layout(vec![30], 10), 0);
    }

    #[test]
    fn shrinking_text_and_short_text_do_no_harm() {
        let mut scroll = Scroll::default();
        scroll.layout(vec![30], 10);
        scroll.by(-15);
        assert_eq!(scroll.layout(vec![3], 10), 0);
        assert_eq!(scroll.layout(Vec::new(), 0), 0);
        scroll.by(-1);
        scroll.by_pages(3);
        assert!(scroll.follows());
    }

    #[test]
    fn a_place_is_brought_into_view() {
        let mut scroll = Scroll::default();
        scroll.layout(vec![10, 30], 10);
        scroll.show(1, 0);
        assert_eq!(scroll.layout(vec![10, 30], 10), 10);
        scroll.show(1, 15);
        assert_eq!(scroll.layout(vec![10, 30], 10), 16);
    }
}
