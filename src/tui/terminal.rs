//! The terminal's modes: entered in one place, left in one place, whatever ends the program.

use crate::engine::ENGINE_THREAD;
use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, KeyboardEnhancementFlags,
    PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, queue, style};
use ratatui::backend::{CrosstermBackend, TestBackend};
use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Press, release and wheel only (1000), in the form that has no limit of columns (1006). Not
/// the motion modes that crossterm would add: they send an event for every cell.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1002l\x1b[?1006l\x1b[?1000l";
/// Motion, but only while a button is down.
const DRAG_ON: &str = "\x1b[?1002h";
/// Back to presses alone: a terminal has one mouse mode at a time.
const DRAG_OFF: &str = "\x1b[?1002l\x1b[?1000h";

/// Whether the modes are entered, so that they are left exactly once.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static KITTY: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The modes of the screen, from [`TerminalGuard::enter`] until it is dropped.
#[derive(Debug)]
pub struct TerminalGuard(());

impl TerminalGuard {
    /// Enter raw mode and the alternate screen; hear pastes and the mouse.
    ///
    /// # Errors
    /// A terminal that cannot be put into raw mode.
    pub fn enter(kitty_keys: bool) -> io::Result<TerminalGuard> {
        HOOK.call_once(chain_panic_hook);
        // Published crossterm answers NO_COLOR by resetting every style, bold and underline
        // too. The theme has taken the colours out already.
        style::force_color_output(true);
        KITTY.store(kitty_keys, Ordering::SeqCst);
        let guard = TerminalGuard(());
        enter_modes()?;
        Ok(guard)
    }
}

fn enter_modes() -> io::Result<()> {
    enable_raw_mode()?;
    ACTIVE.store(true, Ordering::SeqCst);
    let mut out = io::stdout();
    queue!(out, EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)?;
    if KITTY.load(Ordering::SeqCst) {
        let flags = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES;
        queue!(out, PushKeyboardEnhancementFlags(flags))?;
    }
    out.write_all(MOUSE_ON.as_bytes())?;
    out.flush()
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        let _ = restore();
    }
}

/// Undo all modes: everything is tried, the first failure is told. Does nothing a second time.
fn restore() -> io::Result<()> {
    if !ACTIVE.swap(false, Ordering::SeqCst) {
        return Ok(());
    }
    let mut out = io::stdout();
    let kitty = if KITTY.load(Ordering::SeqCst) {
        queue!(out, PopKeyboardEnhancementFlags)
    } else {
        Ok(())
    };
    let results = [
        kitty,
        out.write_all(MOUSE_OFF.as_bytes()),
        queue!(out, EndSynchronizedUpdate, DisableBracketedPaste),
        queue!(out, LeaveAlternateScreen, cursor::Show),
        out.flush(),
        disable_raw_mode(),
    ];
    results.into_iter().collect()
}

/// A panic restores the terminal before its message is printed. The engine's panics do not: they
/// become error events, and the screen lives on.
fn chain_panic_hook() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if ACTIVE.load(Ordering::SeqCst) {
            if std::thread::current().name() == Some(ENGINE_THREAD) {
                return;
            }
            let _ = restore();
        }
        before(info);
    }));
}

/// What the screen needs of a backend besides drawing.
pub trait ScreenBackend: ratatui::backend::Backend {
    /// Begin or end a frame that is shown at once.
    fn synchronized(&mut self, begin: bool) -> io::Result<()>;

    /// Send bytes as they are.
    fn send(&mut self, text: &str) -> io::Result<()>;

    /// Leave the screen's modes, so that another program can have the terminal.
    fn leave(&mut self) -> io::Result<()>;

    /// Enter them again.
    fn enter(&mut self) -> io::Result<()>;

    /// Hear the mouse, or leave it to the terminal's own selection.
    fn mouse(&mut self, on: bool) -> io::Result<()> {
        self.send(if on { MOUSE_ON } else { MOUSE_OFF })
    }

    /// Hear motion while a button is down, or no longer.
    fn drag(&mut self, on: bool) -> io::Result<()> {
        self.send(if on { DRAG_ON } else { DRAG_OFF })
    }
}

impl ScreenBackend for CrosstermBackend<BufWriter<Stdout>> {
    fn synchronized(&mut self, begin: bool) -> io::Result<()> {
        if begin {
            queue!(self, BeginSynchronizedUpdate)
        } else {
            queue!(self, EndSynchronizedUpdate)?;
            Write::flush(self)
        }
    }

    fn send(&mut self, text: &str) -> io::Result<()> {
        self.write_all(text.as_bytes())?;
        Write::flush(self)
    }

    fn leave(&mut self) -> io::Result<()> {
        Write::flush(self)?;
        restore()
    }

    fn enter(&mut self) -> io::Result<()> {
        enter_modes()
    }
}

impl ScreenBackend for TestBackend {
    fn synchronized(&mut self, _begin: bool) -> io::Result<()> {
        Ok(())
    }

    fn send(&mut self, _text: &str) -> io::Result<()> {
        Ok(())
    }

    fn leave(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn enter(&mut self) -> io::Result<()> {
        Ok(())
    }
}
