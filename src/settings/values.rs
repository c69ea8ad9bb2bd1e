//! Every setting: its type, its default, and how it is written.

use crate::event::{BlockSize, Mode, Sampling};
use clap::ValueEnum;

/// What the person prefers, with every source of settings taken into account.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// The pair to run; the demo pair unless given.
    pub pair: Option<String>,
    /// A target in place of the pair's.
    pub target: Option<String>,
    /// A draft in place of the pair's.
    pub draft: Option<String>,
    /// Draft and verify, or one token a pass.
    pub mode: Mode,
    /// How long blocks are.
    pub block_size: BlockSize,
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// How tokens are chosen: the five keys `temperature`, `top_p`, `top_k`, `min_p` and
    /// `repetition_penalty`.
    pub sampling: Sampling,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Instructions for the model; the template's own unless given.
    pub system: Option<String>,
    /// Let the model think first.
    pub thinking: bool,
    /// Most tokens that prompt and answer may have together; 8192 unless given, and never more
    /// than the models were made for.
    pub ctx: Option<usize>,
    /// Where to compute.
    pub device: Device,
    /// Threads that compute; the machine's cores unless given.
    pub threads: Option<usize>,
    /// How weights are kept in memory.
    pub quant: Quant,
    /// Name of a theme.
    pub theme: String,
    /// The characters that panels are drawn with.
    pub glyphs: Glyphs,
    /// Whether colours are used.
    pub color: Color,
    /// Never use the network.
    pub offline: bool,
    /// What happens when a conversation has filled the context.
    pub context_full: ContextFull,
}

/// Where to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Device {
    /// Metal or CUDA where the program was built with it and finds one, else the CPU.
    Auto,
    /// The CPU, with this program's own kernels.
    Cpu,
    /// Apple's GPUs.
    Metal,
    /// NVIDIA's GPUs.
    Cuda,
    /// The CPU through the code that GPUs use: slow, to compare with.
    CandleCpu,
}

/// How weights are kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Quant {
    /// As the file has them.
    Stored,
    /// Dequantised and dense.
    None,
    /// 8 bits; what the file has in 4 stays so.
    Q8,
    /// 4 bits.
    Q4,
}

/// The characters that panels are drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Glyphs {
    /// As the terminal's locale allows.
    Auto,
    /// Box-drawing characters and marks.
    Unicode,
    /// ASCII alone.
    Ascii,
}

/// Whether colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// As the terminal allows, and `NO_COLOR` wishes.
    Auto,
    /// Even where the terminal seems not to.
    Always,
    /// Never.
    Never,
}

/// What happens when a conversation has filled the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ContextFull {
    /// The answer ends, and the person decides.
    Stop,
    /// The oldest turns are left out of the prompt.
    DropOldest,
}

impl Default for Values {
    fn default() -> Self {
        Values {
            pair: None,
            target: None,
            draft: None,
            mode: Mode::default(),
            block_size: BlockSize::default(),
            max_tokens: 1024,
            sampling: Sampling::default(),
            seed: 0,
            system: None,
            thinking: false,
            ctx: None,
            device: Device::Auto,
            threads: None,
            quant: Quant::Stored,
            theme: "dark".into(),
            glyphs: Glyphs::Auto,
            color: Color::Auto,
            offline: false,
            context_full: ContextFull::Stop,
        }
    }
}

/// What a key's value looks like in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A quoted text.
    Text,
    /// A number without quotes.
    Number,
    /// A number, or a quoted word.
    NumberOrWord,
    /// `true` or `false`.
    Switch,
}

/// One setting.
pub struct Key {
    /// Its name in files; in capitals after `DFLASH_CHAT_` in the environment.
    pub name: &'static str,
    /// How it is written in files.
    pub kind: Kind,
    /// It may stand under `[pairs.NAME]`.
    pub per_pair: bool,
    /// Read it; the error says what would be right.
    pub set: fn(&mut Values, &str) -> Result<(), String>,
    /// Its value as a person writes it, without quotes; `None` if it is not set.
    pub get: fn(&Values) -> Option<String>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.name)
    }
}

/// The key of that name.
pub fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// All keys, in the order of the commented default file.
pub const KEYS: &[Key] = &[
    Key {
        name: "pair",
        kind: Kind::Text,
        per_pair: false,
        set: |v, text| some(&mut v.pair, text),
        get: |v| v.pair.clone(),
    },
    Key {
        name: "target",
        kind: Kind::Text,
        per_pair: false,
        set: |v, text| some(&mut v.target, text),
        get: |v| v.target.clone(),
    },
    Key {
        name: "draft",
        kind: Kind::Text,
        per_pair: false,
        set: |v, text| some(&mut v.draft, text),
        get: |v| v.draft.clone(),
    },
    Key {
        name: "mode",
        kind: Kind::Text,
        per_pair: true,
        set: |v, text| {
            v.mode = [Mode::Speculative, Mode::Baseline]
                .into_iter()
                .find(|mode| mode.name() == text)
                .ok_or("speculative or baseline")?;
            Ok(())
        },
        get: |v| Some(v.mode.name().into()),
    },
    Key {
        name: "block_size",
        kind: Kind::NumberOrWord,
        per_pair: true,
        set: |v, text| {
            v.block_size = text.parse().map_err(|_| "auto, or a whole number from 1 to 64")?;
            Ok(())
        },
        get: |v| Some(v.block_size.to_string()),
    },
    Key {
        name: "max_tokens",
        kind: Kind::Number,
        per_pair: true,
        set: |v, text| whole(&mut v.max_tokens, text, 1, 1 << 20),
        get: |v| Some(v.max_tokens.to_string()),
    },
    Key {
        name: "temperature",
        kind: Kind::Number,
        per_pair: true,
        set: |v, text| number(&mut v.sampling.temperature, text, 0.0, 100.0),
        get: |v| Some(v.sampling.temperature.to_string()),
    },
    Key {
        name: "top_p",
        kind: Kind::Number,
        per_pair: true,
        set: |v, text| number(&mut v.sampling.top_p, text, 0.0, 1.0),
        get: |v| Some(v.sampling.top_p.to_string()),
    },
    Key {
        name: "top_k",
        kind: Kind::Number,
        per_pair: true,
        set: |v, text| whole(&mut v.sampling.top_k, text, 0, 1 << 32),
        get: |v| Some(v.sampling.top_k.to_string()),
    },
    Key {
        name: "min_p",
        kind: Kind::Number,
        per_pair: true,
        set: |v, text| number(&mut v.sampling.min_p, text, 0.0, 1.0),
        get: |v| Some(v.sampling.min_p.to_string()),
    },
    Key {
        name: "repetition_penalty",
        kind: Kind::Number,
        per_pair: true,
        set: |v, text| number(&mut v.sampling.repetition_penalty, text, 0.01, 100.0),
        get: |v| Some(v.sampling.repetition_penalty.to_string()),
    },
    Key {
        name: "seed",
        kind: Kind::Number,
        per_pair: true,
        set: |v, text| {
            v.seed = text.parse().map_err(|_| "a whole number, 0 or more")?;
            Ok(())
        },
        get: |v| Some(v.seed.to_string()),
    },
    Key {
        name: "system",
        kind: Kind::Text,
        per_pair: true,
        // An empty text is a wish too: no instructions at all.
        set: |v, text| {
            v.system = Some(text.into());
            Ok(())
        },
        get: |v| v.system.clone(),
    },
    Key {
        name: "thinking",
        kind: Kind::Switch,
        per_pair: true,
        set: |v, text| switch(&mut v.thinking, text),
        get: |v| Some(v.thinking.to_string()),
    },
    Key {
        name: "ctx",
        kind: Kind::Number,
        per_pair: true,
        set: |v, text| whole(v.ctx.insert(0), text, 16, 1 << 20),
        get: |v| v.ctx.map(|n| n.to_string()),
    },
    Key {
        name: "device",
        kind: Kind::Text,
        per_pair: true,
        set: |v, text| choice(&mut v.device, text),
        get: |v| word(v.device),
    },
    Key {
        name: "threads",
        kind: Kind::Number,
        per_pair: true,
        set: |v, text| whole(v.threads.insert(0), text, 1, 1024),
        get: |v| v.threads.map(|n| n.to_string()),
    },
    Key {
        name: "quant",
        kind: Kind::Text,
        per_pair: true,
        set: |v, text| choice(&mut v.quant, text),
        get: |v| word(v.quant),
    },
    Key {
        name: "theme",
        kind: Kind::Text,
        per_pair: false,
        set: |v, text| {
            v.theme = text.into();
            if text.is_empty() { Err("the name of a theme".into()) } else { Ok(()) }
        },
        get: |v| Some(v.theme.clone()),
    },
    Key {
        name: "glyphs",
        kind: Kind::Text,
        per_pair: false,
        set: |v, text| choice(&mut v.glyphs, text),
        get: |v| word(v.glyphs),
    },
    Key {
        name: "color",
        kind: Kind::Text,
        per_pair: false,
        set: |v, text| choice(&mut v.color, text),
        get: |v| word(v.color),
    },
    Key {
        name: "offline",
        kind: Kind::Switch,
        per_pair: false,
        set: |v, text| switch(&mut v.offline, text),
        get: |v| Some(v.offline.to_string()),
    },
    Key {
        name: "context_full",
        kind: Kind::Text,
        per_pair: true,
        set: |v, text| choice(&mut v.context_full, text),
        get: |v| word(v.context_full),
    },
];

fn some(into: &mut Option<String>, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("a text that is not empty".into());
    }
    *into = Some(text.into());
    Ok(())
}

fn whole(into: &mut usize, text: &str, low: usize, high: usize) -> Result<(), String> {
    match text.parse() {
        Ok(n) if (low..=high).contains(&n) => {
            *into = n;
            Ok(())
        }
        _ => Err(format!("a whole number from {low} to {high}")),
    }
}

fn number(into: &mut f32, text: &str, low: f32, high: f32) -> Result<(), String> {
    match text.parse() {
        Ok(x) if (low..=high).contains(&x) => {
            *into = x;
            Ok(())
        }
        _ => Err(format!("a number from {low} to {high}")),
    }
}

fn switch(into: &mut bool, text: &str) -> Result<(), String> {
    *into = match text {
        "true" | "1" | "yes" | "on" => true,
        "false" | "0" | "no" | "off" => false,
        _ => return Err("true or false".into()),
    };
    Ok(())
}

fn choice<T: ValueEnum>(into: &mut T, text: &str) -> Result<(), String> {
    let words: Vec<String> = T::value_variants().iter().filter_map(|v| word(v.clone())).collect();
    *into = T::from_str(text, false).map_err(|_| format!("one of {}", words.join(", ")))?;
    Ok(())
}

fn word<T: ValueEnum>(value: T) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_default_can_be_written_and_read() {
        for key in KEYS {
            let mut values = Values::default();
            if let Some(text) = (key.get)(&values) {
                (key.set)(&mut values, &text).unwrap();
            }
            assert_eq!(values, Values::default(), "{}", key.name);
        }
    }

    #[test]
    fn bad_values_are_refused() {
        for (name, bad) in [
            ("pair", ""),
            ("mode", "fast"),
            ("block_size", "0"),
            ("block_size", "many"),
            ("max_tokens", "0"),
            ("temperature", "-1"),
            ("temperature", "NaN"),
            ("temperature", "inf"),
            ("top_p", "1.5"),
            ("top_k", "-1"),
            ("repetition_penalty", "0"),
            ("seed", "1.5"),
            ("thinking", "maybe"),
            ("ctx", "1"),
            ("threads", "0"),
            ("device", "gpu"),
            ("quant", "q5"),
            ("glyphs", ""),
            ("context_full", "panic"),
        ] {
            assert!((key(name).unwrap().set)(&mut Values::default(), bad).is_err(), "{name} {bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_trouble(text in "\\PC{0,20}") {
            for key in KEYS {
                let mut values = Values::default();
                if (key.set)(&mut values, &text).is_ok() {
                    let written = (key.get)(&values).unwrap();
                    let mut again = Values::default();
                    prop_assert_eq!((key.set)(&mut again, &written), Ok(()));
                    prop_assert_eq!(again, values);
                }
            }
        }
    }
}
