//! What may follow a command, in the popup: the code blocks for /copy, the turns for /fork, names
//! of themes and pairs.

use super::App;
use crate::event::Mode;
use crate::text::sanitise_line;
use crate::tui::commands::{COMMANDS, Suggestion};
use crate::tui::markdown::code_blocks;
use crate::tui::theme::BUILT_IN;

impl App {
    /// Say what may follow the command that is written.
    pub(super) fn offer(&mut self) {
        let offers = match self.composer.command() {
            Some(name) => self.offers(name),
            None => Vec::new(),
        };
        self.composer.offer(offers);
    }

    fn offers(&self, name: &str) -> Vec<Suggestion> {
        let arguments = self.arguments(name);
        let command = COMMANDS.iter().find(|spec| spec.name == name);
        let Some(command) = command.filter(|_| !arguments.is_empty()) else { return Vec::new() };
        // First the command alone, which Enter takes while nothing follows it.
        let alone = Suggestion { args: "", ..Suggestion::from(command) };
        let with = |(argument, help)| {
            let text = format!("/{name} {argument}");
            Suggestion { text, args: "", help }
        };
        std::iter::once(alone).chain(arguments.into_iter().map(with)).collect()
    }

    /// What may follow the command `name`, and what each stands for.
    fn arguments(&self, name: &str) -> Vec<(String, String)> {
        match name {
            "copy" => {
                let content = self.transcript.last_answer().map_or("", |it| it.content.as_str());
                let blocks = code_blocks(content);
                let about = |text: &str, info: &str| {
                    let lines = text.lines().count();
                    let s = if lines == 1 { "" } else { "s" };
                    let first = text.lines().next().unwrap_or_default().trim();
                    let comma = if info.is_empty() { "" } else { ", " };
                    sanitise_line(&format!("{info}{comma}{lines} line{s}: {first}"))
                };
                let numbered = blocks.iter().enumerate();
                numbered.map(|(i, b)| ((i + 1).to_string(), about(&b.text, &b.info))).collect()
            }
            "fork" | "edit" => {
                let turns = self.conversation.turns.iter().enumerate();
                let first = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                turns
                    .map(|(i, turn)| ((i + 1).to_string(), sanitise_line(&first(&turn.user))))
                    .collect()
            }
            "mode" => {
                let about = ["draft and verify", "one token a pass"].map(String::from);
                let modes = [Mode::Speculative, Mode::Baseline].map(|mode| mode.name().to_owned());
                modes.into_iter().zip(about).collect()
            }
            "theme" => BUILT_IN
                .iter()
                .map(|(name, source)| {
                    let about = source.lines().next().unwrap_or_default();
                    ((*name).to_owned(), about.trim_start_matches("# ").to_owned())
                })
                .collect(),
            "pair" => {
                self.pairs.iter().map(|pair| (pair.name.clone(), pair.about.clone())).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::action::Action;
    use crate::tui::app::Event;
    use crate::tui::effect::Effect;
    use crate::tui::events::Input;
    use crate::tui::testing::*;

    fn write(app: &mut App, text: &str) -> Vec<String> {
        app.composer.set("");
        happen(app, Event::Input(Input::Paste(text.into())));
        app.composer.popup().into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn code_blocks_are_listed_and_copied() {
        let mut app = ready_app();
        ask(&mut app, "code please");
        let lines = write(&mut app, "/copy ");
        assert_eq!(lines[..2], ["/copy", "/copy 1"]);
        let about = app.composer.popup()[1].help.clone();
        assert!(about.starts_with("rust, "), "{about}");
        let blocks = code_blocks(&app.transcript.last_answer().unwrap().content);
        assert_eq!(lines.len(), 1 + blocks.len());
        // The command alone copies all, a line of the list the block.
        let whole = app.transcript.last_answer().unwrap().content.clone();
        assert_eq!(act(&mut app, Action::Submit), [Effect::Copy(whole)]);
        write(&mut app, "/copy ");
        act(&mut app, Action::Down);
        assert_eq!(act(&mut app, Action::Submit), [Effect::Copy(blocks[0].text.clone())]);
        assert_eq!(submit(&mut app, "/copy 1"), [Effect::Copy(blocks[0].text.clone())]);
        assert!(submit(&mut app, "/copy 99").is_empty());
        assert!(app.notice.as_ref().unwrap().1.starts_with("the last answer has"));
    }

    #[test]
    fn an_answer_without_code_offers_nothing() {
        let mut app = ready_app();
        ask(&mut app, "hello");
        assert_eq!(write(&mut app, "/copy "), ["/copy"]);
        app.composer.set("");
        assert!(submit(&mut app, "/copy 1").is_empty());
        assert_eq!(app.notice.as_ref().unwrap().1, "the last answer has no code blocks");
    }

    #[test]
    fn turns_and_names_are_offered() {
        let mut app = ready_app();
        ask(&mut app, "one\n  two");
        ask(&mut app, "three");
        assert_eq!(write(&mut app, "/fork "), ["/fork", "/fork 1", "/fork 2"]);
        assert_eq!(app.composer.popup()[1].help, "one two");
        assert_eq!(write(&mut app, "/mode s"), ["/mode speculative"]);
        assert!(write(&mut app, "/theme ").contains(&"/theme light".to_owned()));
    }
}
