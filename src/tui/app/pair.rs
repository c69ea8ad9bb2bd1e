//! Another pair, and the settings that come with it.

use super::{App, EngineState, PlainSteps};
use crate::chat::conversation::Change;
use crate::event::Generate;
use crate::tui::effect::Effect;

/// How a pair's answers are made, unless the person says otherwise on the way.
#[derive(Debug, Clone)]
pub struct OwnSettings {
    /// How it decodes; the prompt is not used.
    pub generate: Generate,
    /// Its instructions.
    pub system: Option<String>,
}

impl OwnSettings {
    /// `now` for the pair of `next`: what was changed on the way stays, all else is the pair's.
    fn hand_over(&self, now: &Generate, next: &OwnSettings) -> Generate {
        let (before, after) = (&self.generate, &next.generate);
        Generate {
            prompt: now.prompt.clone(),
            mode: handed(&now.mode, &before.mode, &after.mode),
            block_size: handed(&now.block_size, &before.block_size, &after.block_size),
            sampling: handed(&now.sampling, &before.sampling, &after.sampling),
            seed: handed(&now.seed, &before.seed, &after.seed),
            max_tokens: handed(&now.max_tokens, &before.max_tokens, &after.max_tokens),
            stop: handed(&now.stop, &before.stop, &after.stop),
            thinking: handed(&now.thinking, &before.thinking, &after.thinking),
            drop_oldest: handed(&now.drop_oldest, &before.drop_oldest, &after.drop_oldest),
        }
    }
}

fn handed<T: PartialEq + Clone>(now: &T, before: &T, after: &T) -> T {
    if now == before { after.clone() } else { now.clone() }
}

impl App {
    /// Ask for another engine, or for the same one again.
    pub(super) fn load_pair(&mut self, pair: String) -> Vec<Effect> {
        let mut effects = self.take_settings_of(&pair);
        let stage = format!("starting {pair}");
        self.asked_pair = pair.clone();
        self.engine = EngineState::Loading { stage, done: 0, total: 0 };
        self.measure_context();
        self.verify_cost = None;
        self.measuring = false;
        self.plain = PlainSteps::default();
        effects.push(Effect::StartEngine(pair));
        effects
    }

    /// Go over to the settings of `pair` where the ones before are the last pair's.
    fn take_settings_of(&mut self, pair: &str) -> Vec<Effect> {
        let (Some(before), Some(next)) = (self.own.get(&self.asked_pair), self.own.get(pair))
        else {
            return Vec::new();
        };
        self.generate = before.hand_over(&self.generate, next);
        let system = handed(&self.conversation.system, &before.system, &next.system);
        let changed = system != self.conversation.system;
        let change = changed.then_some(Change::System { text: system });
        change.and_then(|change| self.change(change)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::event::Mode;
    use crate::tui::app::OwnSettings;
    use crate::tui::effect::Effect;
    use crate::tui::testing::ready_app;

    #[test]
    fn a_pair_brings_its_own_settings_but_for_what_was_changed() {
        let mut app = ready_app();
        let own = |seed, max_tokens, system: &str| {
            let mut generate = app.generate.clone();
            (generate.seed, generate.max_tokens) = (seed, max_tokens);
            OwnSettings { generate, system: Some(system.into()) }
        };
        let (first, second) = (own(1, 100, "be brief"), own(2, 200, "think"));
        app.generate = first.generate.clone();
        app.conversation.system = first.system.clone();
        let name = app.asked_pair.clone();
        app.own = [(name.clone(), first), ("other".into(), second)].into();
        app.generate.seed = 7;
        app.generate.mode = Mode::Baseline;

        let effects = app.load_pair("other".into());
        assert!(matches!(effects[..], [Effect::Record(_), Effect::StartEngine(_)]), "{effects:?}");
        assert_eq!((app.generate.seed, app.generate.max_tokens), (7, 200));
        assert_eq!(app.generate.mode, Mode::Baseline);
        assert_eq!(app.conversation.system.as_deref(), Some("think"));
        // What the person wrote stays, and a pair that nobody knows brings nothing.
        app.conversation.system = Some("my own".into());
        app.load_pair(name);
        app.load_pair("./elsewhere".into());
        assert_eq!((app.generate.max_tokens, app.generate.seed), (100, 7));
        assert_eq!(app.conversation.system.as_deref(), Some("my own"));
    }
}
