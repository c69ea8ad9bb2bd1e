//! Stop strings: where an answer's text ends, across tokens and rounds.

/// What of a piece of text may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Text that cannot be part of a stop string, older held-back text included.
    pub text: String,
    /// A stop string was met; nothing after `text` belongs to the answer.
    pub stopped: bool,
}

/// Looks for stop strings. Text that may be the beginning of one is held back.
#[derive(Debug, Clone, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// For these strings; empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        StopMatcher { stops, held: String::new() }
    }

    /// The next piece of text.
    pub fn push(&mut self, piece: &str) -> Seen {
        if self.stops.is_empty() {
            return Seen { text: piece.to_owned(), stopped: false };
        }
        self.held.push_str(piece);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            let text = self.held[..at].to_owned();
            self.held.clear();
            return Seen { text, stopped: true };
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let held = self.held.split_off(self.held.len() - keep);
        Seen { text: std::mem::replace(&mut self.held, held), stopped: false }
    }

    /// Whether something is held back.
    pub fn holds_back(&self) -> bool {
        !self.held.is_empty()
    }

    /// What was held back, when the text ends without a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Length in bytes of the longest proper beginning of `stop` at the end of `text`.
fn overlap(text: &str, stop: &str) -> usize {
    let ends = stop.char_indices().map(|(i, _)| i);
    ends.filter(|&i| i > 0 && text.ends_with(&stop[..i])).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matcher(stops: &[&str]) -> StopMatcher {
        StopMatcher::new(&stops.iter().map(|s| s.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn a_stop_string_over_three_pieces() {
        let mut m = matcher(&["END."]);
        assert_eq!(m.push("one E"), Seen { text: "one ".into(), stopped: false });
        assert_eq!(m.push("N"), Seen::default());
        assert_eq!(m.push("D. two"), Seen { text: String::new(), stopped: true });
    }

    #[test]
    fn what_was_held_back_comes_when_it_is_none() {
        let mut m = matcher(&["é!", "abc"]);
        assert_eq!(m.push("ab").text, "");
        assert_eq!(m.push("x é").text, "abx ");
        assert_eq!(m.finish(), "é");
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            text in "[ab]{0,24}",
            stop in "[ab]{1,4}",
            cuts in proptest::collection::vec(0usize..25, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| *c <= text.len()).collect();
            cuts.push(0);
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut m = matcher(&[&stop]);
            let (mut got, mut stopped) = (String::new(), false);
            for pair in cuts.windows(2) {
                let seen = m.push(&text[pair[0]..pair[1]]);
                got.push_str(&seen.text);
                if seen.stopped {
                    stopped = true;
                    break;
                }
            }
            if !stopped {
                got.push_str(&m.finish());
            }
            prop_assert_eq!(stopped, text.contains(&stop));
            prop_assert_eq!(got.as_str(), text.split(&stop).next().unwrap());
        }
    }
}
