//! Where settings come from: defaults, then the file, then its part for one pair, then the
//! environment, then the command line. Each value is checked where it is read.

use super::Paths;
use super::values::{KEYS, Key, Kind, Values, key};
use crate::catalog::Selection;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A line of the file.
    File(usize),
    /// A line of the file under `[pairs.NAME]`.
    PairInFile(usize),
    /// `DFLASH_CHAT_…`.
    Environment,
    /// An option on the command line.
    Flag,
}

/// What is wrong, one line each: file, line, key, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct SettingsError(pub Vec<String>);

#[derive(Debug, Clone)]
struct Assignment {
    key: &'static Key,
    text: String,
    origin: Origin,
}

/// All that was said, in all places.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    file: Vec<Assignment>,
    pairs: BTreeMap<String, Vec<Assignment>>,
    environment: Vec<Assignment>,
    flags: Vec<Assignment>,
    keys: BTreeMap<String, Vec<String>>,
}

/// The settings that hold, and where each comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The values.
    pub values: Values,
    /// Key bindings from `[keys]`: an action, and the chords for it. The screen knows which
    /// actions and chords there are.
    pub keys: BTreeMap<String, Vec<String>>,
    origins: BTreeMap<&'static str, Origin>,
}

impl Settings {
    /// Where a key's value comes from.
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).copied().unwrap_or(Origin::Default)
    }

    /// Which models are asked for. What was said in a weaker place does not mix with a stronger
    /// wish: `--target` alone leaves a pair in the file aside, and `--pair` a target there.
    pub fn selection(&self) -> Selection {
        let (pair, target, draft) = (&self.values.pair, &self.values.target, &self.values.draft);
        let rank = |key| match self.origin(key) {
            Origin::Default => 0,
            Origin::File(_) | Origin::PairInFile(_) => 1,
            Origin::Environment => 2,
            Origin::Flag => 3,
        };
        let strongest = rank("pair").max(rank("target"));
        let keep = |key, value: &Option<String>| value.clone().filter(|_| rank(key) >= strongest);
        Selection {
            pair: keep("pair", pair),
            target: keep("target", target),
            draft: keep("draft", draft),
        }
    }
}

/// The file with the person's settings; it need not exist.
pub fn config_file(paths: &Paths) -> PathBuf {
    paths.config.join("config.toml")
}

impl Sources {
    /// Read the file and the environment.
    ///
    /// # Errors
    /// Everything that is wrong in either, at once.
    pub fn load(paths: &Paths) -> Result<Sources, SettingsError> {
        let path = config_file(paths);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => {
                return Err(SettingsError(vec![format!("cannot read {}: {e}", path.display())]));
            }
        };
        Sources::read(&path, &text, |name| std::env::var(name).ok())
    }

    fn read(
        path: &Path,
        text: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Sources, SettingsError> {
        let mut file = FileReader { path, text, sources: Sources::default(), wrong: Vec::new() };
        file.read();
        let FileReader { mut sources, wrong, .. } = file;
        let mut wrong: Vec<String> = wrong.into_iter().map(|(_, line)| line).collect();
        for key in KEYS {
            let name = format!("DFLASH_CHAT_{}", key.name.to_uppercase());
            let Some(text) = environment(&name).filter(|text| !text.is_empty()) else { continue };
            match (key.set)(&mut Values::default(), &text) {
                Ok(()) => {
                    sources.environment.push(Assignment { key, text, origin: Origin::Environment })
                }
                Err(right) => wrong.push(format!("{name}={text}: it must be {right}")),
            }
        }
        if wrong.is_empty() { Ok(sources) } else { Err(SettingsError(wrong)) }
    }

    /// Add an option of the command line, or a change that the person makes while the program
    /// runs; a later one wins.
    ///
    /// # Errors
    /// The value is not one that the key may have.
    pub fn set(&mut self, name: &str, value: impl Display) -> Result<(), SettingsError> {
        let text = value.to_string();
        let error = |why: String| SettingsError(vec![why]);
        let key = key(name).ok_or_else(|| error(format!("there is no setting `{name}`")))?;
        (key.set)(&mut Values::default(), &text)
            .map_err(|right| error(format!("{name} cannot be `{text}`: it must be {right}")))?;
        self.flags.push(Assignment { key, text, origin: Origin::Flag });
        Ok(())
    }

    /// What holds for a pair; for the pair that the sources themselves name, or the demo pair, if
    /// `pair` is `None`.
    pub fn settings(&self, pair: Option<&str>) -> Settings {
        let mut everywhere = self.file.iter().chain(&self.environment).chain(&self.flags);
        let named = everywhere.rfind(|a| a.key.name == "pair").map(|a| a.text.as_str());
        let pair = pair.or(named).unwrap_or(crate::catalog::DEMO_PAIR);
        let own = self.pairs.get(pair).into_iter().flatten();
        let mut settings = Settings {
            values: Values::default(),
            keys: self.keys.clone(),
            origins: BTreeMap::new(),
        };
        for said in self.file.iter().chain(own).chain(&self.environment).chain(&self.flags) {
            // Checked when it was read.
            if (said.key.set)(&mut settings.values, &said.text).is_ok() {
                settings.origins.insert(said.key.name, said.origin);
            }
        }
        settings
    }
}

struct FileReader<'a> {
    path: &'a Path,
    text: &'a str,
    sources: Sources,
    /// By place in the file, so that they are told in its order.
    wrong: Vec<(usize, String)>,
}

impl FileReader<'_> {
    fn read(&mut self) {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            self.wrong(at, error.message());
        }
        // After a syntax error the rest of the table is a guess.
        if self.wrong.is_empty() {
            self.top(table.get_ref());
        }
        self.wrong.sort();
    }

    fn top(&mut self, table: &DeTable<'_>) {
        for (name, value) in table {
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("keys", DeValue::Table(table)) => self.bindings(table),
                ("pairs", DeValue::Table(pairs)) => {
                    for (pair, value) in pairs {
                        self.pair(pair, value);
                    }
                }
                ("keys" | "pairs", _) => {
                    self.wrong(name.span().start, &format!("`{}` is a table", name.get_ref()));
                }
                _ => {
                    if let Some(said) = self.assignment(name, value, false) {
                        self.sources.file.push(said);
                    }
                }
            }
        }
    }

    fn pair(&mut self, pair: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        let at = pair.span().start;
        let name = pair.get_ref().as_ref();
        if crate::catalog::find(name).is_none() {
            self.wrong(at, &format!("there is no pair `{name}`; see `dflash-chat models list`"));
        }
        let Some(table) = value.get_ref().as_table() else {
            return self.wrong(at, &format!("`pairs.{name}` is a table"));
        };
        for (key, value) in table {
            if let Some(said) = self.assignment(key, value, true) {
                self.sources.pairs.entry(name.into()).or_default().push(said);
            }
        }
    }

    fn bindings(&mut self, table: &DeTable<'_>) {
        for (action, chords) in table {
            let list: Option<Vec<String>> = match chords.get_ref() {
                DeValue::String(chord) => Some(vec![chord.to_string()]),
                DeValue::Array(list) => {
                    list.iter().map(|chord| chord.get_ref().as_str().map(String::from)).collect()
                }
                _ => None,
            };
            match list {
                Some(list) => drop(self.sources.keys.insert(action.get_ref().to_string(), list)),
                None => self.wrong(
                    chords.span().start,
                    &format!(
                        "keys.{}: it must be a quoted key or a list of them",
                        action.get_ref()
                    ),
                ),
            }
        }
    }

    fn assignment(
        &mut self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        per_pair: bool,
    ) -> Option<Assignment> {
        let at = name.span().start;
        let Some(key) = key(name.get_ref()) else {
            let shown = name.get_ref();
            self.wrong(
                at,
                &format!("there is no setting `{shown}`; see `dflash-chat config show`"),
            );
            return None;
        };
        if per_pair && !key.per_pair {
            self.wrong(at, &format!("`{}` cannot be set for one pair", key.name));
            return None;
        }
        let Some(text) = text_of(value.get_ref(), key.kind) else {
            let right = match key.kind {
                Kind::Text => "a text in quotes",
                Kind::Number => "a number without quotes",
                Kind::NumberOrWord => "a number, or a word in quotes",
                Kind::Switch => "true or false, without quotes",
            };
            self.wrong(at, &format!("{}: it must be {right}", key.name));
            return None;
        };
        match (key.set)(&mut Values::default(), &text) {
            Ok(()) => {
                let line = self.line(at);
                let origin = if per_pair { Origin::PairInFile(line) } else { Origin::File(line) };
                Some(Assignment { key, text, origin })
            }
            Err(right) => {
                self.wrong(at, &format!("{} = {text}: it must be {right}", key.name));
                None
            }
        }
    }

    fn wrong(&mut self, at: usize, what: &str) {
        let line = self.line(at);
        self.wrong.push((at, format!("{}:{line}: {what}", self.path.display())));
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }
}

/// A value as the key reads it, if it is written the way that the key is written.
fn text_of(value: &DeValue<'_>, kind: Kind) -> Option<String> {
    match (kind, value) {
        (Kind::Text | Kind::NumberOrWord, DeValue::String(text)) => Some(text.to_string()),
        (Kind::Number | Kind::NumberOrWord, DeValue::Integer(n)) if n.radix() == 10 => {
            Some(n.as_str().replace('_', ""))
        }
        (Kind::Number, DeValue::Float(x)) => Some(x.as_str().replace('_', "")),
        (Kind::Switch, DeValue::Boolean(on)) => Some(on.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::BlockSize;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Sources, SettingsError> {
        Sources::read(Path::new("config.toml"), text, |_| None)
    }

    #[test]
    fn later_sources_win_and_say_so() {
        let text = "temperature = 0.5\nmax_tokens = 10\nseed = 1\ntop_k = 1\n\
                    [pairs.qwen3-4b]\nmax_tokens = 20\nseed = 2\ntop_k = 2\n";
        let mut sources = Sources::read(Path::new("c"), text, |name| match name {
            "DFLASH_CHAT_SEED" => Some("3".into()),
            "DFLASH_CHAT_TOP_K" => Some("3".into()),
            _ => None,
        })
        .unwrap();
        sources.set("top_k", 4).unwrap();
        let at = |pair| {
            let s = sources.settings(pair);
            let v = &s.values;
            let numbers = (v.sampling.temperature, v.max_tokens, v.seed, v.sampling.top_k);
            (numbers, ["temperature", "max_tokens", "seed", "top_k", "theme"].map(|k| s.origin(k)))
        };
        use Origin::{Default, Environment, File, Flag, PairInFile};
        assert_eq!(at(None), ((0.5, 10, 3, 4), [File(1), File(2), Environment, Flag, Default]));
        let (numbers, origins) = at(Some("qwen3-4b"));
        assert_eq!(numbers, (0.5, 20, 3, 4));
        assert_eq!(origins[1], PairInFile(6));
        sources.set("pair", "qwen3-4b").unwrap();
        assert_eq!(sources.settings(None).values.max_tokens, 20);
    }

    #[test]
    fn everything_wrong_is_named_with_its_line() {
        let error = read(
            "mode = \"fast\"\ntemprature = 1\nmax_tokens = \"9\"\nblock_size = 'auto'\n\
             keys = 3\n[pairs.nope]\nseed = 1\n[pairs.qwen3-4b]\ntheme = 'x'\n[extra]\n",
        )
        .unwrap_err();
        let lines: Vec<&str> = error.0.iter().map(String::as_str).collect();
        assert_eq!(
            lines,
            [
                "config.toml:1: mode = fast: it must be speculative or baseline",
                "config.toml:2: there is no setting `temprature`; see `dflash-chat config show`",
                "config.toml:3: max_tokens: it must be a number without quotes",
                "config.toml:5: `keys` is a table",
                "config.toml:6: there is no pair `nope`; see `dflash-chat models list`",
                "config.toml:9: `theme` cannot be set for one pair",
                "config.toml:10: there is no setting `extra`; see `dflash-chat config show`",
            ]
        );
        let error = read("seed = 1\nmode = \n").unwrap_err();
        assert!(error.0[0].starts_with("config.toml:2: "), "{error}");
        let error = Sources::read(Path::new("c"), "", |name| {
            (name == "DFLASH_CHAT_CTX").then(|| "few".into())
        });
        assert!(error.unwrap_err().0[0].starts_with("DFLASH_CHAT_CTX=few: "));
        assert!(Sources::default().set("ctx", "few").is_err());
        assert!(Sources::default().set("nope", 1).is_err());
    }

    #[test]
    fn a_stronger_wish_does_not_mix_with_weaker_ones() {
        let file = "pair = 'qwen3-4b'\ndraft = 'a/d'\n";
        let selected = |flags: &[(&str, &str)]| {
            let mut sources = read(file).unwrap();
            flags.iter().for_each(|(key, value)| sources.set(key, value).unwrap());
            let s = sources.settings(None).selection();
            [s.pair, s.target, s.draft].map(Option::unwrap_or_default)
        };
        assert_eq!(selected(&[]), ["qwen3-4b", "", "a/d"]);
        assert_eq!(selected(&[("target", "a/t")]), ["", "a/t", ""]);
        assert_eq!(selected(&[("pair", "qwen3-8b")]), ["qwen3-8b", "", ""]);
        assert_eq!(selected(&[("draft", "x/y")]), ["qwen3-4b", "", "x/y"]);
    }

    #[test]
    fn bindings_are_lists() {
        let sources = read("[keys]\nquit = 'ctrl-q'\nstop = ['esc', 'ctrl-c']\n").unwrap();
        let keys = sources.settings(None).keys;
        assert_eq!(keys["quit"], ["ctrl-q"]);
        assert_eq!(keys["stop"], ["esc", "ctrl-c"]);
        assert!(read("[keys]\nquit = 3\n").is_err());
        assert!(read("[keys]\nquit = [3]\n").is_err());
    }

    /// The commented default file, with the comments taken off, says what holds anyway.
    #[test]
    fn the_commented_default_is_true() {
        let text = include_str!("../../assets/config.default.toml");
        assert!(read(text).unwrap().file.is_empty());
        let mut uncommented = String::new();
        let mut seen = Vec::new();
        for line in text.lines() {
            let Some(setting) = line.strip_prefix('#').filter(|l| !l.starts_with(' ')) else {
                continue;
            };
            uncommented += &format!("{setting}\n");
            seen.extend(setting.split_once(" = ").map(|(name, _)| name));
        }
        let sources = read(&uncommented).unwrap_or_else(|e| panic!("{e}\n{uncommented}"));
        for key in KEYS {
            assert!(seen.contains(&key.name), "{} is not in the file", key.name);
        }
        let settings = sources.settings(Some("none"));
        for key in KEYS {
            if let Some(default) = (key.get)(&Values::default()) {
                assert_eq!((key.get)(&settings.values), Some(default), "{}", key.name);
            }
        }
        assert_eq!(settings.values.block_size, BlockSize::Auto);
    }

    proptest! {
        #[test]
        fn no_file_makes_trouble(text in "\\PC{0,60}|([a-z_]{1,8} ?= ?[a-z0-9'\\[\\]{}.-]{0,8}\n){0,4}") {
            if let Err(error) = read(&text) {
                prop_assert!(error.0.iter().all(|line| line.starts_with("config.toml:")));
            }
        }
    }
}
