//! The loop: drain everything that happened, update, do the effects, draw once.

use super::app::{App, Event, OwnSettings, PairChoice, Replay, Start, update};
use super::caps::{Caps, ColorChoice, Depth, GlyphChoice};
use super::editor;
use super::effect::Effect;
use super::events::{Batch, EventSource, Filter, Input, Keys};
use super::frame::FrameLimiter;
use super::keymap::Keymap;
use super::shelf::{self, Shelf};
use super::terminal::{ScreenBackend, TerminalGuard};
use super::theme::Theme;
use super::{history, picture, view};
use crate::engine::lanes::Lanes;
use crate::engine::{EngineHandle, replay};
use crate::event::{Envelope, Generate, Level};
use crate::record::demo::{self, Playlist};
use anyhow::{Context, Result, anyhow};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use std::collections::{BTreeMap, VecDeque};
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How the screen starts.
#[derive(Debug, Clone, Default)]
pub struct ScreenOptions {
    /// Name of the pair, as the person gave it.
    pub pair: String,
    /// How answers are made; its prompt is not used.
    pub generate: Generate,
    /// The instructions.
    pub system: Option<String>,
    /// Name of a theme, or the path of a theme's file; `None` for dark or light as the terminal
    /// is.
    pub theme: Option<String>,
    /// Colours.
    pub color: ColorChoice,
    /// Marks.
    pub glyphs: GlyphChoice,
    /// Keys in the place of the built-in ones: an action's name, and its keys.
    pub keys: BTreeMap<String, Vec<String>>,
    /// Where messages are kept for Up; `None` keeps none.
    pub history: Option<PathBuf>,
    /// The folder of conversations; `None` keeps none.
    pub sessions: Option<PathBuf>,
    /// Whether to go on with the last conversation.
    pub resume: bool,
    /// What is to be said once the conversation is open.
    pub notices: Vec<String>,
    /// The pairs that `/pair` offers.
    pub pairs: Vec<PairChoice>,
    /// The settings that come with each of them.
    pub own: BTreeMap<String, OwnSettings>,
    /// A recording that the engine plays, in the place of a chat.
    pub replay: Option<Replay>,
    /// A playlist that runs by itself until a key is pressed.
    pub demo: Option<Playlist>,
}

/// Which engine the screen asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineRequest {
    /// Name of the pair, or a path.
    pub pair: String,
}

/// Show the chat until the person leaves. The first frame is drawn before `start` is called the
/// first time; it is called again for another pair, and after an engine has failed.
///
/// # Errors
/// A theme's file or keys that cannot be used; a terminal that cannot be drawn to. The terminal
/// is as it was in either case.
pub fn run(
    options: ScreenOptions,
    start: impl FnMut(&EngineRequest) -> EngineHandle,
) -> Result<()> {
    let caps = Caps::detect(options.color);
    let mut app = new_app(&options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _guard = TerminalGuard::enter(caps.kitty_keys).context("the terminal has no raw mode")?;
    let backend = CrosstermBackend::new(BufWriter::new(std::io::stdout()));
    let mut terminal = Terminal::new(backend)?;
    runtime.block_on(async {
        // Its reader thread needs the runtime, and must not see what was asked of the terminal.
        let mut input = Keys::new();
        let shelf =
            Shelf::new(options.history, options.sessions, options.resume).saying(options.notices);
        run_loop(&mut terminal, &mut input, &mut app, shelf, start).await
    })
}

/// The state that a screen with these options starts from.
///
/// # Errors
/// A theme's file or keys that cannot be used.
pub fn new_app(options: &ScreenOptions) -> Result<App> {
    let caps = Caps::detect(options.color);
    let theme = match &options.theme {
        None if caps.depth == Depth::None => theme_named("mono", caps.depth)?,
        None if caps.depth == Depth::Ansi16 => theme_named("ansi16", caps.depth)?,
        None => theme_named(if caps.light { "light" } else { "dark" }, caps.depth)?,
        Some(name) => theme_named(name, caps.depth)?,
    };
    let keymap = Keymap::built_in().with(&options.keys);
    let keymap = keymap.map_err(|what| anyhow!("[keys] in the settings: {what}"))?;
    Ok(App::new(Start {
        pair: options.pair.clone(),
        generate: options.generate.clone(),
        system: options.system.clone(),
        theme,
        ascii: match options.glyphs {
            GlyphChoice::Auto => !caps.unicode,
            GlyphChoice::Ascii => true,
            GlyphChoice::Unicode => false,
        },
        caps,
        keymap,
        history: options.history.as_deref().map(history::load).unwrap_or_default(),
        pairs: options.pairs.clone(),
        own: options.own.clone(),
        replay: options.replay.clone(),
        demo: options.demo.clone(),
    }))
}

fn theme_named(name: &str, depth: Depth) -> Result<Theme> {
    if let Some(theme) = Theme::built_in(name, depth) {
        return Ok(theme);
    }
    let text = std::fs::read_to_string(name).with_context(|| {
        let known: Vec<&str> = super::theme::BUILT_IN.iter().map(|(name, _)| *name).collect();
        format!("`{name}` is neither a theme ({}) nor a theme's file", known.join(", "))
    })?;
    let (theme, _) =
        Theme::parse(&text, depth).map_err(|what| anyhow!("the theme {name}: {what}"))?;
    Ok(theme)
}

/// What woke the loop.
enum Woken {
    Input(Option<std::io::Result<crossterm::event::Event>>),
    Engines(Event),
    Due,
    Signal,
}

/// The loop of [`run`], for any backend and any source of input.
///
/// # Errors
/// A backend that cannot be drawn to; input that cannot be read.
pub async fn run_loop<B, S>(
    terminal: &mut Terminal<B>,
    input: &mut S,
    app: &mut App,
    shelf: Shelf,
    mut start: impl FnMut(&EngineRequest) -> EngineHandle,
) -> Result<()>
where
    B: ScreenBackend,
    B::Error: Send + Sync + 'static,
    S: EventSource,
{
    let mut signals = Signals::new()?;
    draw(terminal, app)?;
    let mut world = World { engine: None, lanes: None, shelf };
    for effect in app.begin() {
        world.perform(effect, terminal, &mut start);
    }
    let mut limiter = FrameLimiter::default();
    limiter.drawn(Instant::now(), Instant::now());
    let mut filter = Filter::default();
    let mut happened: VecDeque<Event> = world.shelf.first().into_iter().collect();
    loop {
        while let Some(event) = happened.pop_front() {
            limiter.request();
            // The screen of a terminal that was resized or hidden may hold anything.
            if matches!(event, Event::Input(Input::Redraw)) {
                terminal.autoresize()?;
            }
            for effect in update(app, event, Instant::now()) {
                if effect == Effect::Quit {
                    return Ok(());
                }
                if let Effect::Edit(text) = effect {
                    let edited = lend(terminal, input, || editor::edit(&text))?;
                    happened.push_front(Event::Edited(edited));
                    continue;
                }
                if effect == Effect::Picture {
                    let screen = terminal.draw(|frame| view::draw(frame, app))?;
                    let picture = picture::svg(screen.buffer, &app.dress.theme);
                    happened.push_front(shelf::write_picture(&picture));
                    continue;
                }
                // What comes of an effect is known before anything else happens.
                if let Some(outcome) = world.perform(effect, terminal, &mut start) {
                    happened.push_front(outcome);
                }
            }
        }
        let now = Instant::now();
        if limiter.due(app.cpu_computes()).is_some_and(|due| due <= now) {
            draw(terminal, app)?;
            limiter.drawn(now, Instant::now());
        }
        let frame = limiter.due(app.cpu_computes());
        let due = frame.into_iter().chain(app.due()).min();
        let woken = tokio::select! {
            event = input.next() => Woken::Input(event),
            // While a frame is to come, what engines say waits for it: to wake for every round
            // takes time from the threads that compute the next one.
            event = world.next(), if frame.is_none() => Woken::Engines(event),
            () = sleep_until(due) => Woken::Due,
            () = signals.next() => Woken::Signal,
        };
        match woken {
            Woken::Signal => return Ok(()),
            Woken::Due => {
                if app.due().is_some_and(|due| due <= Instant::now()) {
                    happened.push_back(Event::Due);
                }
                happened.extend(std::iter::from_fn(|| world.ready()));
            }
            Woken::Input(first) => {
                let mut batch = Batch::default();
                let mut next = Some(first);
                while let Some(event) = next {
                    let Some(event) = event else { return Ok(()) };
                    if let Some(input) = filter.input(event?, Instant::now()) {
                        batch.push(input);
                    }
                    next = input.ready().await;
                }
                happened.extend(batch.map(Event::Input));
            }
            Woken::Engines(first) => {
                happened.push_back(first);
                happened.extend(std::iter::from_fn(|| world.ready()));
            }
        }
    }
}

/// Draw one frame, shown at once; the bracket is closed even when drawing fails.
fn draw<B>(terminal: &mut Terminal<B>, app: &mut App) -> Result<()>
where
    B: ScreenBackend,
    B::Error: Send + Sync + 'static,
{
    terminal.backend_mut().synchronized(true)?;
    let drawn = terminal.draw(|frame| view::draw(frame, app)).map(|_| ());
    terminal.backend_mut().synchronized(false)?;
    Ok(drawn?)
}

/// Leave the terminal to another program while `work` runs.
fn lend<B, S, T>(terminal: &mut Terminal<B>, input: &mut S, work: impl FnOnce() -> T) -> Result<T>
where
    B: ScreenBackend,
    B::Error: Send + Sync + 'static,
    S: EventSource,
{
    input.release();
    terminal.backend_mut().leave()?;
    let outcome = work();
    terminal.backend_mut().enter()?;
    input.take_back();
    // All is drawn anew: nothing is on the screen. (Terminal::clear would ask the terminal where
    // its cursor is, and wait for the answer.)
    terminal.backend_mut().clear()?;
    terminal.swap_buffers();
    Ok(outcome)
}

/// What effects work on.
struct World {
    engine: Option<EngineHandle>,
    /// The engines of a race.
    lanes: Option<Lanes>,
    shelf: Shelf,
}

/// How long leaving waits for an engine to notice.
const LEAVE: Duration = Duration::from_millis(300);

impl Drop for World {
    /// An engine ends between two passes, and a pass over a long prompt may take long: whoever
    /// leaves has the terminal back before.
    fn drop(&mut self) {
        let engines = (self.engine.take(), self.lanes.take());
        let (ended, wait) = mpsc::channel();
        std::thread::spawn(move || {
            drop(engines);
            let _ = ended.send(());
        });
        let _ = wait.recv_timeout(LEAVE);
    }
}

impl World {
    /// What an engine says next. One that has ended is let go.
    async fn next(&mut self) -> Event {
        let World { engine, lanes, .. } = self;
        let said = async {
            match engine {
                Some(engine) => engine.events.recv().await,
                None => std::future::pending().await,
            }
        };
        let raced = async {
            match lanes {
                Some(lanes) => lanes.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            envelope = said => envelope.map(engine_event).unwrap_or_else(|| {
                self.engine = None;
                Event::EngineEnded
            }),
            envelope = raced => envelope.map(lane_event).unwrap_or_else(|| {
                self.lanes = None;
                Event::LanesEnded
            }),
        }
    }

    /// What an engine has said already.
    fn ready(&mut self) -> Option<Event> {
        let said = self.engine.as_mut().and_then(|engine| engine.events.try_recv().ok());
        let raced = || self.lanes.as_mut().and_then(Lanes::try_next).map(lane_event);
        said.map(engine_event).or_else(raced)
    }

    /// Do `effect`; what came of it, or went wrong, comes back as something that happened.
    fn perform<B: ScreenBackend>(
        &mut self,
        effect: Effect,
        terminal: &mut Terminal<B>,
        start: &mut impl FnMut(&EngineRequest) -> EngineHandle,
    ) -> Option<Event> {
        match effect {
            Effect::Send(command) => {
                if let Some(engine) = &self.engine {
                    engine.send(*command);
                }
            }
            Effect::Cancel => {
                if let Some(engine) = &self.engine {
                    engine.cancel.cancel();
                }
            }
            Effect::StartEngine(pair) => {
                // The old one goes first: two models may not fit into memory together.
                self.engine = None;
                self.engine = Some(start(&EngineRequest { pair }));
            }
            Effect::Race { pair, requests } => {
                let lane = |_| start(&EngineRequest { pair: pair.clone() });
                let lanes = self
                    .lanes
                    .get_or_insert_with(|| Lanes::new(requests.iter().map(lane).collect()));
                lanes.start(requests);
            }
            Effect::PlayTrace(name) => {
                let recording = demo::trace(name).map(demo::Trace::recording);
                self.engine = Some(replay::start(recording.unwrap_or_default()));
            }
            Effect::StopRace => {
                if let Some(lanes) = &self.lanes {
                    lanes.cancel();
                }
            }
            Effect::EndRace => {
                // Ending an engine waits for what it computes; the screen does not.
                let lanes = self.lanes.take();
                std::thread::spawn(move || drop(lanes));
            }
            Effect::Copy(text) => {
                let sequence = format!("\x1b]52;c;{}\x07", base64(text.as_bytes()));
                return terminal.backend_mut().send(&sequence).err().map(|error| {
                    Event::Notice(Level::Error, format!("the answer could not be copied: {error}"))
                });
            }
            Effect::Mouse(on) => {
                let _ = terminal.backend_mut().mouse(on);
            }
            Effect::Drag(on) => {
                let _ = terminal.backend_mut().drag(on);
            }
            effect => return self.shelf.perform(effect),
        }
        None
    }
}

fn engine_event(envelope: Envelope) -> Event {
    Event::Engine(envelope.event)
}

fn lane_event((lane, envelope): (usize, Envelope)) -> Event {
    Event::Lane(lane, envelope.event)
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// The signals that end the program politely.
struct Signals {
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let term = signal(SignalKind::terminate())?;
            let hangup = signal(SignalKind::hangup())?;
            Ok(Signals { term, hangup })
        }
        #[cfg(not(unix))]
        Ok(Signals {})
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.hangup.recv() => {}
        }
        #[cfg(not(unix))]
        std::future::pending::<()>().await
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_length() {
        let of = |text: &str| base64(text.as_bytes());
        assert_eq!([of(""), of("f"), of("fo"), of("foo")], ["", "Zg==", "Zm8=", "Zm9v"]);
        assert_eq!(of("日本"), "5pel5pys");
    }
}
