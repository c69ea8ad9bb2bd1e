//! Colours and marks. A theme is a TOML file that gives styles to *roles*; a role that it leaves
//! out takes the style of its parent (`token.accepted` → `token`), then of the theme that it
//! inherits, then the terminal's own. Meaning never rests on colour alone: every outcome also
//! has a glyph and a modifier.

use super::caps::Depth;
use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;
use std::collections::BTreeMap;

macro_rules! roles {
    ($($role:ident = $name:literal),* $(,)?) => {
        /// What a piece of the screen means; a theme says how that looks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // Named as theme files name them.
        pub enum Role { $($role),* }

        impl Role {
            /// Every role.
            pub const ALL: &[Role] = &[$(Role::$role),*];

            /// The name that theme files use.
            pub fn name(self) -> &'static str {
                match self { $(Role::$role => $name),* }
            }
        }
    };
}

roles! {
    Background = "ui.background",
    Text = "ui.text",
    Muted = "ui.text.muted",
    Strong = "ui.text.strong",
    Border = "ui.border",
    Title = "ui.title",
    Selection = "ui.selection",
    Key = "ui.key",
    Badge = "ui.badge",
    Ok = "ui.ok",
    Info = "ui.info",
    Warning = "ui.warning",
    Error = "ui.error",
    User = "chat.user",
    Assistant = "chat.assistant",
    Thinking = "chat.thinking",
    Heading = "md.heading",
    Code = "md.code",
    CodeBlock = "md.code.block",
    Quote = "md.quote",
    Link = "md.link",
    List = "md.list",
    Table = "md.table",
    Anchor = "token.anchor",
    Accepted = "token.accepted",
    Rejected = "token.rejected",
    Discarded = "token.discarded",
    Unsent = "token.unsent",
    Bonus = "token.bonus",
    Correction = "token.correction",
    Plain = "token.plain",
    Ghost = "token.ghost",
    BandA = "token.band.a",
    BandB = "token.band.b",
    Draft = "viz.draft",
    Verify = "viz.verify",
    Other = "viz.other",
    Tau = "viz.tau",
    BreakEven = "viz.break_even",
    Gain = "viz.gain",
    Loss = "viz.loss",
    Axis = "viz.axis",
}

/// The themes that the binary carries: name and file.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("dark", include_str!("../../themes/dark.toml")),
    ("light", include_str!("../../themes/light.toml")),
    ("high-contrast", include_str!("../../themes/high-contrast.toml")),
    ("okabe-ito", include_str!("../../themes/okabe-ito.toml")),
    ("mono", include_str!("../../themes/mono.toml")),
    ("ansi16", include_str!("../../themes/ansi16.toml")),
];

/// A theme, resolved for a depth of colour.
#[derive(Debug, Clone, PartialEq)]
pub struct Theme {
    /// Its name.
    pub name: String,
    /// Whether it is made for a light background.
    pub light: bool,
    /// The syntax-highlighting theme that goes with it.
    pub syntax: String,
    /// The colours that it was resolved for.
    pub depth: Depth,
    styles: Vec<Style>,
}

impl Theme {
    /// The style of `role`.
    pub fn style(&self, role: Role) -> Style {
        self.styles[role as usize]
    }

    /// The built-in theme `name` at `depth`; `None` when there is none of that name.
    pub fn built_in(name: &str, depth: Depth) -> Option<Theme> {
        let (_, source) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        Theme::parse(source, depth).ok().map(|(theme, _)| theme)
    }

    /// A theme from the text of a TOML file, with warnings about keys that mean nothing.
    ///
    /// # Errors
    /// Text that is not TOML, a colour that is none, an unknown parent theme.
    pub fn parse(source: &str, depth: Depth) -> Result<(Theme, Vec<String>), String> {
        let mut file: File = toml::from_str(source).map_err(|error| error.to_string())?;
        let mut chain = vec![];
        while let Some(parent) = file.inherits.take() {
            let found = BUILT_IN.iter().find(|(name, _)| *name == parent);
            let (_, text) = found.ok_or(format!("there is no theme `{parent}` to inherit"))?;
            if chain.len() > BUILT_IN.len() {
                return Err(format!("`{parent}` inherits itself"));
            }
            chain.push(file);
            file = toml::from_str(text).map_err(|error| error.to_string())?;
        }
        chain.push(file);
        let mut warnings = Vec::new();
        let own = &chain[0];
        for name in own.roles.keys().chain(own.ansi16.keys()) {
            if !Role::ALL.iter().any(|role| is_or_is_below(role.name(), name)) {
                warnings.push(format!("theme `{}`: there is no role `{name}`", own.name));
            }
        }
        let mut styles = Vec::with_capacity(Role::ALL.len());
        for role in Role::ALL {
            styles.push(resolve(&chain, role.name(), depth)?);
        }
        let light = chain.iter().find_map(|file| file.appearance.clone());
        let syntax = chain.iter().find_map(|file| file.syntax.clone());
        let theme = Theme {
            name: own.name.clone(),
            light: light.as_deref() == Some("light"),
            syntax: syntax.unwrap_or_else(|| "base16-ocean.dark".into()),
            depth,
            styles,
        };
        Ok((theme, warnings))
    }
}

/// A theme file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    appearance: Option<String>,
    inherits: Option<String>,
    syntax: Option<String>,
    #[serde(default)]
    palette: BTreeMap<String, String>,
    #[serde(default)]
    roles: BTreeMap<String, Paint>,
    #[serde(default)]
    ansi16: BTreeMap<String, Paint>,
}

/// A style as it is written: a colour, or its parts.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Paint {
    Colour(String),
    Parts {
        fg: Option<String>,
        bg: Option<String>,
        #[serde(default)]
        modifiers: Vec<String>,
    },
}

fn is_or_is_below(role: &str, name: &str) -> bool {
    role == name || (role.starts_with(name) && role.as_bytes().get(name.len()) == Some(&b'.'))
}

/// The names under which a role is looked up: itself, then its parents.
fn ancestry(role: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(role), |name| name.rsplit_once('.').map(|(parent, _)| parent))
}

fn resolve(chain: &[File], role: &str, depth: Depth) -> Result<Style, String> {
    let full = find(chain, role, |file| &file.roles)?.unwrap_or_default();
    Ok(match depth {
        Depth::TrueColor => full,
        Depth::Ansi256 => map_colours(full, to_256),
        // Sixteen colours are the terminal owner's own; only the theme may say which it means.
        Depth::Ansi16 => {
            let low = find(chain, role, |file| &file.ansi16)?.unwrap_or_default();
            let named = map_colours(full, |colour| match colour {
                Color::Rgb(..) | Color::Indexed(_) => Color::Reset,
                named => named,
            });
            named.patch(low)
        }
        Depth::None => map_colours(full, |_| Color::Reset),
    })
}

/// The style of `role` in the nearest theme of the chain that has it or one of its parents.
fn find(
    chain: &[File],
    role: &str,
    table: impl Fn(&File) -> &BTreeMap<String, Paint>,
) -> Result<Option<Style>, String> {
    for file in chain {
        for name in ancestry(role) {
            if let Some(paint) = table(file).get(name) {
                return style_of(paint, &file.palette)
                    .map(Some)
                    .map_err(|what| format!("theme `{}`, `{name}`: {what}", file.name));
            }
        }
    }
    Ok(None)
}

fn style_of(paint: &Paint, palette: &BTreeMap<String, String>) -> Result<Style, String> {
    let colour = |text: &String| -> Result<Color, String> {
        let text = palette.get(text).unwrap_or(text);
        text.parse().map_err(|_| format!("`{text}` is no colour"))
    };
    let mut style = Style::new();
    match paint {
        Paint::Colour(fg) => style.fg = Some(colour(fg)?),
        Paint::Parts { fg, bg, modifiers } => {
            style.fg = fg.as_ref().map(colour).transpose()?;
            style.bg = bg.as_ref().map(colour).transpose()?;
            for name in modifiers {
                style = style.add_modifier(modifier(name)?);
            }
        }
    }
    Ok(style)
}

fn modifier(name: &str) -> Result<Modifier, String> {
    Ok(match name {
        "bold" => Modifier::BOLD,
        "dim" => Modifier::DIM,
        "italic" => Modifier::ITALIC,
        "underlined" => Modifier::UNDERLINED,
        "reversed" => Modifier::REVERSED,
        "crossed_out" => Modifier::CROSSED_OUT,
        _ => return Err(format!("`{name}` is no modifier")),
    })
}

fn map_colours(mut style: Style, map: impl Fn(Color) -> Color) -> Style {
    style.fg = style.fg.map(&map);
    style.bg = style.bg.map(&map);
    style
}

/// `colour` as it can be shown; with sixteen colours or none, the terminal's own.
pub fn reduce(colour: Color, depth: Depth) -> Color {
    match depth {
        Depth::TrueColor => colour,
        Depth::Ansi256 => to_256(colour),
        Depth::Ansi16 | Depth::None => Color::Reset,
    }
}

/// The nearest of the colours 16 to 255; the first 16 are the terminal owner's own.
fn to_256(colour: Color) -> Color {
    let Color::Rgb(r, g, b) = colour else { return colour };
    let cube = |index: i32| if index == 0 { 0 } else { 55 + 40 * index };
    let step = |value: u8| (0..6).min_by_key(|&i| (cube(i) - i32::from(value)).abs()).unwrap_or(0);
    let distance = |(r2, g2, b2): (i32, i32, i32)| {
        let (dr, dg, db) = (i32::from(r) - r2, i32::from(g) - g2, i32::from(b) - b2);
        2 * dr * dr + 4 * dg * dg + 3 * db * db
    };
    let (i, j, k) = (step(r), step(g), step(b));
    let in_cube = distance((cube(i), cube(j), cube(k)));
    let grey = |index: i32| 8 + 10 * index;
    let nearest = (0..24).min_by_key(|&n| distance((grey(n), grey(n), grey(n)))).unwrap_or(0);
    if distance((grey(nearest), grey(nearest), grey(nearest))) < in_cube {
        Color::Indexed((232 + nearest) as u8)
    } else {
        Color::Indexed((16 + 36 * i + 6 * j + k) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(colour: Color) -> Option<f64> {
        let Color::Rgb(r, g, b) = colour else { return None };
        let linear = |value: u8| {
            let v = f64::from(value) / 255.0;
            if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        };
        Some(0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b))
    }

    /// WCAG 2 contrast.
    fn contrast(a: f64, b: f64) -> f64 {
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn every_theme_parses_without_a_warning_at_every_depth() {
        for (name, source) in BUILT_IN {
            for depth in [Depth::TrueColor, Depth::Ansi256, Depth::Ansi16, Depth::None] {
                let (theme, warnings) = Theme::parse(source, depth).expect(name);
                assert_eq!((theme.name.as_str(), warnings.len()), (*name, 0), "{warnings:?}");
            }
        }
    }

    /// Text needs 4.5, marks and bars 3, on the theme's own background (or the usual one).
    #[test]
    fn contrast_is_enough() {
        let marks = ["viz.", "md.table"];
        let faint = ["token.ghost", "token.discarded", "token.unsent", "ui.border", "viz.axis"];
        for (name, source) in BUILT_IN {
            let (theme, _) = Theme::parse(source, Depth::TrueColor).unwrap();
            let usual =
                if theme.light { Color::Rgb(255, 255, 255) } else { Color::Rgb(24, 24, 24) };
            for role in Role::ALL {
                let style = theme.style(*role);
                let ground = style.bg.filter(|bg| luminance(*bg).is_some()).unwrap_or(usual);
                let ground = luminance(ground).unwrap();
                let Some(ink) = style.fg.and_then(luminance) else { continue };
                let is = |list: &[&str]| list.iter().any(|part| role.name().starts_with(part));
                let least = match () {
                    () if is(&faint) => 2.5,
                    () if is(&marks) => 3.0,
                    () => 4.5,
                };
                let found = contrast(ink, ground);
                assert!(found >= least, "{name} {}: {found:.2} < {least}", role.name());
            }
        }
    }

    #[test]
    fn outcomes_differ_without_colour() {
        for (name, _) in BUILT_IN {
            let theme = Theme::built_in(name, Depth::None).unwrap();
            let modifiers = |role| theme.style(role).add_modifier;
            let [accepted, rejected] = [Role::Accepted, Role::Rejected].map(modifiers);
            let [bonus, discarded] = [Role::Bonus, Role::Discarded].map(modifiers);
            let all = [accepted, rejected, bonus, discarded];
            for i in 0..4 {
                for j in 0..i {
                    assert_ne!(all[i], all[j], "{name}");
                }
            }
            // In running text nothing is bold.
            let in_text = |role| modifiers(role) - Modifier::BOLD;
            let [bonus, correction] = [Role::Bonus, Role::Correction].map(in_text);
            assert_ne!(bonus, correction, "{name}");
            assert_ne!(modifiers(Role::BandA), modifiers(Role::BandB), "{name}");
        }
    }

    #[test]
    fn roles_fall_back_to_parents_then_to_the_inherited_theme() {
        let source = r##"
            name = "mine"
            inherits = "dark"
            [palette]
            red = "#ff0000"
            [roles]
            token = "red"
            "viz.tau" = { fg = "#00ff00", modifiers = ["bold"] }
            "no.such" = "red"
        "##;
        let (theme, warnings) = Theme::parse(source, Depth::TrueColor).unwrap();
        let dark = Theme::built_in("dark", Depth::TrueColor).unwrap();
        assert_eq!(theme.style(Role::Ghost).fg, Some(Color::Rgb(255, 0, 0)));
        assert_eq!(theme.style(Role::Tau).add_modifier, Modifier::BOLD);
        assert_eq!(theme.style(Role::User), dark.style(Role::User));
        assert_eq!(warnings, ["theme `mine`: there is no role `no.such`"]);
    }

    #[test]
    fn bad_themes_are_told_apart() {
        let colour = Theme::parse("name='x'\n[roles]\n'ui.text'='gren'", Depth::TrueColor);
        assert!(colour.unwrap_err().contains("`gren` is no colour"));
        let parent = Theme::parse("name='x'\ninherits='y'", Depth::TrueColor);
        assert!(parent.unwrap_err().contains("no theme `y`"));
        assert!(Theme::parse("name=", Depth::TrueColor).is_err());
    }

    #[test]
    fn colours_reduce_to_the_fixed_ones() {
        assert_eq!(to_256(Color::Rgb(255, 0, 0)), Color::Indexed(196));
        assert_eq!(to_256(Color::Rgb(128, 128, 128)), Color::Indexed(244));
        assert_eq!(to_256(Color::Red), Color::Red);
    }
}
