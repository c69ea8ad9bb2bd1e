//! Stop strings: text at which an answer ends.

/// Looks for stop strings in text that comes in parts, and holds back what may become one, so
/// that no part of a stop string is ever shown.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// Text that was pushed and not given back yet: the start of a stop string, perhaps.
    held: String,
    /// Bytes given back so far.
    given: usize,
}

/// What a part of the text brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopStep {
    /// Text that can be shown now: it is part of no stop string.
    pub text: String,
    /// Where the answer ends, in bytes from its start, if a stop string was found. The matcher is
    /// done then.
    pub cut: Option<usize>,
}

impl StopMatcher {
    /// A matcher at the start of an answer. Empty stop strings are ignored.
    pub fn new(stops: &[String]) -> StopMatcher {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        StopMatcher { stops, held: String::new(), given: 0 }
    }

    /// Take the next part of the text. Of several stop strings the one that is complete first
    /// counts, and of those that end together the longest, so that the parts make no difference.
    pub fn push(&mut self, text: &str) -> StopStep {
        self.held.push_str(text);
        let found = first_stop(&self.held, &self.stops);
        let safe = found.unwrap_or_else(|| self.held.len() - self.open());
        let rest = self.held.split_off(safe);
        let text = std::mem::replace(&mut self.held, rest);
        self.given += text.len();
        if found.is_some() {
            self.held.clear();
        }
        StopStep { text, cut: found.map(|_| self.given) }
    }

    /// End the text: what was held back is text after all.
    pub fn finish(&mut self) -> String {
        self.given += self.held.len();
        std::mem::take(&mut self.held)
    }

    /// The length of the longest end of the held text that is the start of a stop string.
    fn open(&self) -> usize {
        let of = |stop: &String| {
            (1..stop.len())
                .rev()
                .find(|&n| self.held.as_bytes().ends_with(&stop.as_bytes()[..n]))
                .unwrap_or(0)
        };
        self.stops.iter().map(of).max().unwrap_or(0)
    }
}

/// Where the stop string that is complete first begins.
fn first_stop(text: &str, stops: &[String]) -> Option<usize> {
    let ends = |stop: &String| text.find(stop.as_str()).map(|start| (start + stop.len(), start));
    stops.iter().filter_map(ends).min().map(|(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matcher(stops: &[&str]) -> StopMatcher {
        StopMatcher::new(&stops.iter().map(|s| s.to_string()).collect::<Vec<_>>())
    }

    fn step(text: &str, cut: Option<usize>) -> StopStep {
        StopStep { text: text.into(), cut }
    }

    #[test]
    fn a_stop_string_across_parts() {
        let mut matcher = matcher(&["\nUser:", "END"]);
        assert_eq!(matcher.push("Hi E"), step("Hi ", None));
        assert_eq!(matcher.push("N\nU"), step("EN", None));
        assert_eq!(matcher.push("ser: x"), step("", Some(5)));
    }

    #[test]
    fn what_is_held_comes_out_at_the_end() {
        let mut matcher = matcher(&["aab", ""]);
        assert_eq!(matcher.push("aaa"), step("a", None));
        assert_eq!(matcher.finish(), "aa");
        assert_eq!(matcher.finish(), "");
    }

    #[test]
    fn the_first_of_several_counts() {
        assert_eq!(matcher(&["c", "bc"]).push("abc"), step("a", Some(1)));
        assert_eq!(matcher(&["abc", "b"]).push("abc"), step("a", Some(1)));
        assert_eq!(matcher(&["é"]).push("xé"), step("x", Some(1)));
    }

    proptest! {
        /// In whatever parts the text comes, it ends at the same place.
        #[test]
        fn parts_do_not_matter(
            parts in prop::collection::vec("[abé]{0,3}", 0..12),
            stops in prop::collection::vec("[abé]{1,4}", 0..3),
        ) {
            let whole = parts.concat();
            let mut matcher = StopMatcher::new(&stops);
            let mut shown = String::new();
            let mut cut = None;
            for part in &parts {
                let step = matcher.push(part);
                shown.push_str(&step.text);
                cut = step.cut;
                if cut.is_some() {
                    break;
                }
            }
            if cut.is_none() {
                shown.push_str(&matcher.finish());
            }
            prop_assert_eq!(cut, first_stop(&whole, &stops));
            prop_assert_eq!(shown, &whole[..cut.unwrap_or(whole.len())]);
        }
    }
}
