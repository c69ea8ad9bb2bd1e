//! A recorded answer as an asciicast (version 2): a header, then one `[seconds, "o", text]` a
//! line, for players of terminal recordings. Every round begins with a marker, `[seconds, "m",
//! label]`, at which players can stop.

use super::strip::{Ink, Line, line, lines, render};
use super::timeline::Timeline;
use super::{Header, Run};
use crate::event::EngineEvent;
use anyhow::Result;
use serde_json::json;
use std::io::Write;

/// Columns of the pretended terminal.
pub const COLUMNS: usize = 100;
/// Rows of the pretended terminal.
const ROWS: usize = 30;

/// Write an answer at `speed` times its recorded speed.
///
/// # Errors
/// The output cannot be written.
pub fn write(
    out: &mut impl Write,
    header: Option<&Header>,
    run: &Run,
    speed: f32,
    colours: bool,
) -> Result<()> {
    let prompt = header.map(|header| header.prompt()).filter(|prompt| !prompt.is_empty());
    let title = prompt.unwrap_or("dflash-chat");
    let head = json!({
        "version": 2, "width": COLUMNS, "height": ROWS, "title": title,
        "env": {"TERM": "xterm-256color"},
    });
    writeln!(out, "{head}")?;
    print(out, 0.0, &heading(header), colours)?;
    let timeline = Timeline::new(&run.events);
    for (i, event) in run.events.iter().enumerate() {
        let at = (timeline.due(i) as f64 / f64::from(speed)).round() / 1e6;
        if let EngineEvent::Round(round) = event {
            let label = format!("round {}", round.index.saturating_add(1));
            writeln!(out, "{}", json!([at, "m", label]))?;
        }
        print(out, at, &lines(event, COLUMNS), colours)?;
    }
    Ok(())
}

fn print(out: &mut impl Write, at: f64, shown: &[Line], colours: bool) -> Result<()> {
    let text: String = shown.iter().map(|line| render(line, colours) + "\r\n").collect();
    if !text.is_empty() {
        writeln!(out, "{}", json!([at, "o", text]))?;
    }
    Ok(())
}

/// What is played, in a few lines.
pub fn heading(header: Option<&Header>) -> Vec<Line> {
    let Some(header) = header else { return vec![line("REPLAY", Ink::Title), Vec::new()] };
    let what = format!("REPLAY of {} on {}, recorded {}", header.pair, header.device, header.date);
    let mut lines = vec![line(&what, Ink::Title), line(&header.origin, Ink::Muted), Vec::new()];
    if !header.prompt().is_empty() {
        lines.extend([line(&format!("> {}", header.prompt()), Ink::Plain), Vec::new()]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::demo::TRACES;
    use serde_json::Value;

    #[test]
    fn every_line_is_json_and_time_does_not_fall() {
        let recording = TRACES[0].recording();
        let run = &recording.runs[0];
        let mut out = Vec::new();
        write(&mut out, recording.header.as_ref(), run, 2.0, true).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((&lines[0]["version"], &lines[0]["width"]), (&json!(2), &json!(100)));
        let times: Vec<f64> = lines[1..].iter().map(|line| line[0].as_f64().unwrap()).collect();
        assert!(times.is_sorted(), "{times:?}");
        let markers = lines.iter().filter(|line| line[1] == "m").count();
        assert_eq!(markers, run.rounds().count());
        let us: u64 = run.rounds().map(|round| round.total_us()).sum();
        assert!(times[times.len() - 1] > us as f64 / 2e6);
        assert!(text.contains("\\u001b[32m") || text.contains("\\u001b[1;33m"));

        let mut plain = Vec::new();
        write(&mut plain, None, run, 1.0, false).unwrap();
        assert!(!String::from_utf8(plain).unwrap().contains("\\u001b"));
    }
}
