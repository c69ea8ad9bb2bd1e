//! The screen, one file a panel. Drawing changes nothing but caches: the same state gives the
//! same cells.

mod composer;
mod cost;
mod gauges;
mod help;
mod paint;
mod picker;
mod round;
mod side;
mod slots;
mod stats;
mod status;
mod strip;
mod timeline;
mod transcript;

use super::app::{App, Overlay, Panel};
use super::theme::Role;
use paint::Canvas;
use ratatui::Frame;
use ratatui::layout::Rect;

/// Below this nothing useful can be shown.
pub const LEAST: (u16, u16) = (60, 16);

/// Where the panel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Beside the transcript, this wide.
    Side(u16),
    /// Between transcript and composer, this high.
    Band(u16),
    None,
}

/// The panel for a screen `width` wide with `rows` for it and the transcript, of which the
/// transcript keeps a few.
fn place(app: &App, width: u16, rows: u16) -> Place {
    let usual = (width * 2 / 5).clamp(48, 76);
    match (width, rows) {
        _ if app.panel == Panel::Hidden => Place::None,
        (110.., _) => {
            Place::Side(usual.saturating_add_signed(app.panel_extra).clamp(48, width - 50))
        }
        (80.., 19..) if app.explain => Place::Band(12),
        (80.., 14..) => Place::Band(7),
        (_, 8..) if app.panel == Panel::Round => Place::Band(2),
        _ => Place::None,
    }
}

/// Draw `app` into the whole of `frame`.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    frame.buffer_mut().set_style(area, app.dress.theme.style(Role::Background));
    if area.width < LEAST.0 || area.height < LEAST.1 {
        return too_small(frame, app);
    }
    let inner = usize::from(area.width) - 5;
    let most = usize::from(area.height / 3).max(1);
    let composer_height = app.composer.height(inner).clamp(1, most) as u16 + 1;
    // A rule under the title, where there are rows to spare.
    let head = if area.height >= 30 { 2 } else { 1 };
    let rows = area.height - head - 1 - composer_height;
    let place = place(app, area.width, rows);
    let band = match place {
        Place::Band(height) => height + 1,
        _ => 0,
    };
    let side = match place {
        Place::Side(width) => width + 1,
        _ => 0,
    };
    let body_height = rows - band;
    let row = |y: u16, height: u16| Rect { x: area.x, y: area.y + y, width: area.width, height };
    let title = row(0, 1);
    let body = Rect { width: area.width - side, ..row(head, body_height) };
    let composer = row(head + body_height + band, composer_height);
    let bottom = row(area.height - 1, 1);

    let buffer = frame.buffer_mut();
    status::title(&mut Canvas::new(buffer, title), app);
    if head == 2 {
        Canvas::new(buffer, row(1, 1)).rule(0, &[], app);
    }
    transcript::draw(&mut Canvas::new(buffer, body), app);
    match place {
        Place::Side(width) => {
            let x = area.x + area.width - width;
            let rule = Rect { x: x - 1, y: body.y, width: 1, height: body_height };
            Canvas::new(buffer, rule).vertical(app);
            let side = Rect { x, y: body.y, width, height: body_height };
            side::draw(&mut Canvas::new(buffer, side), app);
        }
        Place::Band(height) => {
            strip::draw(&mut Canvas::new(buffer, row(head + body_height, height + 1)), app);
        }
        Place::None => {}
    }
    status::bottom(&mut Canvas::new(buffer, bottom), app);
    let cursor = composer::draw(buffer, composer, app);
    composer::popup(buffer, composer, app);
    if let Some(picker) = &app.picker {
        return picker::draw(buffer, area, app, picker);
    }
    match app.overlay {
        Some(Overlay::Help(top)) => help::draw(buffer, area, app, top),
        Some(Overlay::Stats) => stats::draw(buffer, area, app),
        None => frame.set_cursor_position(cursor),
    }
}

fn too_small(frame: &mut Frame<'_>, app: &App) {
    let area = frame.area();
    let (width, height) = LEAST;
    let canvas = &mut Canvas::new(frame.buffer_mut(), area);
    let lines = [
        format!("{}x{} is too small", area.width, area.height),
        format!("needs {width}x{height}"),
        format!("{} quits", app.keymap.hint(super::action::Action::Quit)),
    ];
    let style = app.dress.theme.style(Role::Text);
    for (y, line) in lines.iter().enumerate().take(usize::from(area.height)) {
        canvas.text(0, y, line, style);
    }
}

#[cfg(test)]
mod tests;
