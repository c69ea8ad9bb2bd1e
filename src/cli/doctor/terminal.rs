//! What the terminal can do, as the chat will take it.

use crate::settings::Color;
use crate::tui::{Caps, ColorChoice, Depth, LEAST};
use serde::Serialize;
use std::io::IsTerminal;

/// The terminal.
#[derive(Debug, Serialize)]
pub struct Terminal {
    /// Whether output goes to a terminal, and input comes from one.
    pub interactive: bool,
    /// `TERM`.
    pub term: String,
    /// Columns and rows, where there is a terminal that tells.
    pub size: Option<(u16, u16)>,
    /// Colours that will be used.
    pub colors: &'static str,
    /// Whether Unicode marks will be used.
    pub unicode: bool,
    /// Whether Shift+Enter can be told from Enter.
    pub kitty_keys: bool,
    /// Why the chat cannot be shown here.
    pub too_poor: Option<String>,
}

impl Terminal {
    /// The one that this program was started in.
    pub fn this(color: Color) -> Terminal {
        let caps = Caps::detect(match color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        });
        let term = std::env::var("TERM").unwrap_or_default();
        let interactive = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        let size = if interactive { crossterm::terminal::size().ok() } else { None };
        // A terminal that does not know its size says 0.
        let size = size.filter(|(columns, rows)| *columns > 0 && *rows > 0);
        let too_poor = match size {
            _ if term == "dumb" => Some("TERM=dumb".to_owned()),
            Some((columns, rows)) if columns < LEAST.0 || rows < LEAST.1 => {
                Some(format!("the chat needs {} columns and {} rows", LEAST.0, LEAST.1))
            }
            _ => None,
        };
        Terminal {
            interactive,
            term,
            size,
            colors: match caps.depth {
                Depth::None => "none",
                Depth::Ansi16 => "16",
                Depth::Ansi256 => "256",
                Depth::TrueColor => "24 bits",
            },
            unicode: caps.unicode,
            kitty_keys: caps.kitty_keys,
            too_poor,
        }
    }
}
