//! Colours and glyphs: as much as the terminal has, and nothing that is said by colour alone.
//!
//! Text keeps the terminal's own colours, so that it reads on dark and on light ones.

use ratatui::style::{Color, Modifier, Style};

/// Colours that tell libraries apart, and shades of each for their functions.
pub const HUES: usize = 8;
const SHADES: usize = 3;

/// Muted colours of the 256 of xterm, on dark terminals with black text and on light ones with white text: blue, tan,
/// green, mauve, teal, rose, khaki, slate.
const ON_DARK: [[u8; SHADES]; HUES] = [
    [67, 110, 74],
    [179, 137, 180],
    [71, 108, 107],
    [139, 97, 140],
    [73, 66, 72],
    [174, 131, 138],
    [144, 101, 143],
    [103, 246, 102],
];
const ON_LIGHT: [[u8; SHADES]; HUES] = [
    [25, 67, 31],
    [94, 130, 137],
    [28, 65, 64],
    [96, 90, 97],
    [30, 66, 29],
    [131, 95, 125],
    [58, 101, 100],
    [60, 102, 59],
];
const WHITE: Color = Color::Indexed(231);

/// Where there are eight colours.
const FEW: [Color; HUES] =
    [Color::Blue, Color::Yellow, Color::Green, Color::Magenta, Color::Cyan, Color::Red, Color::LightBlue, Color::Gray];

/// What things look like.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    has_colours: bool,
    /// Whether there are more than eight of them.
    has_many: bool,
    is_light: bool,
    /// What pictures are made of.
    pub glyphs: &'static Glyphs,
}

/// What pictures are made of.
#[derive(Debug)]
pub struct Glyphs {
    /// A cell filled from below, from an eighth to all of it.
    pub rising: [&'static str; 8],
    /// A cell filled from the left, from an eighth to all of it.
    pub growing: [&'static str; 8],
    /// A cell that is more and more covered.
    pub shades: [&'static str; 4],
    /// A line across a cell.
    pub line: &'static str,
    /// A node whose children are shown.
    pub expanded: &'static str,
    /// A node whose children are not shown.
    pub collapsed: &'static str,
    /// The path that takes most time.
    pub hot: &'static str,
    /// Between a call and its caller.
    pub within: &'static str,
    /// What stands for text that does not fit.
    pub more: &'static str,
    /// Order from large to small, and from small to large.
    pub orders: [&'static str; 2],
}

static UNICODE: Glyphs = Glyphs {
    rising: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    growing: ["▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"],
    shades: ["░", "▒", "▓", "█"],
    line: "─",
    expanded: "▾",
    collapsed: "▸",
    hot: "●",
    within: "‹",
    more: "…",
    orders: ["▼", "▲"],
};

static ASCII: Glyphs = Glyphs {
    rising: [".", ".", ":", ":", "|", "|", "#", "#"],
    growing: [" ", " ", " ", "-", "-", "=", "=", "#"],
    shades: [".", ":", "+", "#"],
    line: "-",
    expanded: "-",
    collapsed: "+",
    hot: "*",
    within: "<",
    more: "~",
    orders: ["v", "^"],
};

impl Theme {
    /// What an environment asks for: `NO_COLOR`, the character set of the locale, the console of
    /// Linux, which has few glyphs, and `COLORFGBG`, by which some terminals tell that they are
    /// light.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Theme {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_lowercase();
        let has_unicode = locale.contains("utf-8") || locale.contains("utf8");
        let is_console = set("TERM").is_some_and(|term| term == "linux");
        let background = set("COLORFGBG").and_then(|colours| colours.rsplit(';').next()?.parse::<u8>().ok());
        Theme {
            has_colours: set("NO_COLOR").is_none(),
            has_many: !is_console,
            is_light: background.is_some_and(|colour| colour == 7 || colour == 15),
            glyphs: if has_unicode && !is_console { &UNICODE } else { &ASCII },
        }
    }

    fn coloured(self, dark: Color, light: Color) -> Style {
        match (self.has_colours, self.is_light) {
            (false, _) => Style::new(),
            (true, false) => Style::new().fg(dark),
            (true, true) => Style::new().fg(light),
        }
    }

    /// What is worth a second look.
    pub fn accent(self) -> Style {
        self.coloured(Color::Cyan, Color::Blue)
    }

    /// What is as it should be.
    pub fn good(self) -> Style {
        self.coloured(Color::Green, Color::Green)
    }

    /// What is not as it should be.
    pub fn bad(self) -> Style {
        self.coloured(Color::LightRed, Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What may be overlooked.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Titles.
    pub fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The row chosen.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Whether there are colours at all.
    pub fn has_colours(self) -> bool {
        self.has_colours
    }

    /// The ground of a call on a timeline, and its text; absent without colours. `hue` and `shade` are any numbers.
    pub fn ground(self, hue: usize, shade: usize) -> Option<Style> {
        let text = if self.has_many && self.is_light { WHITE } else { Color::Black };
        self.has_colours.then(|| Style::new().fg(text).bg(self.colour(hue, shade)))
    }

    /// A mark in the same colour on the ground of the terminal.
    pub fn mark(self, hue: usize, shade: usize) -> Style {
        if self.has_colours { Style::new().fg(self.colour(hue, shade)) } else { Style::new() }
    }

    fn colour(self, hue: usize, shade: usize) -> Color {
        let hue = hue % HUES;
        match (self.has_many, self.is_light) {
            (false, _) => FEW[hue],
            (true, false) => Color::Indexed(ON_DARK[hue][shade % SHADES]),
            (true, true) => Color::Indexed(ON_LIGHT[hue][shade % SHADES]),
        }
    }

    /// How much there is of something, from 0 to 1.
    pub fn heat(self, share: f64) -> Style {
        const HEATS: [(Color, Color); 4] = [
            (Color::LightBlue, Color::Cyan),
            (Color::Cyan, Color::Blue),
            (Color::Yellow, Color::Magenta),
            (Color::LightRed, Color::Red),
        ];
        let (dark, light) = HEATS[(share.clamp(0.0, 0.999) * 4.0) as usize];
        self.coloured(dark, light)
    }

    /// A bar of so many cells, of which a share is filled.
    pub fn gauge(self, share: f64, cells: usize) -> String {
        let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
        let (full, rest) = (eighths / 8, eighths % 8);
        let mut gauge = self.glyphs.growing[7].repeat(full);
        if rest > 0 {
            gauge.push_str(self.glyphs.growing[rest - 1]);
        }
        gauge
    }

    /// The same; of what is filled, the last part is of another shade.
    pub fn gauge_of_two(self, share: f64, other: f64, cells: usize) -> String {
        let gauge = self.gauge(share, cells);
        let filled = gauge.chars().count();
        let first = (share.clamp(0.0, 1.0) * (1.0 - other.clamp(0.0, 1.0)) * cells as f64).round() as usize;
        if other <= 0.0 || first >= filled {
            return gauge;
        }
        let kept: String = gauge.chars().take(first).collect();
        format!("{kept}{}", self.glyphs.shades[1].repeat(filled - first))
    }

    /// A curve of values from 0 to the largest of them, or to this one, if it is larger.
    pub fn curve(self, values: &[u64], top: u64) -> String {
        let most = values.iter().copied().max().unwrap_or(0).max(top).max(1);
        let cell = |&value: &u64| match value {
            0 => " ",
            value => self.glyphs.rising[(value as f64 / most as f64 * 7.0).round() as usize],
        };
        values.iter().map(cell).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn theme(variables: &[(&str, &str)]) -> Theme {
        Theme::of_environment(|name| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn glyphs_and_colours_are_what_the_terminal_has() {
        let full = theme(&[("LANG", "C.UTF-8"), ("TERM", "xterm-256color")]);
        assert_eq!((full.glyphs.hot, full.has_colours), ("●", true));
        assert_eq!(theme(&[("LANG", "de_DE.utf8"), ("LC_ALL", "C")]).glyphs.hot, "*");
        assert_eq!(theme(&[("LANG", "C.UTF-8"), ("TERM", "linux")]).glyphs.hot, "*");
        assert_eq!(theme(&[("NO_COLOR", "1")]).accent(), Style::new());
        assert_eq!(theme(&[("NO_COLOR", "1")]).ground(1, 0), None);
        let light = theme(&[("COLORFGBG", "0;15")]);
        assert_eq!(light.accent().fg, Some(Color::Blue));
        assert!(matches!(theme(&[("TERM", "linux")]).mark(1, 0).fg, Some(Color::Yellow)));
    }

    /// The relative luminance of a colour of xterm's cube or greys, as WCAG 2.1 defines it.
    fn luminance(colour: Color) -> f64 {
        let channels = match colour {
            Color::Black => [0.0; 3],
            Color::Indexed(grey @ 232..) => [8.0 + 10.0 * f64::from(grey - 232); 3],
            Color::Indexed(index @ 16..) => {
                let level = |step: u8| if step == 0 { 0.0 } else { 55.0 + 40.0 * f64::from(step) };
                [(index - 16) / 36, (index - 16) / 6 % 6, (index - 16) % 6].map(level)
            }
            other => panic!("{other:?}"),
        };
        let linear = channels.map(|channel| channel / 255.0).map(|channel: f64| {
            if channel <= 0.03928 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    fn contrast(one: f64, other: f64) -> f64 {
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn all_colours_can_be_read_and_seen() {
        for (variables, ground) in [([("TERM", "xterm")], 0.0), ([("COLORFGBG", "0;15")], 1.0)] {
            let theme = theme(&variables);
            for (hue, shade) in (0..HUES).flat_map(|hue| (0..SHADES).map(move |shade| (hue, shade))) {
                let style = theme.ground(hue, shade).unwrap();
                let (text, bar) = (luminance(style.fg.unwrap()), luminance(style.bg.unwrap()));
                assert!(contrast(text, bar) >= 3.0, "text on {style:?}: {}", contrast(text, bar));
                assert!(contrast(ground, bar) >= 3.0, "{style:?} on the terminal: {}", contrast(ground, bar));
            }
        }
    }

    #[test]
    fn gauges_and_curves_fill_their_cells() {
        let theme = theme(&[("LANG", "C.UTF-8")]);
        assert_eq!([0.0, 0.5, 0.55, 1.0, 7.0].map(|share| theme.gauge(share, 4)), ["", "██", "██▎", "████", "████"]);
        assert_eq!([0.0, 0.25, 1.0].map(|waits| theme.gauge_of_two(0.5, waits, 8)), ["████", "███▒", "▒▒▒▒"]);
        assert_eq!(theme.curve(&[0, 1, 50, 100], 0), " ▁▅█");
        assert_eq!(theme.curve(&[0, 0], 0), "  ");
        assert_eq!(theme.curve(&[9, 9], 18), "▅▅");
    }
}
