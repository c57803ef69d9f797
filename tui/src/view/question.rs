//! The question what becomes of a recording, with the keys that answer it.

use crossterm::event::KeyCode::{self, Char, Enter};
use ratatui::layout::Rect;

use crate::app::Fate;
use crate::canvas::Canvas;

/// An answer.
struct Answer {
    fate: Fate,
    codes: &'static [KeyCode],
    key: &'static str,
    does: &'static str,
    hint: &'static str,
}

/// All answers. The one that deletes takes a capital letter, so that no slip does.
const ANSWERS: [Answer; 3] = [
    Answer {
        fate: Fate::Keep,
        codes: &[Char('s'), Enter, Char('q')],
        key: "s",
        does: "stop the recording and keep the trace; also q and Enter",
        hint: "stop, keep",
    },
    Answer {
        fate: Fate::GoOn,
        codes: &[Char('l')],
        key: "l",
        does: "leave the view; the recording goes on until Ctrl-C",
        hint: "leave",
    },
    Answer {
        fate: Fate::Delete,
        codes: &[Char('D')],
        key: "D",
        does: "stop the recording and delete the trace",
        hint: "delete",
    },
];

/// The way back.
const BACK: (&str, &str, &str) = ("Esc", "go on looking", "back");

/// What a key answers.
pub fn answer(code: KeyCode, fates: &[Fate]) -> Option<Fate> {
    let possible = ANSWERS.iter().filter(|answer| fates.contains(&answer.fate));
    possible.into_iter().find(|answer| answer.codes.contains(&code)).map(|answer| answer.fate)
}

/// Draws the question in place of a view.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, fates: &[Fate]) {
    canvas.put(area.x, area.y, area.width, "What becomes of the recording?", canvas.theme.title());
    let possible = ANSWERS.iter().filter(|answer| fates.contains(&answer.fate));
    let rows = possible.map(|answer| (answer.key, answer.does)).chain([(BACK.0, BACK.1)]);
    for ((key, does), y) in rows.zip(area.y + 1..area.bottom()) {
        canvas.put(area.x, y, 4.min(area.width), key, canvas.theme.title().patch(canvas.theme.accent()));
        canvas.put(area.x + 5, y, area.width.saturating_sub(5), does, ratatui::style::Style::new());
    }
}

/// The keys on one line.
pub fn hints(fates: &[Fate]) -> String {
    let possible = ANSWERS.iter().filter(|answer| fates.contains(&answer.fate));
    let hints = possible.map(|answer| (answer.key, answer.hint)).chain([(BACK.0, BACK.2)]);
    hints.map(|(key, hint)| format!("{key} {hint}")).collect::<Vec<_>>().join("  ")
}
