//! The first and the last row.

use super::paint::{Canvas, bar, dotted};
use crate::event::{Level, Mode, ModelReady};
use crate::tui::action::Action;
use crate::tui::app::{App, CROWDED, EngineState, Phase, RaceStage};
use crate::tui::theme::Role;
use crate::tui::transcript::level_role;
use crate::tui::wrap::{self, Piece, Row};

/// Pair, device, mode; context used.
pub fn title(canvas: &mut Canvas<'_>, app: &App) {
    let style = |role| app.dress.theme.style(role);
    let text = |text: String| Piece::new(text, style(Role::Text));
    let mut parts = vec![Piece::new(app.pair.clone(), style(Role::Strong))];
    let model = app.race.as_ref().map_or_else(|| app.model(), |racing| racing.model.as_ref());
    if let Some(model) = model {
        let detail = crate::text::sanitise_line(&model.device_detail);
        let threads =
            if model.threads > 1 { format!(" {} threads", model.threads) } else { String::new() };
        parts.push(text(format!("{} {detail}{threads}", model.device)));
    }
    if app.race.is_none() {
        parts.extend(mode(model, app));
    }
    // What is recorded was made with another.
    if app.generate.sampling.temperature > 0.0 && app.replay.is_none() {
        parts.push(text(format!("temperature {}", app.generate.sampling.temperature)));
    }
    let mut left = vec![Piece::new(" dflash-chat  ", style(Role::Title))];
    if let Some(badge) = model.map(|model| model.engine.as_str()).filter(|e| *e != "native") {
        let word = crate::text::sanitise_line(badge).to_uppercase();
        left.push(Piece::new(format!("[{word}] "), style(Role::Badge)));
    }
    // What does not fit is said shorter, then left out: the device first, the bar, the mode.
    let mut context = context(app, true);
    let fits = |parts: &[Piece], context: &Row| {
        let used = [&left, context].map(|row| wrap::row_width(row)).iter().sum::<usize>();
        used + wrap::row_width(&dotted(parts.to_vec(), app)) < canvas.width()
    };
    if !fits(&parts, &context) && parts.len() > 2 {
        parts.remove(1);
    }
    if !fits(&parts, &context) {
        context = self::context(app, false);
    }
    while !fits(&parts, &context) && parts.len() > 1 {
        parts.pop();
    }
    left.extend(dotted(parts, app));
    canvas.row(0, 0, &left);
    canvas.right(0, &context);
}

/// How answers are made, whatever was asked for: without a draft there are plain steps only.
fn mode(model: Option<&ModelReady>, app: &App) -> Option<Piece> {
    let (mode, block_size) = app.decoding()?;
    // A recording tells how its answer was made, and not always which networks there were.
    let no_draft = model.is_some_and(|model| model.draft.is_none() && !model.is_replay());
    let text = match mode {
        _ if no_draft => format!("{}, no draft", Mode::Baseline.name()),
        Mode::Baseline => mode.name().into(),
        Mode::Speculative => format!("{}, block {block_size}", mode.name()),
    };
    Some(Piece::new(text, app.dress.theme.style(Role::Text)))
}

fn context(app: &App, with_bar: bool) -> Row {
    let style = |role| app.dress.theme.style(role);
    if app.race.is_some() {
        return Row::new();
    }
    let (Some(model), Some(share)) = (app.model(), app.context_share()) else { return Row::new() };
    let crowded = share >= CROWDED;
    let role = if crowded { Role::Warning } else { Role::Muted };
    let mark = if crowded { "!" } else { "" };
    let figure = format!(" {mark}{}/{} ", app.context_used, model.ctx_limit);
    if !with_bar {
        return vec![Piece::new(figure, style(role))];
    }
    let (full, empty) = bar(share, 8, app);
    vec![
        Piece::new(" context ", style(Role::Muted)),
        Piece::new(full, style(Role::Draft)),
        Piece::new(empty, style(Role::Axis)),
        Piece::new(figure, style(role)),
    ]
}

/// What happens now; the last notice; the keys that matter now.
pub fn bottom(canvas: &mut Canvas<'_>, app: &App) {
    let style = |role| app.dress.theme.style(role);
    let mut left = state(app);
    let mut hints = hints(app);
    if let Some((level, text)) = &app.notice {
        let role = level_role(*level);
        left.push(Piece::new("   ", style(Role::Muted)));
        let mark = if *level == Level::Info { "" } else { "! " };
        left.push(Piece::new(format!("{mark}{}", crate::text::sanitise_line(text)), style(role)));
    }
    // What happens matters more than the keys, which the help has too.
    let width = canvas.width();
    while wrap::row_width(&left) + wrap::row_width(&keys(&hints, app)) + 2 > width
        && hints.pop().is_some()
    {}
    canvas.right(0, &keys(&hints, app));
    let taken: usize = left.iter().rev().skip(1).map(|piece| wrap::width(&piece.text)).sum();
    if let Some(last) = left.last_mut() {
        last.text =
            wrap::truncate(&last.text, width.saturating_sub(taken + 1), app.dress.glyphs.ellipsis);
    }
    canvas.row(0, 0, &left);
}

fn state(app: &App) -> Row {
    let style = |role| app.dress.theme.style(role);
    let word = |text: &str, role| vec![Piece::new(format!(" {text}"), style(role))];
    let ellipsis = app.dress.glyphs.ellipsis;
    if let Some(racing) = &app.race {
        let mut row = match racing.stage {
            RaceStage::Running => word("racing", Role::Ok),
            RaceStage::Stopping => word(&format!("stopping{ellipsis}"), Role::Warning),
            RaceStage::Over => word("the race is over", Role::Ok),
            RaceStage::Failed(_) => word("the race failed", Role::Error),
        };
        if racing.repeats > 1 {
            let run = format!("  run {} of {}", racing.run(), racing.repeats);
            row.push(Piece::new(run, style(Role::Text)));
        }
        return row;
    }
    if let (Some(replay), EngineState::Ready(_)) = (&app.replay, &app.engine) {
        let what = match app.running {
            None => "at the end",
            Some(_) if replay.paused => "paused",
            Some(_) => "playing",
        };
        let happened = app.transcript.last_answer().map_or(0, |answer| answer.rounds.len());
        let mut row = word(what, Role::Ok);
        let speed = match 1.0 / replay.speed {
            slower if slower > 1.0 && (slower - slower.round()).abs() < 0.01 * slower => {
                format!("1/{slower:.0}")
            }
            _ => {
                format!("{:.2}", replay.speed).trim_end_matches(['0']).trim_end_matches('.').into()
            }
        };
        let place = format!("  round {happened}/{}  x{speed}", replay.rounds);
        row.push(Piece::new(place, style(Role::Text)));
        return row;
    }
    let Some(running) = app.running else {
        return match &app.engine {
            EngineState::Ready(_) if app.measuring => {
                word(&format!("measuring{ellipsis}"), Role::Text)
            }
            EngineState::Ready(_) => word("ready", Role::Ok),
            EngineState::Loading { stage, done, total } if *total > 0 => {
                let percent = 100.0 * *done as f64 / *total as f64;
                word(&format!("{stage} {percent:.0}%"), Role::Text)
            }
            EngineState::Loading { stage, .. } => word(&format!("{stage}{ellipsis}"), Role::Text),
            EngineState::Ended => word("no model", Role::Error),
        };
    };
    if running.stopping {
        return word(&format!("stopping{ellipsis}"), Role::Warning);
    }
    match running.phase {
        Phase::Waiting => word(&format!("asked{ellipsis}"), Role::Text),
        Phase::Prefill(done, total) => word(&format!("prompt {done}/{total}"), Role::Text),
        Phase::Decoding => {
            let mut row = word("answering", Role::Ok);
            if let Some(answer) = app.transcript.last_answer() {
                let rate = answer.stats.decode_tok_s();
                row.push(Piece::new(format!("  {rate:.1} tok/s"), style(Role::Text)));
                let tau = format!("  {} {:.2}", app.dress.glyphs.tau, answer.stats.tau());
                row.push(Piece::new(tau, style(Role::Text)));
            }
            row
        }
    }
}

/// The keys that matter now and what they do, the first the most.
fn hints(app: &App) -> Vec<(String, &'static str)> {
    if app.demo.is_some() {
        return vec![("any key".into(), "stops")];
    }
    let raced = app.race.as_ref().map(|racing| racing.goes_on());
    let hints: &[(Action, &'static str)] = match (raced, app.walk.is_some(), app.busy()) {
        (Some(false), ..) => &[
            (Action::Back, "back to the chat"),
            (Action::PageUp, "scroll"),
            (Action::Help, "help"),
        ],
        (None, true, _) => &[
            (Action::Back, "leave"),
            (Action::Fork, "fork here"),
            (Action::WordRight, "next round"),
            (Action::Up, "answer before"),
        ],
        (None, false, true) if app.waits_for_model() => {
            &[(Action::Back, "take it back"), (Action::Explain, "explain"), (Action::Help, "help")]
        }
        (Some(true), ..) | (_, _, true) => {
            &[(Action::Back, "stop"), (Action::Explain, "explain"), (Action::Help, "help")]
        }
        _ => &[(Action::Help, "help"), (Action::Newline, "new line"), (Action::Submit, "send")],
    };
    hints.iter().map(|(action, what)| (app.keymap.hint(*action), *what)).collect()
}

fn keys(hints: &[(String, &str)], app: &App) -> Row {
    let style = |role| app.dress.theme.style(role);
    let mut row = Row::new();
    for (key, what) in hints {
        row.push(Piece::new(key.clone(), style(Role::Key)));
        row.push(Piece::new(format!(" {what}  "), style(Role::Muted)));
    }
    row
}
