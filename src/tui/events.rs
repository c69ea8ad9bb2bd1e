//! Input, from a terminal or from a test.

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Where input comes from.
pub trait EventSource {
    /// The next event; `None` when there will be none any more. Cancelling it loses nothing.
    fn next(&mut self) -> impl Future<Output = Option<io::Result<Event>>>;

    /// Read no more until [`EventSource::take_back`], since another program has the terminal.
    fn release(&mut self) {}

    /// Read again.
    fn take_back(&mut self) {}

    /// An event that is there already. Asked with the task's own waker: crossterm keeps the one
    /// that it was asked with last.
    fn ready(&mut self) -> impl Future<Output = Option<Option<io::Result<Event>>>> {
        poll_fn(|context| {
            Poll::Ready(match pin!(self.next()).poll(context) {
                Poll::Ready(event) => Some(event),
                Poll::Pending => None,
            })
        })
    }
}

/// The terminal's input. Its reader lives as long as the stream, and would take keys away from
/// any other program.
#[derive(Debug, Default)]
pub struct Keys(Option<EventStream>);

impl Keys {
    /// Input from now on. Needs the runtime.
    pub fn new() -> Keys {
        Keys(Some(EventStream::new()))
    }
}

impl EventSource for Keys {
    async fn next(&mut self) -> Option<io::Result<Event>> {
        match &mut self.0 {
            Some(stream) => stream.next().await,
            None => std::future::pending().await,
        }
    }

    fn release(&mut self) {
        self.0 = None;
    }

    fn take_back(&mut self) {
        *self = Keys::new();
    }
}

/// Input that a test sends.
impl EventSource for tokio::sync::mpsc::UnboundedReceiver<Event> {
    async fn next(&mut self) -> Option<io::Result<Event>> {
        self.recv().await.map(Ok)
    }
}

/// What is left of an event for the screen: releases are dropped (Windows and the kitty protocol
/// send them), and a burst of keys that nobody could type is a paste.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A key was pressed, or repeats.
    Key(KeyEvent),
    /// Text was pasted; line ends are `\n`.
    Paste(String),
    /// The mouse moved, clicked or scrolled.
    Mouse(crossterm::event::MouseEvent),
    /// The window has another size, or came back to the front.
    Redraw,
}

/// Two keys closer than this did not come from fingers.
const BURST_GAP: Duration = Duration::from_millis(8);
/// So many keys in a row make a burst.
const BURST_KEYS: usize = 6;
/// Enter this soon after a burst still belongs to it.
const BURST_TAIL: Duration = Duration::from_millis(120);

/// Finds pastes in terminals that send them as keys: there an Enter in the middle would send half
/// of the text.
#[derive(Debug, Default)]
pub struct Filter {
    last: Option<Instant>,
    keys: usize,
    burst_until: Option<Instant>,
}

impl Filter {
    /// What `event`, which arrived at `now`, means; `None` for nothing.
    pub fn input(&mut self, event: Event, now: Instant) -> Option<Input> {
        match event {
            Event::Key(key) if key.kind == KeyEventKind::Release => None,
            Event::Key(key) => Some(self.key(key, now)),
            Event::Paste(text) => Some(Input::Paste(normalise(&text))),
            Event::Mouse(mouse) => Some(Input::Mouse(mouse)),
            Event::Resize(..) | Event::FocusGained => Some(Input::Redraw),
            Event::FocusLost => None,
        }
    }

    fn key(&mut self, key: KeyEvent, now: Instant) -> Input {
        let close = self.last.is_some_and(|last| now.duration_since(last) <= BURST_GAP);
        let typed = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        let is_text = typed && matches!(key.code, KeyCode::Char(_) | KeyCode::Enter);
        let in_burst = self.burst_until.is_some_and(|until| now <= until);
        self.last = Some(now);
        self.keys = match (is_text, close) {
            (true, true) => self.keys + 1,
            (true, false) => 1,
            (false, _) => 0,
        };
        let burst = self.keys >= BURST_KEYS || (in_burst && is_text);
        if burst {
            self.burst_until = Some(now + if self.keys > 1 { BURST_TAIL } else { Duration::ZERO });
        }
        if burst && key.code == KeyCode::Enter && typed {
            return Input::Paste("\n".into());
        }
        Input::Key(key)
    }
}

/// Pasted text with line ends as `\n`, whatever the terminal made of them.
fn normalise(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Input that was read ahead, in order, resizes merged into one.
#[derive(Debug, Default)]
pub struct Batch(VecDeque<Input>);

impl Batch {
    /// Add `input`; a second redraw in a row is one.
    pub fn push(&mut self, input: Input) {
        if input == Input::Redraw && self.0.back() == Some(&Input::Redraw) {
            return;
        }
        self.0.push_back(input);
    }
}

impl Iterator for Batch {
    type Item = Input;
    fn next(&mut self) -> Option<Input> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    /// B41: a paste that arrives as keys is one message, not one a line.
    #[test]
    fn a_burst_of_keys_is_a_paste() {
        let mut filter = Filter::default();
        let mut now = Instant::now();
        let mut pasted_newlines = 0;
        for line in ["hello there", "second line", "x"] {
            for c in line.chars() {
                now += Duration::from_millis(2);
                assert!(matches!(filter.input(key(KeyCode::Char(c)), now), Some(Input::Key(_))));
            }
            now += Duration::from_millis(2);
            pasted_newlines += usize::from(
                filter.input(key(KeyCode::Enter), now) == Some(Input::Paste("\n".into())),
            );
        }
        assert_eq!(pasted_newlines, 3);
        now += Duration::from_millis(500);
        assert!(matches!(filter.input(key(KeyCode::Enter), now), Some(Input::Key(_))));
    }

    #[test]
    fn typing_is_not_a_paste() {
        let mut filter = Filter::default();
        let mut now = Instant::now();
        for _ in 0..30 {
            now += Duration::from_millis(30);
            filter.input(key(KeyCode::Char('a')), now);
        }
        now += Duration::from_millis(30);
        assert!(matches!(filter.input(key(KeyCode::Enter), now), Some(Input::Key(_))));
    }

    /// B40: every kind of line end is one line end.
    #[test]
    fn line_ends_of_a_paste_are_one_kind() {
        let mut filter = Filter::default();
        let pasted = filter.input(Event::Paste("a\r\nb\rc\nd".into()), Instant::now());
        assert_eq!(pasted, Some(Input::Paste("a\nb\nc\nd".into())));
    }

    #[test]
    fn releases_are_dropped_and_resizes_merged() {
        let mut filter = Filter::default();
        let mut release = KeyEvent::new(KeyCode::Char('a'), KeyModifiers::NONE);
        release.kind = KeyEventKind::Release;
        assert_eq!(filter.input(Event::Key(release), Instant::now()), None);
        let mut batch = Batch::default();
        for width in 0..50 {
            batch.push(filter.input(Event::Resize(width, 1), Instant::now()).unwrap());
        }
        assert_eq!(batch.count(), 1);
    }
}
