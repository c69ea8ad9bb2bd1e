//! Keys to actions, as data: a TOML file names the keys of each action.

use super::action::Action;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The keys that are used unless told otherwise.
pub const DEFAULT: &str = include_str!("../../assets/keymap.default.toml");

/// A key with its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chord {
    code: KeyCode,
    modifiers: KeyModifiers,
}

impl Chord {
    /// The chord that was pressed. A shifted letter is the capital alone.
    pub fn of(key: &KeyEvent) -> Chord {
        let mut modifiers =
            key.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        let code = match key.code {
            KeyCode::BackTab => {
                modifiers |= KeyModifiers::SHIFT;
                KeyCode::Tab
            }
            KeyCode::Char(c) if modifiers.contains(KeyModifiers::CONTROL) => {
                KeyCode::Char(c.to_ascii_lowercase())
            }
            code => code,
        };
        if matches!(code, KeyCode::Char(_)) {
            modifiers -= KeyModifiers::SHIFT;
        }
        Chord { code, modifiers }
    }

    /// The event of pressing it.
    pub fn event(self) -> KeyEvent {
        KeyEvent::new(self.code, self.modifiers)
    }
}

impl std::str::FromStr for Chord {
    type Err = String;

    fn from_str(text: &str) -> Result<Chord, String> {
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        while let Some((name, after)) = rest.split_once('+').filter(|(_, after)| !after.is_empty())
        {
            modifiers |= match name {
                "ctrl" => KeyModifiers::CONTROL,
                "alt" => KeyModifiers::ALT,
                "shift" => KeyModifiers::SHIFT,
                _ => return Err(format!("`{text}`: `{name}` is not ctrl, alt or shift")),
            };
            rest = after;
        }
        let code = match rest {
            "enter" => KeyCode::Enter,
            "esc" => KeyCode::Esc,
            "tab" => KeyCode::Tab,
            "space" => KeyCode::Char(' '),
            "backspace" => KeyCode::Backspace,
            "delete" => KeyCode::Delete,
            "up" => KeyCode::Up,
            "down" => KeyCode::Down,
            "left" => KeyCode::Left,
            "right" => KeyCode::Right,
            "home" => KeyCode::Home,
            "end" => KeyCode::End,
            "pageup" => KeyCode::PageUp,
            "pagedown" => KeyCode::PageDown,
            other => {
                let number = other.strip_prefix('f').and_then(|n| n.parse().ok());
                let mut chars = other.chars();
                match (number, chars.next(), chars.next()) {
                    (Some(n @ 1..=24), ..) => KeyCode::F(n),
                    (_, Some(c), None) => KeyCode::Char(c),
                    _ => return Err(format!("`{text}` is no key")),
                }
            }
        };
        // As it arrives when it is pressed: a shifted letter is the capital, Ctrl has no capitals.
        let code = match code {
            KeyCode::Char(c) if modifiers.contains(KeyModifiers::SHIFT) => {
                KeyCode::Char(c.to_ascii_uppercase())
            }
            code => code,
        };
        Ok(Chord::of(&KeyEvent::new(code, modifiers)))
    }
}

impl fmt::Display for Chord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (KeyModifiers::CONTROL, "Ctrl+"),
            (KeyModifiers::ALT, "Alt+"),
            (KeyModifiers::SHIFT, "Shift+"),
        ];
        for (modifier, name) in names {
            if self.modifiers.contains(modifier) {
                f.write_str(name)?;
            }
        }
        match self.code {
            KeyCode::PageUp => f.write_str("PgUp"),
            KeyCode::PageDown => f.write_str("PgDn"),
            KeyCode::Delete => f.write_str("Del"),
            KeyCode::Char(c) => write!(f, "{}", c.to_uppercase()),
            code => write!(f, "{code}"),
        }
    }
}

/// Which key does what.
#[derive(Debug, Clone)]
pub struct Keymap {
    actions: HashMap<Chord, Action>,
    keys: HashMap<Action, Vec<Chord>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    keys: BTreeMap<String, Vec<String>>,
}

impl Keymap {
    /// The built-in keys.
    pub fn built_in() -> Keymap {
        let empty = Keymap { actions: HashMap::new(), keys: HashMap::new() };
        let file: File = toml::from_str(DEFAULT).unwrap_or(File { keys: BTreeMap::new() });
        empty.with(&file.keys).unwrap_or(empty)
    }

    /// These keys, with `changed` in the place of those of the same actions.
    ///
    /// # Errors
    /// An unknown action, a key that is none or has two meanings.
    pub fn with(&self, changed: &BTreeMap<String, Vec<String>>) -> Result<Keymap, String> {
        let mut keys = self.keys.clone();
        for (name, chords) in changed {
            let action = Action::ALL.iter().find(|action| action.name() == name);
            let action = action.ok_or(format!("there is no action `{name}`"))?;
            let chords = chords.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
            keys.insert(*action, chords);
        }
        let mut actions = HashMap::new();
        for action in Action::ALL {
            for chord in keys.get(action).into_iter().flatten() {
                if let Some(other) = actions.insert(*chord, *action) {
                    let (a, b) = (Action::name(other), action.name());
                    return Err(format!("{chord} means both `{a}` and `{b}`"));
                }
            }
        }
        Ok(Keymap { actions, keys })
    }

    /// What `key` means; `None` for text.
    pub fn action(&self, key: &KeyEvent) -> Option<Action> {
        let mut chord = Chord::of(key);
        // Terminals send Alt as an Esc before the key, so over a slow link Esc and then Ctrl+Q
        // arrive as Ctrl+Alt+Q.
        if chord.modifiers.contains(KeyModifiers::CONTROL) && !self.actions.contains_key(&chord) {
            chord.modifiers -= KeyModifiers::ALT;
        }
        self.actions.get(&chord).copied()
    }

    /// The keys of `action`, the first one first.
    pub fn keys(&self, action: Action) -> &[Chord] {
        self.keys.get(&action).map_or(&[], Vec::as_slice)
    }

    /// The first key of `action`, for a hint.
    pub fn hint(&self, action: Action) -> String {
        self.keys(action).first().map(Chord::to_string).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_keys_are_sound_and_complete() {
        let keymap = Keymap::built_in();
        for action in Action::ALL {
            assert!(!keymap.keys(*action).is_empty(), "{} has no key", action.name());
        }
    }

    #[test]
    fn chords_read_and_print() {
        let shown = |text: &str| text.parse::<Chord>().map(|chord| chord.to_string());
        assert_eq!(shown("ctrl+alt+x").unwrap(), "Ctrl+Alt+X");
        assert_eq!(shown("shift+f12").unwrap(), "Shift+F12");
        assert_eq!(shown("alt++").unwrap(), "Alt++");
        assert!(shown("hyper+x").is_err());
        assert!(shown("f99").is_err());
        assert!(shown("").is_err());
    }

    #[test]
    fn a_pressed_key_finds_its_action() {
        let keymap = Keymap::built_in();
        let press = |code, modifiers| keymap.action(&KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Enter, KeyModifiers::NONE), Some(Action::Submit));
        assert_eq!(press(KeyCode::Enter, KeyModifiers::ALT), Some(Action::Newline));
        assert_eq!(press(KeyCode::Char('C'), KeyModifiers::CONTROL), Some(Action::Interrupt));
        assert_eq!(press(KeyCode::Char('A'), KeyModifiers::SHIFT), None);
        let both = KeyModifiers::CONTROL | KeyModifiers::ALT;
        assert_eq!(press(KeyCode::Char('q'), both), Some(Action::Quit));
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::ALT), None);
    }

    #[test]
    fn a_file_replaces_only_what_it_names() {
        let with = |action: &str, key: &str| {
            let keys = BTreeMap::from([(action.to_string(), vec![key.to_string()])]);
            Keymap::built_in().with(&keys)
        };
        let keymap = with("help", "f10").unwrap();
        assert_eq!(keymap.hint(Action::Help), "F10");
        assert_eq!(keymap.hint(Action::Panel), "F2");
        // A letter is found however it is written in the file.
        for (key, code, modifiers) in [
            ("ctrl+P", 'p', KeyModifiers::CONTROL),
            ("ctrl+shift+p", 'P', KeyModifiers::CONTROL | KeyModifiers::SHIFT),
            ("alt+shift+p", 'P', KeyModifiers::ALT | KeyModifiers::SHIFT),
        ] {
            let pressed = KeyEvent::new(KeyCode::Char(code), modifiers);
            assert_eq!(with("help", key).unwrap().action(&pressed), Some(Action::Help), "{key}");
        }
        let twice = with("help", "f2").unwrap_err();
        assert!(twice.contains("F2 means both"), "{twice}");
        assert!(with("fly", "f10").unwrap_err().contains("no action `fly`"));
    }
}
