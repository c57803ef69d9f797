//! Choosing from a list, before anything is recorded: what is typed filters it.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::canvas::{Align, Canvas, Cell, TableColumn, TableFrame, Units};
use crate::list::{List, Rows as _};
use crate::term::Screen;
use crate::theme::Theme;

/// Time between two looks at what is known of the entries.
const TICK: Duration = Duration::from_millis(100);

/// Lines around the list: title, filter, note.
const AROUND: u16 = 4;

/// A question that a list answers.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What is asked.
    pub title: &'a str,
    /// Titles of the columns but the last, with their cells.
    pub columns: &'a [(&'a str, u16, Align)],
    /// Title of the last column, which takes what is left.
    pub last: &'a str,
    /// What Enter does.
    pub does: &'a str,
}

/// What can be chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickEntry {
    /// Which it is, whatever its place.
    pub key: usize,
    /// A text for each column. They may come from traced programs.
    pub cells: Vec<String>,
}

/// What is known now.
#[derive(Clone, Debug, Default)]
pub struct PickEntries {
    /// In the order in which they are shown.
    pub entries: Vec<PickEntry>,
    /// What is said below them.
    pub note: String,
}

/// Lets the user choose one or several entries; gives their keys, or nothing if the user leaves or `stop` is set. `fresh`
/// is asked again and again, and gives what is known if that has changed.
///
/// # Errors
/// The terminal cannot be used, or has gone.
pub fn pick(
    question: Question<'_>,
    stop: &AtomicBool,
    fresh: &mut dyn FnMut() -> Option<PickEntries>,
) -> io::Result<Option<Vec<usize>>> {
    let mut screen = Screen::take()?;
    let theme = Theme::of_environment(|name| std::env::var(name).ok());
    let mut picker = Picker::default();
    while !stop.load(Ordering::Relaxed) {
        if screen.is_lost() {
            return Err(io::Error::other("the list ended by a panic elsewhere"));
        }
        if let Some(entries) = fresh() {
            picker.learn(entries);
        }
        screen.draw(|frame| picker.draw(frame, question, theme))?;
        let Some(Event::Key(key)) = screen.event(TICK)? else { continue };
        match picker.press(key) {
            PickAnswer::None => {}
            PickAnswer::Leave => return Ok(None),
            PickAnswer::Take(keys) => return Ok(Some(keys)),
        }
    }
    Ok(None)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PickAnswer {
    None,
    Leave,
    Take(Vec<usize>),
}

#[derive(Debug, Default)]
struct Picker {
    known: PickEntries,
    list: List<usize>,
    filter: String,
    marked: Vec<usize>,
}

impl Picker {
    fn learn(&mut self, known: PickEntries) {
        self.known = known;
        self.arrange();
    }

    /// Shows the entries that have every word of the filter.
    fn arrange(&mut self) {
        let filter = self.filter.to_lowercase();
        let has = |entry: &&PickEntry| {
            let text = entry.cells.join(" ").to_lowercase();
            filter.split_whitespace().all(|word| text.contains(word))
        };
        self.list.set(self.known.entries.iter().filter(has).map(|entry| entry.key).collect());
    }

    fn press(&mut self, key: KeyEvent) -> PickAnswer {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => return PickAnswer::Leave,
            KeyCode::Char('c' | 'd') if is_control => return PickAnswer::Leave,
            KeyCode::Char('u') if is_control => self.filter.clear(),
            KeyCode::Char(_) if is_control => {}
            KeyCode::Enter => return self.take(),
            KeyCode::Up => self.list.step(-1),
            KeyCode::Down => self.list.step(1),
            KeyCode::PageUp => self.list.step(-self.list.page()),
            KeyCode::PageDown => self.list.step(self.list.page()),
            KeyCode::Home => self.list.choose(0),
            KeyCode::End => self.list.choose(usize::MAX),
            KeyCode::Tab => self.mark(),
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.arrange();
        PickAnswer::None
    }

    fn take(&self) -> PickAnswer {
        match (self.marked.is_empty(), self.list.key()) {
            (false, _) => PickAnswer::Take(self.marked.clone()),
            (true, Some(key)) => PickAnswer::Take(vec![key]),
            (true, None) => PickAnswer::None,
        }
    }

    /// Marks the row chosen, or not any more, and goes on to the next.
    fn mark(&mut self) {
        let Some(key) = self.list.key() else { return };
        match self.marked.iter().position(|&marked| marked == key) {
            Some(place) => _ = self.marked.remove(place),
            None => self.marked.push(key),
        }
        self.list.step(1);
    }

    /// How many entries the filter leaves, if there is one.
    fn passing(&self) -> String {
        match self.filter.is_empty() {
            true => String::new(),
            false => format!("  {} of {}", self.list.rows().len(), self.known.entries.len()),
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>, question: Question<'_>, theme: Theme) {
        let area = frame.area();
        let mut units = Units::new();
        let mut canvas = Canvas { buffer: frame.buffer_mut(), theme, units: &mut units };
        let line = |y: u16| Rect { y: area.y + y, height: u16::from(y < area.height), ..area };
        canvas.put_all(line(0), [(Cow::from(question.title), theme.title())]);
        let typed = [
            (Cow::from("filter: "), theme.dim()),
            (Cow::from(self.filter.as_str()), Style::new()),
            (Cow::from(" "), Style::new().add_modifier(Modifier::REVERSED)),
            (Cow::from(self.passing()), theme.dim()),
        ];
        canvas.put_all(line(1), typed);
        let marks = if self.marked.is_empty() { String::new() } else { format!("{} marked, ", self.marked.len()) };
        let keys = format!("{marks}Enter {}  Tab mark  Esc leave", question.does);
        let bottom = area.height.saturating_sub(1);
        if area.height > AROUND {
            canvas.put_all(line(bottom - 1), [(Cow::from(self.known.note.as_str()), theme.accent())]);
        }
        let body = Rect { y: area.y + 2, height: area.height.saturating_sub(AROUND), ..area };
        let mut columns = vec![TableColumn::words(" ", 1, 0)];
        let column = |&(title, cells, align)| match align {
            Align::Left => TableColumn::words(title, cells, 0),
            Align::Right => TableColumn::number(title, cells, 0),
        };
        columns.extend(question.columns.iter().map(column));
        columns.push(TableColumn::rest(question.last));
        let (entries, marked) = (&self.known.entries, &self.marked);
        let row = |key: usize| -> Vec<Cell<'_>> {
            let cells = entries.iter().find(|entry| entry.key == key).map(|entry| entry.cells.as_slice());
            let mark = Cell::from(if marked.contains(&key) { "*" } else { " " }).styled(theme.accent());
            let texts = cells.unwrap_or_default().iter().map(|text| Cell::from(text.as_str()));
            std::iter::once(mark).chain(texts).collect()
        };
        canvas.table(TableFrame::plain(body, &columns), &mut self.list, row);
        if self.list.rows().is_empty() {
            canvas.put_empty(body, if entries.is_empty() { "there is nothing to choose" } else { "nothing matches" });
        }
        canvas.put_all(line(bottom), [(Cow::from(keys), theme.dim())]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::testing;

    const QUESTION: Question<'_> =
        Question { title: "Trace which process?", columns: &[("PID", 7, Align::Right)], last: "NAME", does: "choose" };

    fn picker() -> Picker {
        let entry =
            |(key, name): (usize, &str)| PickEntry { key, cells: vec![(key * 100).to_string(), name.to_owned()] };
        let names = ["redis-server", "nginx: master", "nginx: worker", "a\u{1b}[2Jb"];
        let mut picker = Picker::default();
        let entries = names.into_iter().enumerate().map(entry).collect();
        picker.learn(PickEntries { entries, note: "counting calls".to_owned() });
        picker
    }

    fn press(picker: &mut Picker, keys: &[KeyCode]) -> PickAnswer {
        keys.iter().fold(PickAnswer::None, |_, &code| picker.press(KeyEvent::from(code)))
    }

    fn type_in(picker: &mut Picker, text: &str) -> PickAnswer {
        press(picker, &text.chars().map(KeyCode::Char).collect::<Vec<_>>())
    }

    fn screen(picker: &mut Picker, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let theme = Theme::of_environment(|_| None);
        terminal.draw(|frame| picker.draw(frame, QUESTION, theme)).unwrap();
        testing::screen(terminal.backend().buffer())
    }

    #[test]
    fn what_is_typed_filters_and_enter_takes() {
        let mut picker = picker();
        assert_eq!(press(&mut picker, &[KeyCode::Enter]), PickAnswer::Take(vec![0]));
        type_in(&mut picker, "WORK ngi");
        assert_eq!(picker.list.rows(), [2]);
        assert_eq!(press(&mut picker, &[KeyCode::Enter]), PickAnswer::Take(vec![2]));
        type_in(&mut picker, "zzz");
        assert_eq!(press(&mut picker, &[KeyCode::Enter]), PickAnswer::None, "there is nothing to take");
        let text = screen(&mut picker, 60, 12);
        assert!(text.contains("nothing matches") && text.contains("0 of 4"), "{text}");
        picker.press(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        assert_eq!(picker.list.rows().len(), 4);
    }

    #[test]
    fn several_can_be_marked_and_stay_marked_while_the_filter_changes() {
        let mut picker = picker();
        type_in(&mut picker, "nginx");
        press(&mut picker, &[KeyCode::Tab, KeyCode::Tab]);
        type_in(&mut picker, " master");
        assert!(screen(&mut picker, 60, 12).contains("2 marked"));
        assert_eq!(press(&mut picker, &[KeyCode::Enter]), PickAnswer::Take(vec![1, 2]));
        assert_eq!(press(&mut picker, &[KeyCode::Home, KeyCode::Tab, KeyCode::Enter]), PickAnswer::Take(vec![2]));
    }

    #[test]
    fn the_choice_follows_its_entry_when_the_order_changes() {
        let mut picker = picker();
        press(&mut picker, &[KeyCode::Down]);
        let mut known = picker.known.clone();
        known.entries.reverse();
        picker.learn(known);
        assert_eq!(press(&mut picker, &[KeyCode::Enter]), PickAnswer::Take(vec![1]));
    }

    #[test]
    fn it_can_be_left() {
        assert_eq!(press(&mut picker(), &[KeyCode::Esc]), PickAnswer::Leave);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(picker().press(interrupt), PickAnswer::Leave);
    }

    #[test]
    fn it_fits_any_screen_and_hostile_names_do_not_reach_it() {
        let text = screen(&mut picker(), 60, 12);
        for part in ["Trace which process?", "filter:", "redis-server", "counting calls", "Enter choose", "\\x1b[2J"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'));
        for (width, height) in [(1, 1), (3, 2), (10, 3), (20, 5), (400, 100)] {
            screen(&mut picker(), width, height);
        }
    }
}
