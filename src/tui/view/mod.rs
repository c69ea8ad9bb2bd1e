//! The screen, one file a panel. Drawing changes nothing but caches: the same state gives the
//! same cells.

mod composer;
mod cost;
mod demo;
mod gauges;
mod help;
mod paint;
mod picker;
mod race;
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
use ratatui::buffer::Buffer;
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
        (80.., 19..) if app.explain || app.panel == Panel::Cost => Place::Band(12),
        (80.., 14..) => Place::Band(7),
        (_, 8..) if app.panel == Panel::Round => Place::Band(2),
        (_, 10..) => Place::Band(5),
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
    // A rule under the title, where there are rows to spare.
    let head = if area.height >= 30 { 2 } else { 1 };
    let foot = match (&app.demo, &app.race) {
        (Some(demo), _) => demo::height(demo, area, app),
        (None, Some(_)) => 0,
        (None, None) => composer_height(app, area),
    };
    let row = |y: u16, height: u16| Rect { x: area.x, y: area.y + y, width: area.width, height };
    let body = row(head, area.height - head - foot - 1);
    let foot = row(area.height - foot - 1, foot);
    let bottom = row(area.height - 1, 1);

    let buffer = frame.buffer_mut();
    status::title(&mut Canvas::new(buffer, row(0, 1)), app);
    if head == 2 {
        Canvas::new(buffer, row(1, 1)).rule(0, &[], app);
    }
    status::bottom(&mut Canvas::new(buffer, bottom), app);
    let mut cursor = None;
    if app.race.is_some() {
        race::draw(&mut Canvas::new(buffer, body), app);
    } else {
        conversation(buffer, body, app);
    }
    match (&app.demo, &app.race) {
        (Some(demo), _) => demo::draw(&mut Canvas::new(buffer, foot), demo, app),
        (None, Some(_)) => {}
        (None, None) => {
            cursor = Some(composer::draw(buffer, foot, app));
            composer::popup(buffer, foot, app);
        }
    }
    match (&app.picker, app.overlay) {
        (Some(picker), _) => picker::draw(buffer, area, app, picker),
        (_, Some(Overlay::Help(top))) => help::draw(buffer, area, app, top),
        (_, Some(Overlay::Stats)) => stats::draw(buffer, area, app),
        (None, None) => {
            if let Some(cursor) = cursor {
                frame.set_cursor_position(cursor);
            }
        }
    }
}

fn composer_height(app: &App, area: Rect) -> u16 {
    let inner = usize::from(area.width) - 5;
    let most = usize::from(area.height / 3).max(1);
    app.composer.height(inner).clamp(1, most) as u16 + 1
}

/// The transcript and the panel.
fn conversation(buffer: &mut Buffer, area: Rect, app: &mut App) {
    match place(app, area.width, area.height) {
        Place::Side(width) => {
            let body = Rect { width: area.width - width - 1, ..area };
            let x = body.x + body.width;
            transcript::draw(&mut Canvas::new(buffer, body), app);
            Canvas::new(buffer, Rect { x, width: 1, ..area }).vertical(app);
            side::draw(&mut Canvas::new(buffer, Rect { x: x + 1, width, ..area }), app);
        }
        Place::Band(height) => {
            let body = Rect { height: area.height - height - 1, ..area };
            let band = Rect { y: body.y + body.height, height: height + 1, ..area };
            transcript::draw(&mut Canvas::new(buffer, body), app);
            strip::draw(&mut Canvas::new(buffer, band), app);
        }
        Place::None => transcript::draw(&mut Canvas::new(buffer, area), app),
    }
}

/// The shown round by itself, as wide as its slots need.
pub fn round_alone(app: &App) -> Buffer {
    let slots = app.shown_round().map_or(Vec::new(), |(_, round, _)| slots::shown(round, app));
    let width = strip::width(&slots).clamp(80, 500) as u16;
    let mut buffer = Buffer::empty(Rect { width, height: 8, ..Rect::default() });
    let area = buffer.area;
    strip::draw(&mut Canvas::new(&mut buffer, area), app);
    buffer
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
