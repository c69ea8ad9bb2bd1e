//! The conversation. Only the rows on the screen are drawn; all others are known by their count.

use super::gauges;
use super::paint::{Canvas, dotted, time};
use crate::event::{FinishReason, Level, Outcome};
use crate::tui::app::{App, Colouring, EngineState, Phase, Shown};
use crate::tui::markdown::Look;
use crate::tui::theme::Role;
use crate::tui::transcript::{Answer, Item, level_role};
use crate::tui::wrap::{self, Piece, Row};
use ratatui::style::{Modifier, Style};

/// Cells left of the text.
const INDENT: usize = 3;
/// Lines longer than this are hard to read.
const WIDEST: usize = 100;

/// Draw the transcript, or what the program is about while there is none.
pub fn draw(canvas: &mut Canvas<'_>, app: &mut App) {
    if app.transcript.items.is_empty() {
        return welcome(canvas, app);
    }
    let width = canvas.width().saturating_sub(INDENT + 2).clamp(1, WIDEST);
    let dress = app.dress.clone();
    let look = Look { width, theme: &dress.theme, glyphs: dress.glyphs, epoch: dress.epoch };
    let items = &mut app.transcript.items;
    let heights = items.iter_mut().map(|item| height(item, look)).collect::<Vec<_>>();
    let height = canvas.height();
    let walked = app.walk.and_then(|walk| Some((walk.item, walked_row(app, look)?)));
    let top = app.scroll.layout(heights.clone(), height);
    let top = match walked {
        Some((item, row)) => {
            app.scroll.show(item, row + 2);
            app.scroll.show(item, row);
            app.scroll.layout(heights.clone(), height)
        }
        None => top,
    };
    app.shown = Shown { area: canvas.area(), top, indent: INDENT, width };
    let mut first = 0;
    for (index, item_height) in heights.into_iter().enumerate() {
        let end = first + item_height;
        if end > top && first < top + height {
            draw_item(canvas, app, index, look, first as isize - top as isize);
        }
        first = end;
    }
    if let Some(selection) = app.selection {
        let style = app.dress.theme.style(Role::Selection);
        for y in 0..height {
            let cells = selection.cells(top + y);
            let end = cells.end.min(width);
            canvas.restyle(INDENT + cells.start..INDENT + end.max(cells.start), y, style);
        }
    }
    let below = app.scroll.below();
    if !app.scroll.follows() && below > 0 {
        let text = format!(" {below} more {} ", app.dress.glyphs.down);
        let style =
            app.dress.theme.style(Role::Badge).patch(app.dress.theme.style(Role::Selection));
        canvas.right(height - 1, &[Piece::new(text, style)]);
    }
}

/// Rows of an item with its footer and the empty row after it.
fn height(item: &mut Item, look: Look<'_>) -> usize {
    let rows = item.rows(look).len();
    match item {
        Item::Answer(answer) if answer.text.is_empty() => {
            rows + 2 + usize::from(answer.finished.is_some())
        }
        Item::Answer(_) => rows + 2,
        _ => rows + 1,
    }
}

fn draw_item(canvas: &mut Canvas<'_>, app: &mut App, index: usize, look: Look<'_>, y: isize) {
    // Drawing reads the rest of the state, so the item is taken out meanwhile.
    let blank = Item::Notice(Level::Info, Default::default());
    let mut item = std::mem::replace(&mut app.transcript.items[index], blank);
    let rows = item.rows(look);
    let count = rows.len();
    let visible = |row: usize| {
        let y = y + row as isize;
        (y >= 0 && y < canvas.height() as isize).then_some(y as usize)
    };
    let first = (-y).max(0) as usize;
    let places: Vec<(usize, Row)> =
        (first..count).map_while(|i| Some((visible(i)?, rows[i].clone()))).collect();
    let footer = visible(count);
    match &item {
        Item::User(_) => {
            let style = app.dress.theme.style(Role::User);
            for (y, row) in places {
                canvas.text(1, y, app.dress.glyphs.user, style);
                canvas.row(INDENT, y, &row);
            }
        }
        Item::Notice(level, _) => {
            let style = app.dress.theme.style(level_role(*level));
            let mark = if *level == Level::Info { app.dress.glyphs.dot } else { "!" };
            for (i, (y, row)) in places.into_iter().enumerate() {
                if i == 0 {
                    canvas.text(1, y, mark, style);
                }
                canvas.row(INDENT, y, &row);
            }
        }
        Item::Answer(answer) => {
            // Where one is in the conversation; the token itself may not be known.
            let walked = app.walk.is_some_and(|walk| walk.item == index);
            if let Some((y, _)) = places.first().filter(|_| walked) {
                canvas.text(1, *y, app.dress.glyphs.anchor, app.dress.theme.style(Role::Strong));
            }
            let mut text = canvas.part(INDENT, 0, look.width, canvas.height());
            for (y, row) in places {
                draw_row(&mut text, app, index, answer, &row, y);
            }
            if let Some(y) = footer {
                let room = look.width;
                canvas.row(INDENT, y, &footer_row(app, answer, room));
            }
        }
    }
    app.transcript.items[index] = item;
}

/// A row of the answer at place `index`, its tokens coloured.
pub fn draw_row(
    canvas: &mut Canvas<'_>,
    app: &App,
    index: usize,
    answer: &Answer,
    row: &Row,
    y: usize,
) {
    let mut x = 0;
    for piece in app.shown_row(answer, row, canvas.width()).iter() {
        let Some(source) = piece.source else {
            x = canvas.text(x, y, &piece.text, piece.style);
            continue;
        };
        let mut at = 0;
        while at < piece.text.len() {
            let Some((token, end)) = answer.token_in(&piece.text, source, at) else {
                x = canvas.text(x, y, &piece.text[at..], piece.style);
                break;
            };
            let style = token_style(app, index, answer, token, piece.style);
            // Blanks before a word carry no underline: it would look like text.
            let text = &piece.text[at..end];
            let word = text.trim_start_matches(' ');
            let blanks = style.remove_modifier(Modifier::UNDERLINED);
            x = canvas.text(x, y, &text[..text.len() - word.len()], blanks);
            x = canvas.text(x, y, word, style);
            at = end;
        }
    }
}

fn token_style(app: &App, item: usize, answer: &Answer, token: usize, base: Style) -> Style {
    let span = answer.tokens[token];
    let theme = &app.dress.theme;
    let role = match app.colouring {
        Colouring::Plain => None,
        Colouring::Outcome => Some(match span.outcome {
            Outcome::Accepted => Role::Accepted,
            Outcome::Bonus => Role::Bonus,
            Outcome::Correction => Role::Correction,
            Outcome::Plain => Role::Plain,
        }),
        Colouring::Rounds => Some(match span.round {
            Some(round) if round % 2 == 1 => Role::BandB,
            _ => Role::BandA,
        }),
    };
    // Bold stays Markdown's: in running text the underline is mark enough.
    let paint = |role| {
        let style = theme.style(role);
        Style { add_modifier: style.add_modifier - Modifier::BOLD, ..style }
    };
    let style = role.map_or(base, |role| base.patch(paint(role)));
    match app.walk {
        Some(walk) if (walk.item, walk.token) == (item, token) => {
            style.patch(theme.style(Role::Selection))
        }
        _ => style,
    }
}

/// The row, in its answer, on which the walked token begins.
fn walked_row(app: &mut App, look: Look<'_>) -> Option<usize> {
    let walk = app.walk?;
    let start = app.transcript.answer(walk.item)?.token_range(walk.token).start;
    let rows = app.transcript.items.get_mut(walk.item)?.rows(look);
    let starts_at = |row: &Row| row.iter().filter_map(|piece| piece.source).min();
    rows.iter().rposition(|row| starts_at(row).is_some_and(|at| at <= start))
}

/// What an answer cost and brought; where not all fits, the verdict stays longest.
fn footer_row(app: &App, answer: &Answer, room: usize) -> Row {
    let style = |role| app.dress.theme.style(role);
    let muted = |text: String| Piece::new(text, style(Role::Muted));
    // Each with its rank: where there is no room for all, the least important ones go first.
    let mut parts = Vec::new();
    match &answer.finished {
        None => parts.push((0, muted(progress(app)))),
        Some((reason, totals)) => {
            match reason {
                FinishReason::Eos => {}
                FinishReason::Cancelled | FinishReason::Failed => {
                    parts.push((0, Piece::new(reason.name(), style(Role::Warning))));
                }
                reason => parts.push((0, Piece::new(reason.name(), style(Role::Info)))),
            }
            let s = if totals.tokens == 1 { "" } else { "s" };
            parts.push((2, muted(format!("{} token{s}", totals.tokens))));
            if totals.rounds > 0 {
                parts.push((3, muted(format!("{:.1} tok/s", totals.decode_tok_s))));
            }
            if totals.drafted > 0 {
                parts.push((4, muted(format!("{} {:.2}", app.dress.glyphs.tau, totals.tau))));
                // The rounds of an earlier session are not known any more.
                if answer.stats.speculative.0 > 0 && app.plain_us(answer).is_some() {
                    parts.push((1, gauges::verdict(answer, app)));
                }
            }
            if totals.ttft_us > 0 {
                parts.push((5, muted(format!("first after {}", time(totals.ttft_us as f64)))));
            }
            if let (prompt @ 1.., reused) = answer.prompt_tokens {
                parts.push((6, muted(format!("prompt {prompt}, {reused} reused"))));
            }
        }
    }
    let row =
        |parts: &[(u8, Piece)]| dotted(parts.iter().map(|(_, piece)| piece.clone()).collect(), app);
    while parts.len() > 1 && wrap::row_width(&row(&parts)) > room {
        let least = parts.iter().map(|(rank, _)| *rank).max();
        parts.retain(|(rank, _)| Some(*rank) != least);
    }
    row(&parts)
}

/// What the answer in progress is waiting for.
fn progress(app: &App) -> String {
    let ellipsis = app.dress.glyphs.ellipsis;
    match app.running {
        Some(running) if running.stopping => format!("stopping{ellipsis}"),
        Some(running) => match running.phase {
            Phase::Waiting if app.model().is_none() => {
                format!("waits for the model to be loaded{ellipsis}")
            }
            Phase::Waiting => format!("asked{ellipsis}"),
            Phase::Prefill(done, total) => format!("reads the prompt: {done} of {total} tokens"),
            Phase::Decoding => ellipsis.to_string(),
        },
        None => ellipsis.to_string(),
    }
}

/// The first screen: what this is, how far loading is, what to do.
fn welcome(canvas: &mut Canvas<'_>, app: &App) {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let width = canvas.width().saturating_sub(2 * INDENT).min(66);
    let mut y = canvas.height().saturating_sub(11) / 3 + 1;
    canvas.text(INDENT, y, "dflash-chat", style(Role::Title));
    y += 1;
    let about = "A chat with a model on this machine. A small draft model guesses several \
                 tokens at once, the model checks them in one pass, and keeps what it would \
                 have said anyway.";
    let line = [Piece::new(about, muted)];
    for row in wrap::wrap(&line, width, wrap::Break::Words) {
        canvas.row(INDENT, y, &row);
        y += 1;
    }
    y += 1;
    match &app.engine {
        EngineState::Ready(model) => {
            let draft = match &model.draft {
                Some(draft) => format!("{} + {}", model.target.name, draft.name),
                None => model.target.name.clone(),
            };
            let x = canvas.text(INDENT, y, "ready  ", style(Role::Ok));
            let room = canvas.width().saturating_sub(x + 2);
            let draft = crate::text::sanitise_line(&draft);
            let draft = wrap::truncate(&draft, room, app.dress.glyphs.ellipsis);
            canvas.text(x, y, &draft, style(Role::Text));
        }
        EngineState::Loading { stage, done, total } => {
            canvas.text(INDENT, y, stage, style(Role::Text));
            if *total > 0 {
                let share = *done as f64 / *total as f64;
                let (full, empty) = super::paint::bar(share, 30, app);
                let x = canvas.text(INDENT, y + 1, &full, style(Role::Draft));
                let x = canvas.text(x, y + 1, &empty, style(Role::Axis));
                canvas.text(x + 1, y + 1, &format!("{:.0}%", share * 100.0), muted);
            }
            y += 1;
        }
        EngineState::Ended => {
            canvas.text(INDENT, y, "no model is loaded", style(Role::Error));
        }
    }
    y += 2;
    use crate::tui::action::Action;
    let keys = [
        ("/".into(), "commands, /race among them"),
        (app.keymap.hint(Action::Explain), "explain what is shown"),
        (app.keymap.hint(Action::Mode), "speculative or plain decoding"),
        (app.keymap.hint(Action::Panel), "rounds, timeline, cost"),
        (app.keymap.hint(Action::Newline), "a new line"),
        (app.keymap.hint(Action::Help), "all keys"),
    ];
    for (key, what) in keys {
        canvas.text(INDENT, y, &key, style(Role::Key));
        canvas.text(INDENT + 12, y, what, muted);
        y += 1;
    }
}
