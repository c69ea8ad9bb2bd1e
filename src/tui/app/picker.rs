//! Choosing from a list: themes, shown as they are chosen, pairs, and conversations, which are
//! found by typing.

use super::{App, EngineState};
use crate::chat::store::{Listing, Summary};
use crate::chat::template::environment::strftime;
use crate::event::Level;
use crate::tui::action::Action;
use crate::tui::effect::Effect;
use crate::tui::theme::{BUILT_IN, Theme};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A pair that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairChoice {
    /// Its name.
    pub name: String,
    /// What a person wants to know before: size, what is on the disk, whether it fits.
    pub about: String,
    /// Whether it can run here.
    pub fits: bool,
}

/// What is chosen.
#[derive(Debug, Clone, PartialEq)]
enum Of {
    /// A theme; the one that was in use before.
    Themes(Box<Theme>),
    Pairs,
    /// Conversations, and what is looked for in them.
    Conversations(Vec<Summary>, String),
}

/// An open list.
#[derive(Debug, Clone, PartialEq)]
pub struct Picker {
    of: Of,
    /// Name, description, and whether it may be chosen.
    pub entries: Vec<PairChoice>,
    /// Which one is chosen.
    pub chosen: usize,
}

impl Picker {
    /// What is chosen from.
    pub fn title(&self) -> &'static str {
        match self.of {
            Of::Themes(_) => "themes",
            Of::Pairs => "pairs",
            Of::Conversations(..) => "conversations",
        }
    }

    /// What is looked for, in a list that can be searched.
    pub fn query(&self) -> Option<&str> {
        match &self.of {
            Of::Conversations(_, query) => Some(query),
            _ => None,
        }
    }

    /// Show the conversations that have what is looked for, the first one chosen.
    fn find(&mut self) {
        let Of::Conversations(all, query) = &self.of else { return };
        let entry = |summary: &Summary| {
            let s = if summary.turns == 1 { "" } else { "s" };
            let date = strftime("%Y-%m-%d %H:%M", summary.changed);
            let about = format!("{date} UTC, {} turn{s}", summary.turns);
            PairChoice { name: summary.title.clone(), about, fits: true }
        };
        self.entries = all.iter().filter(|it| it.matches(query)).map(entry).collect();
        self.chosen = 0;
    }
}

impl App {
    /// Open the list of themes.
    pub(super) fn pick_theme(&mut self) {
        let entries: Vec<PairChoice> = BUILT_IN
            .iter()
            .map(|(name, source)| {
                // The first line of a theme's file says what it is for.
                let about = source.lines().next().unwrap_or_default().trim_start_matches("# ");
                PairChoice { name: (*name).into(), about: about.into(), fits: true }
            })
            .collect();
        let chosen = entries.iter().position(|entry| entry.name == self.dress.theme.name);
        let of = Of::Themes(Box::new(self.dress.theme.clone()));
        self.picker = Some(Picker { of, entries, chosen: chosen.unwrap_or(0) });
    }

    /// Open the list of pairs; whether there is one.
    pub(super) fn pick_pair(&mut self) -> bool {
        let chosen = self.pairs.iter().position(|pair| pair.name == self.pair).unwrap_or(0);
        if !self.pairs.is_empty() {
            self.picker = Some(Picker { of: Of::Pairs, entries: self.pairs.clone(), chosen });
        }
        self.picker.is_some()
    }

    /// Open the list of conversations; what cannot be opened is told.
    pub(super) fn pick_conversation(&mut self, listing: Listing) {
        if let Some((id, reason)) = listing.unreadable.first() {
            let more = match listing.unreadable.len() - 1 {
                0 => String::new(),
                n => format!(" (and {n} more)"),
            };
            self.tell(Level::Warning, format!("{id}: {reason}{more}"));
        }
        if listing.sessions.is_empty() {
            return self.say(Level::Info, "there is no earlier conversation");
        }
        let of = Of::Conversations(listing.sessions, String::new());
        let mut picker = Picker { of, entries: Vec::new(), chosen: 0 };
        picker.find();
        self.picker = Some(picker);
    }

    /// What a key that stands for text means to the open list.
    pub(super) fn find_in_picker(&mut self, key: KeyEvent) {
        let command = key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        let Some(picker) = &mut self.picker else { return };
        if let (Of::Conversations(_, query), KeyCode::Char(c), false) =
            (&mut picker.of, key.code, command)
        {
            query.push(c);
            picker.find();
        }
    }

    /// What `action` means to the open list; `None` when none is open.
    pub(super) fn act_on_picker(&mut self, action: Action) -> Option<Vec<Effect>> {
        let picker = self.picker.as_mut()?;
        let last = picker.entries.len().saturating_sub(1);
        match action {
            Action::Up => picker.chosen = picker.chosen.checked_sub(1).unwrap_or(last),
            Action::Down => {
                picker.chosen = if picker.chosen < last { picker.chosen + 1 } else { 0 }
            }
            Action::PageUp => picker.chosen = 0,
            Action::PageDown => picker.chosen = last,
            Action::Submit => return Some(self.take_picked()),
            Action::DeleteBack | Action::DeleteToStart => {
                if let Of::Conversations(_, query) = &mut picker.of {
                    query.pop();
                    if action == Action::DeleteToStart {
                        query.clear();
                    }
                    picker.find();
                }
            }
            Action::Back | Action::Interrupt => {
                if let Some(Picker { of: Of::Themes(before), .. }) = self.picker.take() {
                    self.dress_in(*before);
                }
                return Some(Vec::new());
            }
            _ => return Some(Vec::new()),
        }
        self.preview();
        Some(Vec::new())
    }

    /// Show the chosen theme at once.
    fn preview(&mut self) {
        let Some(picker) = &self.picker else { return };
        let name = picker.entries.get(picker.chosen).map(|entry| entry.name.as_str());
        if let (Of::Themes(_), Some(name)) = (&picker.of, name)
            && let Some(theme) = Theme::built_in(name, self.dress.depth)
        {
            self.dress_in(theme);
        }
    }

    fn take_picked(&mut self) -> Vec<Effect> {
        let Some(picker) = self.picker.take() else { return Vec::new() };
        let Some(entry) = picker.entries.get(picker.chosen) else { return Vec::new() };
        match picker.of {
            Of::Themes(_) => {
                self.say(Level::Info, format!("theme: {}", entry.name));
                Vec::new()
            }
            Of::Pairs if !entry.fits => {
                self.say(
                    Level::Warning,
                    format!("{} cannot run here: {}", entry.name, entry.about),
                );
                Vec::new()
            }
            Of::Pairs => self.load_pair(entry.name.clone()),
            Of::Conversations(all, query) => {
                let found = all.into_iter().filter(|it| it.matches(&query)).nth(picker.chosen);
                found.map(|it| Effect::Open(it.id)).into_iter().collect()
            }
        }
    }

    /// Ask for another engine.
    pub(super) fn load_pair(&mut self, pair: String) -> Vec<Effect> {
        let stage = format!("starting {pair}");
        self.asked_pair = pair.clone();
        self.engine = EngineState::Loading { stage, done: 0, total: 0 };
        self.context_used = 0;
        self.verify_cost = None;
        self.plain = super::PlainSteps::default();
        vec![Effect::StartEngine(pair)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::app::Event;
    use crate::tui::testing::*;

    #[test]
    fn themes_are_shown_as_they_are_chosen_and_esc_brings_back() {
        let mut app = ready_app();
        submit(&mut app, "/theme");
        act(&mut app, Action::Down);
        assert_eq!(app.dress.theme.name, "light");
        act(&mut app, Action::Back);
        assert_eq!((app.dress.theme.name.as_str(), app.picker.is_none()), ("dark", true));
        submit(&mut app, "/theme");
        act(&mut app, Action::Up);
        act(&mut app, Action::Submit);
        assert_eq!(app.dress.theme.name, "ansi16");
    }

    #[test]
    fn a_conversation_is_found_by_typing() {
        use crate::chat::conversation::Change;
        let folder = tempfile::tempdir().unwrap();
        let store = crate::chat::store::Store::new(folder.path());
        let ids = ["about cats", "about dogs"].map(|text| {
            let mut saved = store.begin();
            saved.record(&Change::User { text: text.into() }).unwrap();
            saved.conversation().id.clone()
        });
        let mut app = ready_app();
        assert_eq!(submit(&mut app, "/open"), [Effect::List]);
        happen(&mut app, Event::Listed(store.list()));
        let shown = |app: &App| app.picker.as_ref().map_or(0, |picker| picker.entries.len());
        assert_eq!(shown(&app), 2);
        for c in "cats".chars() {
            press(&mut app, KeyCode::Char(c), KeyModifiers::NONE);
        }
        assert_eq!(shown(&app), 1);
        press(&mut app, KeyCode::Char('x'), KeyModifiers::NONE);
        assert_eq!(shown(&app), 0);
        act(&mut app, Action::DeleteBack);
        assert_eq!(act(&mut app, Action::Submit), [Effect::Open(ids[0].clone())]);
        assert!(app.composer.is_blank());
    }

    #[test]
    fn a_pair_is_loaded_and_one_that_does_not_fit_is_not() {
        let mut app = ready_app();
        let pair = |name: &str, fits| PairChoice { name: name.into(), about: "8 GB".into(), fits };
        app.pairs = vec![pair("small", true), pair("large", false)];
        submit(&mut app, "/pair");
        assert_eq!(act(&mut app, Action::Submit), [Effect::StartEngine("small".into())]);
        submit(&mut app, "/pair");
        act(&mut app, Action::Down);
        assert!(act(&mut app, Action::Submit).is_empty());
        assert_eq!(app.notice.as_ref().unwrap().1, "large cannot run here: 8 GB");
    }
}
