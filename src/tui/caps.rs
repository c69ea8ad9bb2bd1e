//! What the terminal can do, told from the environment alone: no query that could hang, and none
//! whose answer could arrive among the keys.

/// How many colours may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// None; weight, underline and glyphs carry the meaning.
    None,
    /// The terminal owner's sixteen.
    Ansi16,
    /// The fixed colours 16 to 255.
    Ansi256,
    /// 24 bits.
    TrueColor,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColorChoice {
    /// As the environment says.
    #[default]
    Auto,
    /// As many as the terminal has, whatever `NO_COLOR` says.
    Always,
    /// None.
    Never,
}

/// `--glyphs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GlyphChoice {
    /// Unicode where the locale is UTF-8.
    #[default]
    Auto,
    /// Unicode marks.
    Unicode,
    /// ASCII marks.
    Ascii,
}

/// What the terminal can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Colours.
    pub depth: Depth,
    /// Whether the locale is UTF-8.
    pub unicode: bool,
    /// Whether the terminal is known to tell Shift+Enter from Enter when asked to (the kitty
    /// keyboard protocol).
    pub kitty_keys: bool,
    /// Whether the background is known to be light.
    pub light: bool,
}

impl Caps {
    /// Of the process's own environment.
    pub fn detect(color: ColorChoice) -> Caps {
        Caps::from_env(color, |name| std::env::var(name).ok())
    }

    /// Of the environment that `var` answers for.
    pub fn from_env(color: ColorChoice, var: impl Fn(&str) -> Option<String>) -> Caps {
        let get = |name: &str| var(name).unwrap_or_default();
        let term = get("TERM");
        let program = get("TERM_PROGRAM");
        let no_color = !get("NO_COLOR").is_empty();
        let depth = match color {
            ColorChoice::Never => Depth::None,
            ColorChoice::Auto if no_color => Depth::None,
            _ => depth(&get("COLORTERM"), &term, &program, var("WSL_DISTRO_NAME").is_some()),
        };
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(get).into_iter().find(|v| !v.is_empty());
        let locale = locale.unwrap_or_default().to_lowercase();
        let unicode = locale.contains("utf-8")
            || locale.contains("utf8")
            || cfg!(any(windows, target_os = "macos"));
        let in_mux = !get("TMUX").is_empty() || term.starts_with("screen");
        let known = ["xterm-kitty", "foot", "alacritty", "xterm-ghostty"];
        let programs = ["WezTerm", "ghostty", "iTerm.app"];
        let kitty_keys =
            !in_mux && (known.iter().any(|k| term.starts_with(k)) || programs.contains(&&*program));
        // COLORFGBG is "foreground;background"; 7 and 15 are the light ones.
        let ground = get("COLORFGBG");
        let light = matches!(ground.rsplit(';').next(), Some("7" | "15"));
        Caps { depth, unicode, kitty_keys, light }
    }
}

fn depth(colorterm: &str, term: &str, program: &str, wsl: bool) -> Depth {
    let truecolor = colorterm.contains("truecolor") || colorterm.contains("24bit");
    let known = ["xterm-kitty", "alacritty", "foot", "xterm-ghostty", "wezterm"];
    let programs = ["iTerm.app", "WezTerm", "vscode", "ghostty"];
    match () {
        () if truecolor || wsl || cfg!(windows) => Depth::TrueColor,
        () if term.ends_with("-direct") || known.iter().any(|k| term.starts_with(k)) => {
            Depth::TrueColor
        }
        () if programs.contains(&program) => Depth::TrueColor,
        () if term.contains("256color") => Depth::Ansi256,
        () => Depth::Ansi16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(color: ColorChoice, vars: &[(&str, &str)]) -> Caps {
        Caps::from_env(color, |name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn depth_follows_the_environment() {
        let auto = ColorChoice::Auto;
        let of = |vars: &[(&str, &str)]| caps(auto, vars).depth;
        assert_eq!(of(&[("COLORTERM", "truecolor"), ("TMUX", "x")]), Depth::TrueColor);
        assert_eq!(of(&[("TERM", "tmux-256color")]), Depth::Ansi256);
        assert_eq!(of(&[("TERM", "linux")]), Depth::Ansi16);
        assert_eq!(of(&[("COLORTERM", "24bit"), ("NO_COLOR", "1")]), Depth::None);
        assert_eq!(of(&[("COLORTERM", "24bit"), ("NO_COLOR", "")]), Depth::TrueColor);
        let always = caps(ColorChoice::Always, &[("TERM", "xterm"), ("NO_COLOR", "1")]);
        assert_eq!(always.depth, Depth::Ansi16);
    }

    #[test]
    fn the_first_locale_variable_that_is_set_counts() {
        let of = |vars: &[(&str, &str)]| caps(ColorChoice::Auto, vars).unicode;
        assert!(of(&[("LC_ALL", ""), ("LANG", "de_DE.UTF-8")]));
        if !cfg!(any(windows, target_os = "macos")) {
            assert!(!of(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
        }
    }

    #[test]
    fn kitty_keys_only_where_they_arrive() {
        assert!(caps(ColorChoice::Auto, &[("TERM", "xterm-kitty")]).kitty_keys);
        assert!(!caps(ColorChoice::Auto, &[("TERM", "xterm-kitty"), ("TMUX", "x")]).kitty_keys);
    }
}
