//! Colours and glyphs: as much as the terminal has, and nothing that is said by colour alone.
//!
//! Text keeps the terminal's own colours, so that it reads on dark and on light ones.

use ratatui::style::{Color, Modifier, Style};
use rtrace_model::RegionId;

/// What things look like.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    has_colours: bool,
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

    /// A call on a timeline: a ground of its function's own; absent without colours.
    pub fn bar(self, region: RegionId) -> Option<Style> {
        const ON_LIGHT: [Color; 8] = [
            Color::Cyan,
            Color::Green,
            Color::Yellow,
            Color::Magenta,
            Color::LightBlue,
            Color::LightRed,
            Color::LightMagenta,
            Color::DarkGray,
        ];
        const ON_DARK: [Color; 10] = [
            Color::Cyan,
            Color::Green,
            Color::Yellow,
            Color::Magenta,
            Color::LightBlue,
            Color::LightGreen,
            Color::LightMagenta,
            Color::LightCyan,
            Color::LightYellow,
            Color::LightRed,
        ];
        // Neighbours in a library have neighbouring ids: these get colours far from each other.
        let grounds: &[Color] = if self.is_light { &ON_LIGHT } else { &ON_DARK };
        let ground = grounds[region.index().wrapping_mul(7) % grounds.len()];
        self.has_colours.then(|| Style::new().fg(Color::Black).bg(ground))
    }

    /// A cell that is covered in part on the ground of nothing.
    pub fn trace(self, region: RegionId) -> Style {
        self.bar(region).and_then(|style| style.bg).map_or(Style::new(), |colour| Style::new().fg(colour))
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

    /// A curve of values from 0 to the largest of them.
    pub fn curve(self, values: &[u64]) -> String {
        let most = values.iter().copied().max().unwrap_or(0).max(1);
        let cell = |&value: &u64| match value {
            0 => " ",
            value => self.glyphs.rising[(value as f64 / most as f64 * 7.0).round() as usize],
        };
        values.iter().map(cell).collect()
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(theme(&[("NO_COLOR", "1")]).bar(RegionId(1)), None);
        let light = theme(&[("COLORFGBG", "0;15")]);
        assert_eq!(light.accent().fg, Some(Color::Blue));
        // Parts of cells are drawn in these, too.
        let pale = [Color::LightYellow, Color::LightCyan, Color::LightGreen, Color::White];
        assert!((0..100).all(|id| light.trace(RegionId(id)).fg.is_some_and(|colour| !pale.contains(&colour))));
    }

    #[test]
    fn gauges_and_curves_fill_their_cells() {
        let theme = theme(&[("LANG", "C.UTF-8")]);
        assert_eq!([0.0, 0.5, 0.55, 1.0, 7.0].map(|share| theme.gauge(share, 4)), ["", "██", "██▎", "████", "████"]);
        assert_eq!(theme.curve(&[0, 1, 50, 100]), " ▁▅█");
        assert_eq!(theme.curve(&[0, 0]), "  ");
    }
}
