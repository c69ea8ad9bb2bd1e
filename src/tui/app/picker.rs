//! Choosing from a list: themes, shown as they are chosen, pairs, and conversations, which are
//! found by typing.

use super::App;
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
    Conversations(Box<Conversations>),
}

/// Conversations to choose from.
#[derive(Debug, Clone, PartialEq, Default)]
struct Conversations {
    all: Vec<Summary>,
    /// What is looked for in them.
    query: String,
    /// The one that is open.
    open: String,
    /// The title that is being written for the chosen one.
    naming: Option<String>,
}

impl Conversations {
    fn found(&self) -> impl Iterator<Item = &Summary> {
        self.all.iter().filter(|summary| summary.matches(&self.query))
    }

    /// What typing changes.
    fn written(&mut self) -> &mut String {
        self.naming.as_mut().unwrap_or(&mut self.query)
    }
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
            Of::Conversations(_) => "conversations",
        }
    }

    /// What is looked for, in a list that can be searched.
    pub fn query(&self) -> Option<&str> {
        match &self.of {
            Of::Conversations(list) => Some(&list.query),
            _ => None,
        }
    }

    /// The title that is being written for the chosen conversation.
    pub fn naming(&self) -> Option<&str> {
        match &self.of {
            Of::Conversations(list) => list.naming.as_deref(),
            _ => None,
        }
    }

    /// Show the conversations that have what is looked for.
    fn find(&mut self) {
        let Of::Conversations(list) = &self.of else { return };
        let entry = |summary: &Summary| {
            let s = if summary.turns == 1 { "" } else { "s" };
            let date = strftime("%Y-%m-%d %H:%M", summary.changed);
            let open = if summary.id == list.open { "open, " } else { "" };
            let about = format!("{open}{} turn{s}, {date} UTC", summary.turns);
            PairChoice { name: summary.title.clone(), about, fits: true }
        };
        self.entries = list.found().map(entry).collect();
        self.chosen = self.chosen.min(self.entries.len().saturating_sub(1));
    }
}

impl App {
    /// Open the list of themes.
    pub(super) fn pick_theme(&mut self) {
        let mut entries: Vec<PairChoice> = BUILT_IN
            .iter()
            .map(|(name, source)| {
                // The first line of a theme's file says what it is for.
                let about = source.lines().next().unwrap_or_default().trim_start_matches("# ");
                PairChoice { name: (*name).into(), about: about.into(), fits: true }
            })
            .collect();
        let built_in = entries.iter().position(|entry| entry.name == self.dress.theme.name);
        let chosen = built_in.unwrap_or_else(|| {
            let name = self.dress.theme.name.clone();
            entries.insert(0, PairChoice { name, about: "the one in use".into(), fits: true });
            0
        });
        let of = Of::Themes(Box::new(self.dress.theme.clone()));
        self.picker = Some(Picker { of, entries, chosen });
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
        let open = self.conversation.id.clone();
        // A list that is open stays where it is; what was deleted last can be brought back there.
        let before = self.picker.take().and_then(|picker| match picker.of {
            Of::Conversations(list) => Some((list.query, picker.chosen)),
            _ => None,
        });
        if listing.sessions.is_empty() && before.is_none() {
            return self.say(Level::Info, "there is no earlier conversation");
        }
        let (query, chosen) = before.unwrap_or_default();
        let list = Conversations { all: listing.sessions, query, open, naming: None };
        let mut picker =
            Picker { of: Of::Conversations(Box::new(list)), entries: Vec::new(), chosen };
        picker.find();
        self.picker = Some(picker);
    }

    /// What a key that stands for text means to the open list.
    pub(super) fn find_in_picker(&mut self, key: KeyEvent) {
        let command = key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        if let (KeyCode::Char(c), false) = (key.code, command) {
            self.write_in_picker(|text| text.push(c));
        }
    }

    /// Text that is pasted is looked for too.
    pub(super) fn paste_in_picker(&mut self, text: &str) {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.write_in_picker(|text| text.push_str(&line));
    }

    fn write_in_picker(&mut self, change: impl FnOnce(&mut String)) {
        let Some(picker) = &mut self.picker else { return };
        let Of::Conversations(list) = &mut picker.of else { return };
        change(list.written());
        if list.naming.is_none() {
            picker.chosen = 0;
            picker.find();
        }
    }

    /// What `action` means to the open list; `None` when none is open.
    pub(super) fn act_on_picker(&mut self, action: Action) -> Option<Vec<Effect>> {
        if action == Action::Quit {
            return None;
        }
        let picker = self.picker.as_mut()?;
        if picker.naming().is_some() && !matches!(action, Action::DeleteBack) {
            return Some(self.act_on_title(action));
        }
        let last = picker.entries.len().saturating_sub(1);
        match action {
            Action::Up => picker.chosen = picker.chosen.checked_sub(1).unwrap_or(last),
            Action::Down => {
                picker.chosen = if picker.chosen < last { picker.chosen + 1 } else { 0 }
            }
            Action::PageUp => picker.chosen = 0,
            Action::PageDown => picker.chosen = last,
            Action::Submit => return Some(self.take_picked()),
            Action::DeleteBack => self.write_in_picker(|text| {
                text.pop();
            }),
            Action::DeleteToStart => self.write_in_picker(String::clear),
            Action::DeleteForward => return Some(self.delete_picked()),
            Action::Undo if picker.query().is_some() => {
                self.say(Level::Info, "what was deleted last is back");
                return Some(vec![Effect::UndeleteListed]);
            }
            Action::Rename => {
                let title = picker.entries.get(picker.chosen).map(|entry| entry.name.clone());
                if let (Of::Conversations(list), Some(title)) = (&mut picker.of, title) {
                    list.naming = Some(title);
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

    /// What `action` means while a title is written.
    fn act_on_title(&mut self, action: Action) -> Vec<Effect> {
        let Some(picker) = &mut self.picker else { return Vec::new() };
        let Of::Conversations(list) = &mut picker.of else { return Vec::new() };
        match action {
            Action::DeleteToStart => list.written().clear(),
            Action::Back | Action::Interrupt => list.naming = None,
            Action::Submit => {
                let title = list.naming.take().unwrap_or_default();
                let found = list.found().nth(picker.chosen).map(|found| found.id.clone());
                let Some(id) = found else { return Vec::new() };
                if id == list.open {
                    let mut effects = self.rename(title);
                    effects.push(Effect::List);
                    return effects;
                }
                return vec![Effect::TitleListed(id, title)];
            }
            _ => {}
        }
        Vec::new()
    }

    /// Delete the chosen conversation.
    fn delete_picked(&mut self) -> Vec<Effect> {
        let Some(Picker { of: Of::Conversations(list), chosen, .. }) = &self.picker else {
            return Vec::new();
        };
        let Some(found) = list.found().nth(*chosen) else { return Vec::new() };
        let (id, title, open) = (found.id.clone(), found.title.clone(), found.id == list.open);
        let key = self.keymap.hint(Action::Undo);
        self.say(Level::Info, format!("deleted: {title}; {key} brings it back"));
        match open {
            true => vec![Effect::Delete, Effect::List],
            false => vec![Effect::DeleteListed(id)],
        }
    }

    /// Show the chosen theme at once.
    fn preview(&mut self) {
        let Some(picker) = &self.picker else { return };
        let name = picker.entries.get(picker.chosen).map(|entry| entry.name.as_str());
        if let (Of::Themes(before), Some(name)) = (&picker.of, name) {
            let built_in = Theme::built_in(name, self.dress.depth);
            let theme = built_in.unwrap_or_else(|| Theme::clone(before));
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
            Of::Conversations(list) => {
                let found = list.found().nth(picker.chosen);
                found.map(|it| Effect::Open(it.id.clone())).into_iter().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::app::Event;
    use crate::tui::events::Input;
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

    /// Deleted, taken back and renamed where it is found; what is looked for stays.
    #[test]
    fn conversations_are_managed_in_their_list() {
        use crate::chat::conversation::{Change, Conversation};
        let folder = tempfile::tempdir().unwrap();
        let store = crate::chat::store::Store::new(folder.path());
        let said = ["a cat", "a dog", "another cat"].map(|text| {
            let mut saved = store.begin();
            saved.record(&Change::User { text: text.into() }).unwrap();
            saved
        });
        let open = said[2].conversation().clone();
        let ids = said.each_ref().map(|saved| saved.conversation().id.clone());
        let mut app = ready_app();
        happen(&mut app, Event::Opened(Box::new(open.clone()), Vec::new()));
        app.composer.set("");
        submit(&mut app, "/open");
        happen(&mut app, Event::Listed(store.list()));
        happen(&mut app, Event::Input(Input::Paste("cat".into())));
        let shown = |app: &App| -> Vec<String> {
            let entries = app.picker.as_ref().unwrap().entries.iter();
            entries.map(|entry| format!("{} {}", entry.name, entry.about)).collect()
        };
        let first = shown(&app);
        assert!(first.len() == 2 && first[0].contains("another cat"), "{first:?}");
        assert!(first[0].starts_with("another cat open, 1 turn, "), "{first:?}");

        // The second is not open: it is deleted where it lies, and comes back.
        act(&mut app, Action::Down);
        let effects = act(&mut app, Action::DeleteForward);
        assert_eq!(effects, [Effect::DeleteListed(ids[0].clone())]);
        assert!(app.notice.as_ref().unwrap().1.starts_with("deleted: a cat; Ctrl+Z"));
        let mut after = store.list();
        after.sessions.retain(|session| session.id != ids[0]);
        happen(&mut app, Event::Listed(after));
        assert_eq!((shown(&app).len(), app.picker.as_ref().unwrap().query()), (1, Some("cat")));
        assert_eq!(act(&mut app, Action::Undo), [Effect::UndeleteListed]);
        happen(&mut app, Event::Listed(store.list()));

        // A title, left once and then given.
        act(&mut app, Action::Down);
        act(&mut app, Action::Rename);
        assert_eq!(app.picker.as_ref().unwrap().naming(), Some("a cat"));
        act(&mut app, Action::Back);
        act(&mut app, Action::Rename);
        act(&mut app, Action::DeleteToStart);
        for c in "Tom!".chars() {
            press(&mut app, KeyCode::Char(c), KeyModifiers::NONE);
        }
        act(&mut app, Action::DeleteBack);
        let effects = act(&mut app, Action::Submit);
        assert_eq!(effects, [Effect::TitleListed(ids[0].clone(), "Tom".into())]);

        // The open one is renamed and deleted as /title and /delete do it.
        act(&mut app, Action::Up);
        act(&mut app, Action::Rename);
        press(&mut app, KeyCode::Char('s'), KeyModifiers::NONE);
        let title = Change::Title { title: "another cats".into() };
        assert_eq!(act(&mut app, Action::Submit), [Effect::Record(title), Effect::List]);
        assert_eq!(act(&mut app, Action::DeleteForward), [Effect::Delete, Effect::List]);
        // The last one is gone: the list stays, so that it can be brought back.
        happen(&mut app, Event::Listed(Listing::default()));
        happen(&mut app, Event::Opened(Box::new(Conversation::new("next", 0)), Vec::new()));
        assert!(shown(&app).is_empty());
        assert!(act(&mut app, Action::DeleteForward).is_empty());
        assert_eq!(act(&mut app, Action::Undo), [Effect::UndeleteListed]);
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
