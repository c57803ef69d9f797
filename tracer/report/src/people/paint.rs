//! Colours of a terminal: the eight that every theme defines, so that dark and light ones are both readable.

/// How a text stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Heading,
    /// What may be overlooked.
    Dim,
    Bar,
    /// What is as it should be.
    Good,
    /// What is worth a second look.
    Warning,
    /// What is not as it should be.
    Bad,
}

impl Tone {
    /// The parameters of "select graphic rendition" (ECMA-48, 8.3.117).
    const fn parameters(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Heading => "1",
            Tone::Dim => "2",
            Tone::Bar => "36",
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "1;31",
        }
    }
}

/// The text in that tone, if there are colours.
pub(crate) fn paint(text: &str, tone: Tone, has_colours: bool) -> String {
    match tone {
        Tone::Plain => text.to_owned(),
        _ if !has_colours || text.trim().is_empty() => text.to_owned(),
        _ => format!("\x1b[{}m{text}\x1b[0m", tone.parameters()),
    }
}
