//! The first and the last row.

use super::paint::{Canvas, bar, dotted};
use crate::event::{BlockSize, Level, Mode};
use crate::tui::action::Action;
use crate::tui::app::{App, CROWDED, EngineState, Phase};
use crate::tui::theme::Role;
use crate::tui::transcript::level_role;
use crate::tui::wrap::{self, Piece, Row};

/// Pair, device, mode; context used.
pub fn title(canvas: &mut Canvas<'_>, app: &App) {
    let style = |role| app.dress.theme.style(role);
    let text = |text: String| Piece::new(text, style(Role::Text));
    let mut parts = vec![Piece::new(app.pair.clone(), style(Role::Strong))];
    if let Some(model) = app.model() {
        let detail = crate::text::sanitise_line(&model.device_detail);
        let threads =
            if model.threads > 1 { format!(" {} threads", model.threads) } else { String::new() };
        parts.push(text(format!("{} {detail}{threads}", model.device)));
    }
    parts.push(mode(app));
    if app.generate.sampling.temperature > 0.0 {
        parts.push(text(format!("temperature {}", app.generate.sampling.temperature)));
    }
    let mut left = vec![Piece::new(" dflash-chat  ", style(Role::Title))];
    if let Some(badge) = app.model().map(|model| model.engine.as_str()).filter(|e| *e != "native") {
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

fn mode(app: &App) -> Piece {
    let style = app.dress.theme.style(Role::Text);
    let name = app.generate.mode.name();
    match (app.generate.mode, app.generate.block_size) {
        (Mode::Baseline, _) => Piece::new(name, style),
        (_, BlockSize::Auto) => Piece::new(format!("{name}, block auto"), style),
        (_, BlockSize::Fixed(n)) => Piece::new(format!("{name}, block {n}"), style),
    }
}

fn context(app: &App, with_bar: bool) -> Row {
    let style = |role| app.dress.theme.style(role);
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
    while wrap::row_width(&left) + wrap::row_width(&keys(hints, app)) + 2 > width {
        let Some((_, fewer)) = hints.split_last() else { break };
        hints = fewer;
    }
    canvas.right(0, &keys(hints, app));
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
    if let (Some(replay), EngineState::Ready(_)) = (&app.replay, &app.engine) {
        let what = match app.running {
            None => "at the end",
            Some(_) if replay.paused => "paused",
            Some(_) => "playing",
        };
        let happened = app.transcript.last_answer().map_or(0, |answer| answer.rounds.len());
        let mut row = word(what, Role::Ok);
        let place = format!("  round {happened}/{}  x{}", replay.rounds, replay.speed);
        row.push(Piece::new(place, style(Role::Text)));
        return row;
    }
    let Some(running) = app.running else {
        return match &app.engine {
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

/// The keys that matter now, the first the most.
fn hints(app: &App) -> &'static [(Action, &'static str)] {
    match (app.walk.is_some(), app.running.is_some()) {
        (true, _) => &[
            (Action::Back, "leave"),
            (Action::Fork, "fork here"),
            (Action::WordRight, "next round"),
            (Action::Up, "answer before"),
        ],
        (_, true) => {
            &[(Action::Back, "stop"), (Action::Explain, "explain"), (Action::Help, "help")]
        }
        _ => &[(Action::Help, "help"), (Action::Newline, "new line"), (Action::Submit, "send")],
    }
}

fn keys(hints: &[(Action, &str)], app: &App) -> Row {
    let style = |role| app.dress.theme.style(role);
    let mut row = Row::new();
    for (action, what) in hints {
        row.push(Piece::new(app.keymap.hint(*action), style(Role::Key)));
        row.push(Piece::new(format!(" {what}  "), style(Role::Muted)));
    }
    row
}
