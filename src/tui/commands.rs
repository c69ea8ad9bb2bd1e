//! Slash commands: one table drives the parser, the popup and the help.

use crate::event::{BlockSize, Mode};

/// A command that was understood.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // Described in [`COMMANDS`], which the help shows.
pub enum Command {
    Help,
    New,
    Open,
    Title(String),
    Delete,
    Undelete,
    Export(String),
    Mode(Option<Mode>),
    Block(BlockSize),
    Temperature(f32),
    Seed(u64),
    MaxTokens(usize),
    System(String),
    Thinking,
    Retry,
    Edit(Option<usize>),
    Undo,
    Fork(Option<usize>),
    Copy(Option<usize>),
    Theme(String),
    Stats,
    Cost,
    Explain,
    /// The prompt, empty for the last question, and how often.
    Race(String, usize),
    Pair(String),
    Quit,
}

/// How a command is written and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Its name, without the slash.
    pub name: &'static str,
    /// What may follow it.
    pub args: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Whether it may be used while an answer is being made.
    pub while_busy: bool,
}

const fn spec(name: &'static str, args: &'static str, help: &'static str, busy: bool) -> Spec {
    Spec { name, args, help, while_busy: busy }
}

/// Every command, in the order of the popup.
pub const COMMANDS: &[Spec] = &[
    spec("help", "", "keys and commands", true),
    spec("new", "", "start a new conversation", false),
    spec("open", "", "go on with an earlier conversation", false),
    spec("title", "[TEXT]", "give the conversation a title", true),
    spec("delete", "", "delete this conversation", false),
    spec("undelete", "", "bring back what was deleted last", false),
    spec("export", "[FILE]", "write the conversation as Markdown, or as .json", true),
    spec("retry", "", "answer the last message again", false),
    spec("edit", "[TURN]", "say the last message, or that of a turn, otherwise", false),
    spec("undo", "", "take back the last message and its answer", false),
    spec("fork", "[TURN]", "go on in a copy that ends with this turn", false),
    spec("copy", "[N]", "copy the last answer, or its code block N", true),
    spec("mode", "[speculative|baseline]", "how the next answer is decoded", true),
    spec("block", "auto|N", "tokens in a block, the anchor included", true),
    spec("temp", "T", "temperature; 0 always takes the likeliest token", true),
    spec("seed", "N", "seed of the random numbers", true),
    spec("max", "N", "most tokens in an answer", true),
    spec("system", "[TEXT]", "instructions for the model; none to clear", false),
    spec("race", "[PROMPT] [--repeat N]", "both ways of decoding, side by side", false),
    spec("think", "", "let the model think first, or not", true),
    spec("pair", "[NAME]", "choose another pair, or load one again", false),
    spec("theme", "[NAME]", "colours; without a name, choose", true),
    spec("stats", "", "the figures of this session", true),
    spec("cost", "", "measure what a verify pass costs at each length", false),
    spec("explain", "", "say what each figure means", true),
    spec("quit", "", "leave", true),
];

/// A line of the popup: a command, or one with an argument that it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// What is written when it is taken, the slash included.
    pub text: String,
    /// What may follow.
    pub args: &'static str,
    /// What it does.
    pub help: String,
}

impl Suggestion {
    /// Whether something has to follow before it can be run.
    pub fn wants_more(&self) -> bool {
        !self.args.is_empty() && !self.args.starts_with('[')
    }
}

impl From<&Spec> for Suggestion {
    fn from(spec: &Spec) -> Suggestion {
        Suggestion { text: format!("/{}", spec.name), args: spec.args, help: spec.help.into() }
    }
}

/// The commands that `input` (after the slash) may become.
pub fn matching(input: &str) -> Vec<&'static Spec> {
    let name = input.split_whitespace().next().unwrap_or("");
    if input.contains(char::is_whitespace) {
        return COMMANDS.iter().filter(|spec| spec.name == name).collect();
    }
    COMMANDS.iter().filter(|spec| spec.name.starts_with(name)).collect()
}

/// Understand `input`, what stands after the slash.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn parse(input: &str) -> Result<(&'static Spec, Command), String> {
    let (name, rest) = input.trim().split_once(char::is_whitespace).unwrap_or((input.trim(), ""));
    let rest = rest.trim();
    let spec = COMMANDS.iter().find(|spec| spec.name == name).ok_or_else(|| {
        format!("there is no command /{name}; /help lists them, a blank before it sends it")
    })?;
    let usage = || format!("usage: /{} {}", spec.name, spec.args);
    // Who writes more than a name may mean something else than what the command does.
    if spec.args.is_empty() && !rest.is_empty() {
        return Err(format!("/{name} takes nothing after it; a blank before it sends it"));
    }
    let command = match spec.name {
        "help" => Command::Help,
        "new" => Command::New,
        "open" => Command::Open,
        "title" => Command::Title(rest.to_string()),
        "delete" => Command::Delete,
        "undelete" => Command::Undelete,
        "export" => Command::Export(rest.to_string()),
        "retry" => Command::Retry,
        "edit" => Command::Edit(ordinal(rest).ok_or_else(usage)?),
        "undo" => Command::Undo,
        "fork" => Command::Fork(ordinal(rest).ok_or_else(usage)?),
        "copy" => Command::Copy(ordinal(rest).ok_or_else(usage)?),
        "mode" => Command::Mode(match rest {
            "" => None,
            "speculative" => Some(Mode::Speculative),
            "baseline" => Some(Mode::Baseline),
            _ => return Err(usage()),
        }),
        "block" => Command::Block(rest.parse().map_err(|error| format!("{error}; {}", usage()))?),
        "temp" => match rest.parse::<f32>() {
            Ok(t) if (0.0..=5.0).contains(&t) => Command::Temperature(t),
            _ => return Err("a temperature is a number from 0 to 5".into()),
        },
        "seed" => Command::Seed(rest.parse().map_err(|_| usage())?),
        "max" => match rest.parse::<usize>() {
            Ok(n) if n > 0 => Command::MaxTokens(n),
            _ => return Err("an answer may have 1 token or more".into()),
        },
        "system" => Command::System(rest.to_string()),
        "think" => Command::Thinking,
        "race" => {
            let (prompt, repeats) = match rest.rsplit_once("--repeat") {
                None => (rest, Ok(1)),
                Some((prompt, repeats)) => (prompt.trim_end(), repeats.trim().parse()),
            };
            let repeats = repeats.ok().filter(|n| (1..=100).contains(n)).ok_or_else(usage)?;
            Command::Race(prompt.to_string(), repeats)
        }
        "pair" => Command::Pair(rest.to_string()),
        "theme" => Command::Theme(rest.to_string()),
        "stats" => Command::Stats,
        "cost" => Command::Cost,
        "explain" => Command::Explain,
        "quit" => Command::Quit,
        _ => return Err(usage()),
    };
    Ok((spec, command))
}

/// A number from 1 on, or nothing; `None` for what is neither.
fn ordinal(text: &str) -> Option<Option<usize>> {
    match text {
        "" => Some(None),
        number => number.parse().ok().filter(|n| *n > 0).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_in_the_table_is_understood() {
        for spec in COMMANDS {
            let argument = match spec.name {
                "block" => "auto",
                "temp" | "seed" | "max" => "1",
                _ => "",
            };
            let parsed = parse(&format!("{} {argument}", spec.name));
            assert_eq!(parsed.map(|(found, _)| found), Ok(spec));
        }
    }

    #[test]
    fn arguments_are_checked() {
        assert_eq!(parse("block 6").unwrap().1, Command::Block(BlockSize::Fixed(6)));
        assert_eq!(parse("copy").unwrap().1, Command::Copy(None));
        assert_eq!(parse("fork 2").unwrap().1, Command::Fork(Some(2)));
        assert_eq!(parse("system  be brief ").unwrap().1, Command::System("be brief".into()));
        assert_eq!(parse("race a b --repeat 3").unwrap().1, Command::Race("a b".into(), 3));
        assert_eq!(parse("race --repeat 2").unwrap().1, Command::Race(String::new(), 2));
        for wrong in [
            "race x --repeat",
            "race x --repeat 101",
            "block 0",
            "block 65",
            "temp -1",
            "temp NaN",
            "seed x",
            "max 0",
            "mode fast",
            "copy 0",
            "copy first",
            "fork -1",
            "fly",
            "delete everything about cats",
            "",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_popup_narrows_as_one_types() {
        let names = |input| matching(input).iter().map(|spec| spec.name).collect::<Vec<_>>();
        assert_eq!(names("th"), ["think", "theme"]);
        assert_eq!(names("block 4"), ["block"]);
        assert_eq!(names("").len(), COMMANDS.len());
        assert!(names("zz").is_empty());
    }
}
