//! What the person does: keys, pastes, the mouse, commands.

use super::{App, Colouring, EngineState, Overlay, Panel};
use crate::chat::conversation::Change;
use crate::event::*;
use crate::text::sanitise_line;
use crate::tui::action::Action;
use crate::tui::commands::{self, Command};
use crate::tui::effect::Effect;
use crate::tui::events::Input;
use crate::tui::markdown::code_blocks;
use crate::tui::theme::{BUILT_IN, Theme};
use crossterm::event::KeyEvent;
use std::time::{Duration, Instant};

/// A second Ctrl+C within this time quits.
const TWICE: Duration = Duration::from_secs(1);

impl App {
    pub(super) fn on_input(&mut self, input: Input, now: Instant) -> Vec<Effect> {
        match input {
            Input::Key(key) => self.on_key(key, now),
            Input::Paste(text) => {
                if self.demo.is_some() {
                    return self.stop_demo();
                }
                match self.picker {
                    _ if self.race.is_some() => {}
                    Some(_) => self.paste_in_picker(&text),
                    None => self.composer.paste(&text),
                }
                Vec::new()
            }
            Input::Mouse(_) if self.demo.is_some() => Vec::new(),
            Input::Mouse(mouse) => self.on_mouse(mouse),
            Input::Redraw => Vec::new(),
        }
    }

    fn on_key(&mut self, key: KeyEvent, now: Instant) -> Vec<Effect> {
        self.selection = None;
        if self.demo.is_some() {
            let effects = self.stop_demo();
            return match self.keymap.action(&key) {
                Some(Action::Quit) => vec![Effect::Quit],
                Some(Action::Interrupt) => {
                    self.interrupted = Some(now);
                    effects
                }
                _ => effects,
            };
        }
        if let Some(effects) = self.steer(key) {
            return effects;
        }
        match self.keymap.action(&key) {
            Some(action) => self.act(action, now),
            None if self.picker.is_some() => {
                self.find_in_picker(key);
                Vec::new()
            }
            None if self.race.is_some() => {
                self.overlay = None;
                Vec::new()
            }
            None => {
                self.overlay = None;
                self.walk = None;
                self.composer.key(key);
                Vec::new()
            }
        }
    }

    fn act(&mut self, action: Action, now: Instant) -> Vec<Effect> {
        if let Some(effects) = self.act_on_picker(action) {
            return effects;
        }
        if self.overlay.is_some() && self.act_on_overlay(action) {
            return Vec::new();
        }
        if let Some(effects) = self.act_on_race(action) {
            return effects;
        }
        if self.walk_by(action) {
            return Vec::new();
        }
        match action {
            Action::Submit => return self.submit(),
            Action::Back => return self.back(),
            Action::Interrupt => return self.interrupt(now),
            Action::Eof => {
                if self.composer.is_blank() {
                    return vec![Effect::Quit];
                }
            }
            Action::Quit => return vec![Effect::Quit],
            Action::Help => self.overlay = Some(Overlay::Help(0)),
            Action::Stats => self.overlay = Some(Overlay::Stats),
            Action::Panel => {
                self.panel = match self.panel {
                    Panel::Round => Panel::Timeline,
                    Panel::Timeline => Panel::Cost,
                    Panel::Cost => Panel::Hidden,
                    Panel::Hidden => Panel::Round,
                };
            }
            Action::PanelWider => self.panel_extra = (self.panel_extra + 4).min(60),
            Action::PanelNarrower => self.panel_extra = (self.panel_extra - 4).max(-60),
            Action::Explain => self.toggle_explain(),
            Action::NextTheme => self.set_theme(""),
            Action::Colouring => self.next_colouring(),
            Action::Ghosts => {
                self.ghosts = !self.ghosts;
                let state = if self.ghosts { "shown" } else { "hidden" };
                self.say(Level::Info, format!("rejected drafts are {state} in the answer"));
            }
            Action::Walk => self.toggle_walk(),
            Action::Mouse => {
                self.mouse = !self.mouse;
                let whose = if self.mouse { "scrolls here" } else { "is the terminal's: select" };
                self.say(Level::Info, format!("the mouse {whose}"));
                return vec![Effect::Mouse(self.mouse)];
            }
            Action::Mode => self.set_mode(None),
            Action::BlockSmaller => self.step_block(false),
            Action::BlockLarger => self.step_block(true),
            Action::Picture => {
                self.notice = None;
                return vec![Effect::Picture];
            }
            Action::CopyAnswer => return self.copy_answer(None),
            Action::Fork => return self.fork_here(),
            Action::Rename => self.begin_renaming(),
            Action::Editor => return vec![Effect::Edit(self.composer.text())],
            Action::PageUp => self.scroll.by_pages(-1),
            Action::PageDown => self.scroll.by_pages(1),
            Action::ScrollUp => self.scroll.by(-1),
            Action::ScrollDown => self.scroll.by(1),
            Action::Top => self.scroll.go_to_top(),
            Action::Follow => self.scroll.follow(),
            Action::LineEnd if self.composer.is_blank() => self.scroll.follow(),
            Action::Complete => {
                self.composer.complete();
            }
            Action::Search => self.search(),
            Action::Up | Action::Down => self.up_or_down(action),
            editing => {
                self.composer.act(editing);
            }
        }
        Vec::new()
    }

    /// Move between lines, or to another message of the history, which is no edit.
    fn up_or_down(&mut self, action: Action) {
        let before = self.composer.text();
        self.composer.act(action);
        if self.composer.text() != before {
            self.leave_edit();
        }
    }

    /// Recall an earlier message, and say what happens.
    fn search(&mut self) {
        let key = self.keymap.hint(Action::Search);
        let (found, looked_for) = self.composer.search();
        let looked_for = sanitise_line(&looked_for);
        self.say(
            Level::Info,
            match (found, looked_for.is_empty()) {
                (true, true) => format!("an earlier message; {key} goes on, or write a word first"),
                (true, false) => format!("an earlier message with \"{looked_for}\"; {key} goes on"),
                (false, true) => "there is no earlier message".into(),
                (false, false) => format!("no other earlier message has \"{looked_for}\""),
            },
        );
        if found {
            self.leave_edit();
        }
    }

    /// Whether the overlay used `action`.
    fn act_on_overlay(&mut self, action: Action) -> bool {
        let toggles = match self.overlay {
            Some(Overlay::Help(_)) => Action::Help,
            _ => Action::Stats,
        };
        let rows = match action {
            Action::Up | Action::ScrollUp => -1,
            Action::Down | Action::ScrollDown => 1,
            Action::PageUp => -10,
            Action::PageDown => 10,
            action => {
                let closes = action == toggles || action == Action::Back;
                if closes || action == Action::Submit {
                    self.overlay = None;
                }
                return closes || action == Action::Submit;
            }
        };
        self.scroll_by(rows);
        true
    }

    pub(super) fn scroll_by(&mut self, rows: isize) {
        match (&mut self.overlay, &mut self.race) {
            (Some(Overlay::Help(top)), _) => *top = top.saturating_add_signed(rows),
            (_, Some(racing)) => racing.up = racing.up.saturating_add_signed(-rows),
            _ => self.scroll.by(rows),
        }
    }

    fn back(&mut self) -> Vec<Effect> {
        if self.walk.take().is_some() || self.composer.close_popup() {
            return Vec::new();
        }
        if self.editing.take().is_some() {
            self.composer.take();
            self.notice = None;
            return Vec::new();
        }
        // A command that is left; Up brings it back.
        if self.running.is_none() && self.composer.text().starts_with('/') {
            self.composer.take();
            return Vec::new();
        }
        self.stop()
    }

    /// Ask the answer in progress, or the measurement, to stop. A message that waits for the model
    /// is taken back.
    pub(super) fn stop(&mut self) -> Vec<Effect> {
        if self.race.is_some() {
            return self.stop_race();
        }
        if self.waits_for_model() {
            return self.take_back_held();
        }
        if self.measuring {
            self.measuring_stops = true;
            return vec![Effect::Cancel];
        }
        let Some(running) = &mut self.running else { return Vec::new() };
        running.stopping = true;
        vec![Effect::Cancel]
    }

    fn interrupt(&mut self, now: Instant) -> Vec<Effect> {
        let twice = self.interrupted.is_some_and(|before| now.duration_since(before) < TWICE);
        if twice {
            return vec![Effect::Quit];
        }
        self.interrupted = Some(now);
        let loading = matches!(self.engine, EngineState::Loading { .. });
        let effects = match loading && self.running.is_none() {
            true => vec![Effect::Cancel],
            false => self.stop(),
        };
        let key = self.keymap.hint(Action::Interrupt);
        self.say(Level::Info, format!("{key} again quits"));
        effects
    }

    fn submit(&mut self) -> Vec<Effect> {
        if self.composer.is_blank() {
            self.walk = None;
            return Vec::new();
        }
        // Enter in the popup takes the chosen command; one that wants more waits for it.
        let popup = self.composer.popup();
        if let Some(chosen) = popup.get(self.composer.chosen())
            && self.composer.complete()
            && chosen.wants_more()
        {
            return Vec::new();
        }
        let text = self.composer.text();
        if let Some(input) = text.trim_end().strip_prefix('/') {
            return self.command(input);
        }
        if !self.can_ask() {
            return Vec::new();
        }
        let text = self.composer.take();
        let mut effects = vec![Effect::Remember(text.clone())];
        effects.extend(self.ask(text));
        effects
    }

    /// Whether something can be asked now; what is in the way is said.
    pub(super) fn can_ask(&mut self) -> bool {
        let key = self.keymap.hint(Action::Back);
        let (level, what) = if self.replay.is_some() {
            (Level::Warning, "this is a recording: it answers nothing new".into())
        } else if self.waits_for_model() {
            (Level::Warning, format!("a message waits for the model; {key} takes it back"))
        } else if self.running.is_some() {
            (Level::Warning, format!("an answer is being made; {key} stops it"))
        } else if self.measuring {
            (Level::Warning, format!("the cost is being measured; {key} stops that"))
        } else if self.engine == EngineState::Ended {
            (Level::Error, "no model is loaded; /pair loads it again".into())
        } else {
            return true;
        };
        self.say(level, what);
        false
    }

    fn command(&mut self, input: &str) -> Vec<Effect> {
        let (spec, command) = match commands::parse(input) {
            Ok(parsed) => parsed,
            Err(what) => {
                self.say(Level::Error, what);
                return Vec::new();
            }
        };
        if self.busy() && !spec.while_busy {
            let key = self.keymap.hint(Action::Back);
            let name = spec.name;
            let what = if self.measuring { "measurement" } else { "answer" };
            self.say(Level::Warning, format!("/{name} has to wait for the {what}; {key} stops it"));
            return Vec::new();
        }
        self.composer.take();
        self.editing = None;
        self.notice = None;
        self.run_command(command)
    }

    fn run_command(&mut self, command: Command) -> Vec<Effect> {
        match command {
            Command::Help => self.overlay = Some(Overlay::Help(0)),
            Command::Stats => self.overlay = Some(Overlay::Stats),
            Command::New => return vec![Effect::Begin],
            Command::Open => return vec![Effect::List],
            Command::Title(title) => return self.rename(title),
            Command::Delete => return vec![Effect::Delete],
            Command::Undelete => return vec![Effect::Undelete],
            Command::Export(name) => return self.export(&name),
            Command::Mode(mode) => self.set_mode(mode),
            Command::Block(size) => self.set_block(size),
            Command::Temperature(t) => {
                self.generate.sampling.temperature = t;
                let how = if t == 0.0 { " (greedy)" } else { "" };
                self.say(Level::Info, format!("temperature {t}{how}"));
            }
            Command::Seed(seed) => {
                self.generate.seed = seed;
                self.say(Level::Info, format!("seed {seed}"));
            }
            Command::MaxTokens(n) => {
                self.generate.max_tokens = n;
                self.say(Level::Info, format!("at most {n} tokens an answer"));
            }
            Command::System(text) => {
                let what = if text.is_empty() { "no instructions" } else { "instructions set" };
                self.say(Level::Info, what);
                let text = Some(text).filter(|text| !text.is_empty());
                return self.change(Change::System { text }).into_iter().collect();
            }
            Command::Thinking => {
                self.generate.thinking = !self.generate.thinking;
                let what = if self.generate.thinking { "thinks first" } else { "answers at once" };
                self.say(Level::Info, format!("the model {what}, where it can"));
            }
            Command::Retry => return self.retry(),
            Command::Edit(turn) => self.edit(turn),
            Command::Undo => return self.undo(),
            Command::Fork(turn) => return self.fork(turn),
            Command::Copy(block) => return self.copy_answer(block),
            Command::Theme(name) if name.is_empty() => self.pick_theme(),
            Command::Theme(name) => self.set_theme(&name),
            Command::Explain => self.toggle_explain(),
            Command::Cost => return self.measure_cost(),
            Command::Race(prompt, repeats) => return self.ask_race(prompt, repeats),
            Command::Pair(name) => {
                if !name.is_empty() {
                    return self.load_pair(name);
                }
                // With nothing to choose from, or nothing loaded, the same one again.
                if self.engine == EngineState::Ended || !self.pick_pair() {
                    return self.load_pair(self.asked_pair.clone());
                }
            }
            Command::Quit => return vec![Effect::Quit],
        }
        Vec::new()
    }

    /// Ask for the cost of a verify pass at the lengths that the pair can have.
    fn measure_cost(&mut self) -> Vec<Effect> {
        let Some(model) = self.model() else {
            self.say(Level::Warning, "the model is not loaded yet");
            return Vec::new();
        };
        let most = model.block_size.max(2);
        let rows = [1, 2, 3, 4, 6, 8, 12, 16].into_iter().filter(|rows| *rows <= most).collect();
        self.panel = Panel::Cost;
        self.measuring = true;
        self.measuring_stops = false;
        self.say(Level::Info, "measuring what a verify pass costs");
        let context = self.context_used.max(64);
        let command = EngineCommand::MeasureVerifyCost { rows, context, repeats: 5 };
        vec![Effect::Send(Box::new(command))]
    }

    /// Copy the last answer, or one of its code blocks, counted from 1.
    fn copy_answer(&mut self, block: Option<usize>) -> Vec<Effect> {
        let text = self.transcript.last_answer().map(|answer| answer.content.clone());
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            self.say(Level::Warning, "there is no answer to copy");
            return Vec::new();
        };
        let Some(number) = block else { return self.copy(text).into_iter().collect() };
        let mut blocks = code_blocks(&text);
        if number > blocks.len() {
            let has = match blocks.len() {
                0 => "no code blocks".into(),
                1 => "one code block".into(),
                n => format!("{n} code blocks"),
            };
            self.say(Level::Warning, format!("the last answer has {has}"));
            return Vec::new();
        }
        self.copy(blocks.swap_remove(number - 1).text).into_iter().collect()
    }

    fn set_mode(&mut self, mode: Option<Mode>) {
        self.generate.mode = mode.unwrap_or(match self.generate.mode {
            Mode::Speculative => Mode::Baseline,
            Mode::Baseline => Mode::Speculative,
        });
        let when = if self.running.is_some() { ", from the next answer on" } else { "" };
        self.say(Level::Info, format!("mode: {}{when}", self.generate.mode.name()));
    }

    fn set_block(&mut self, size: BlockSize) {
        self.generate.block_size = size;
        let when = if self.running.is_some() { ", from the next answer on" } else { "" };
        self.say(Level::Info, format!("block size: {size}{when}"));
    }

    /// auto, 2, 3, … up to the draft's own size.
    fn step_block(&mut self, larger: bool) {
        let most = self.model().map_or(16, |model| model.block_size).max(2);
        let size = match (self.generate.block_size, larger) {
            (BlockSize::Auto, true) => BlockSize::Fixed(2),
            (BlockSize::Auto, false) => BlockSize::Auto,
            (BlockSize::Fixed(n), true) => BlockSize::Fixed((n + 1).min(most)),
            (BlockSize::Fixed(n), false) if n <= 2 => BlockSize::Auto,
            (BlockSize::Fixed(n), false) => BlockSize::Fixed(n - 1),
        };
        self.set_block(size);
    }

    fn next_colouring(&mut self) {
        let (next, what) = match self.colouring {
            Colouring::Plain => (Colouring::Outcome, "by outcome"),
            Colouring::Outcome => (Colouring::Rounds, "in bands, a round each"),
            Colouring::Rounds => (Colouring::Plain, "plain"),
        };
        self.colouring = next;
        self.say(Level::Info, format!("tokens are shown {what}"));
    }

    fn toggle_explain(&mut self) {
        self.explain = !self.explain;
        if self.explain && self.panel == Panel::Hidden {
            self.panel = Panel::Round;
        }
    }

    /// The theme `name`, or the next one.
    fn set_theme(&mut self, name: &str) {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        let now = names.iter().position(|known| *known == self.dress.theme.name);
        let next = names[now.map_or(0, |now| (now + 1) % names.len())];
        let name = if name.is_empty() { next } else { name };
        match Theme::built_in(name, self.dress.depth) {
            Some(theme) => {
                self.dress_in(theme);
                self.say(Level::Info, format!("theme: {name}"));
            }
            None => {
                let known = names.join(", ");
                self.say(Level::Error, format!("there is no theme `{name}`; there are {known}"));
            }
        }
    }
}
