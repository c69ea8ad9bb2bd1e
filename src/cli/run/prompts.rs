//! The prompts of `run`.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::io::Read;
use std::path::Path;

/// What is asked: messages of the person, each answered before the next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// The line of the file, from 1.
    pub(super) line: usize,
    pub(super) turns: Vec<String>,
}

/// The prompt of the command line; `-` is standard input.
pub(super) fn single(prompt: &str) -> Result<Ask> {
    let text = match prompt {
        "-" => standard_input()?,
        text => text.to_owned(),
    };
    Ok(Ask { line: 1, turns: vec![text] })
}

/// The prompts of a JSONL file; `-` is standard input.
pub(super) fn from_file(path: &Path) -> Result<Vec<Ask>> {
    let text = match path.as_os_str() == "-" {
        true => standard_input()?,
        false => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the prompts {}", path.display()))?,
    };
    parse(&text).with_context(|| format!("in the prompts {}", path.display()))
}

fn standard_input() -> Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    let text = String::from_utf8(bytes).context("the prompt on standard input is not UTF-8")?;
    if text.trim().is_empty() {
        bail!("standard input was empty; give the prompt there or as an argument");
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Vec<Ask>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        prompt: Option<String>,
        turns: Option<Vec<String>>,
    }
    let mut asks = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = i + 1;
        let parsed = serde_json::from_str(line).with_context(|| format!("line {number}"))?;
        let turns = match parsed {
            Line { prompt: Some(prompt), turns: None } => vec![prompt],
            Line { prompt: None, turns: Some(turns) } if !turns.is_empty() => turns,
            _ => bail!(
                "line {number}: expected {{\"prompt\": \"…\"}} or {{\"turns\": [\"…\", \"…\"]}}"
            ),
        };
        asks.push(Ask { line: number, turns });
    }
    if asks.is_empty() {
        bail!("there is no prompt in it");
    }
    Ok(asks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_and_conversations_by_line() {
        let asks = parse("{\"prompt\":\"a\"}\n\n{\"turns\":[\"b\",\"c\"]}\n").unwrap();
        let ask = |line, turns: &[&str]| Ask {
            line,
            turns: turns.iter().map(|turn| turn.to_string()).collect(),
        };
        assert_eq!(asks, [ask(1, &["a"]), ask(3, &["b", "c"])]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, said) in [
            ("{\"prompt\":\"a\"}\nhello", "line 2"),
            ("{}", "line 1: expected"),
            ("{\"prompt\":\"a\",\"turns\":[\"b\"]}", "line 1: expected"),
            ("{\"turns\":[]}", "line 1: expected"),
            ("{\"prompt\":\"a\",\"temprature\":1}", "temprature"),
            ("\n \n", "no prompt"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
