//! Text on the cells of a frame, and tables of it.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::list::List;
use crate::text::{fit, width, wrap};
use crate::theme::Theme;

/// A frame that is being filled.
#[derive(Debug)]
pub struct Canvas<'a> {
    /// Its cells.
    pub buffer: &'a mut Buffer,
    /// What things look like.
    pub theme: Theme,
}

/// Where a text stands in its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At their left end.
    Left,
    /// At their right end.
    Right,
}

/// How a column takes its cells.
#[derive(Clone, Copy, Debug)]
pub enum Width {
    /// So many.
    Cells(u16, Align),
    /// What the others leave.
    Rest,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Its title, with the unit where its values have none; not escaped.
    pub title: &'a str,
    /// Its cells.
    pub width: Width,
    /// The columns of text that a table must have for this one to be shown.
    pub from: u16,
}

impl<'a> Column<'a> {
    /// A column of numbers or times.
    pub const fn number(title: &'a str, cells: u16, from: u16) -> Column<'a> {
        Column { title, width: Width::Cells(cells, Align::Right), from }
    }

    /// A column of words.
    pub const fn words(title: &'a str, cells: u16, from: u16) -> Column<'a> {
        Column { title, width: Width::Cells(cells, Align::Left), from }
    }

    /// The column of names.
    pub const fn rest(title: &'a str) -> Column<'a> {
        Column { title, width: Width::Rest, from: 0 }
    }
}

/// Text in a cell of a table; not escaped.
#[derive(Clone, Debug, Default)]
pub struct Cell<'a> {
    /// What it says.
    pub text: Cow<'a, str>,
    /// How it looks.
    pub style: Style,
}

impl<'a, T: Into<Cow<'a, str>>> From<T> for Cell<'a> {
    fn from(text: T) -> Cell<'a> {
        Cell { text: text.into(), style: Style::new() }
    }
}

impl Cell<'_> {
    /// The same text in another style.
    pub fn styled(self, style: Style) -> Self {
        Cell { style, ..self }
    }
}

/// A table to draw: its place, columns and marked title.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// Where it is.
    pub area: Rect,
    /// Its columns, as many as fit.
    pub columns: &'a [Column<'a>],
    /// The column that gives the order, with the glyph of that.
    pub order: Option<(usize, &'static str)>,
}

impl Canvas<'_> {
    /// Writes a text, cut to a number of cells from a place; returns the cells taken.
    pub fn put(&mut self, x: u16, y: u16, cells: u16, text: &str, style: Style) -> u16 {
        let room = self.buffer.area.right().saturating_sub(x).min(cells);
        if y >= self.buffer.area.bottom() || room == 0 {
            return 0;
        }
        let text = fit(text, usize::from(room), self.theme.glyphs);
        let (end, _) = self.buffer.set_stringn(x, y, &text, usize::from(room), style);
        end - x
    }

    /// Writes a text at either end of a number of cells.
    pub fn put_aligned(&mut self, place: Rect, text: &str, style: Style, align: Align) {
        if place.is_empty() {
            return;
        }
        let taken = u16::try_from(width(text)).unwrap_or(u16::MAX).min(place.width);
        let x = if align == Align::Right { place.right() - taken } else { place.x };
        self.put(x, place.y, place.right() - x, text, style);
    }

    /// Writes pieces of text behind each other, as far as they fit.
    pub fn put_all<'t>(&mut self, area: Rect, pieces: impl IntoIterator<Item = (Cow<'t, str>, Style)>) -> u16 {
        let mut x = area.x;
        for (text, style) in pieces {
            if x >= area.right() || area.height == 0 {
                break;
            }
            x += self.put(x, area.y, area.right() - x, &text, style);
        }
        x
    }

    /// Says why a table has no rows.
    pub fn put_empty(&mut self, area: Rect, why: &str) {
        if area.height > 2 {
            self.put(area.x, area.y + 2, area.width, why, self.theme.dim());
        }
    }

    /// Writes a text on the last lines of an area, in full if two of them are enough; returns the
    /// area above. Low areas are left alone.
    pub fn put_below(&mut self, area: Rect, text: &str) -> Rect {
        const LINES: u16 = 2;
        if area.height < 12 {
            return area;
        }
        let above = Rect { height: area.height - LINES, ..area };
        let lines = wrap(text, usize::from(area.width), usize::from(LINES));
        for (line, y) in lines.iter().zip(above.bottom()..) {
            self.put(area.x, y, area.width, line, self.theme.accent());
        }
        above
    }

    /// Draws a table: its titles, and a row for each key on the screen. Returns where the titles
    /// of its columns are.
    pub fn table<'t, K: Copy + PartialEq>(
        &mut self,
        table: Table<'_>,
        list: &mut List<K>,
        row: impl Fn(K) -> Vec<Cell<'t>>,
    ) -> Vec<(usize, Rect)> {
        let Table { area, columns, order } = table;
        if area.is_empty() {
            return Vec::new();
        }
        let places = places(columns, area);
        for &(index, place) in &places {
            let column = &columns[index];
            let align = column.align();
            match order {
                Some((marked, glyph)) if marked == index => {
                    let title = format!("{}{glyph}", column.title);
                    self.put_aligned(place, &title, self.theme.title().patch(self.theme.accent()), align);
                }
                _ => self.put_aligned(place, column.title, self.theme.title(), align),
            }
        }
        let height = usize::from(area.height.saturating_sub(1));
        if height == 0 {
            return places;
        }
        let chosen = list.place();
        for (line, (place_in_list, key)) in list.on_screen(height).into_iter().enumerate() {
            let y = area.y + 1 + u16::try_from(line).unwrap_or(u16::MAX);
            let cells = row(key);
            for &(index, place) in &places {
                if let Some(cell) = cells.get(index) {
                    self.put_aligned(Rect { y, height: 1, ..place }, &cell.text, cell.style, columns[index].align());
                }
            }
            if place_in_list == chosen {
                self.buffer.set_style(Rect { y, height: 1, ..area }, self.theme.chosen());
            }
        }
        places
    }
}

impl Column<'_> {
    fn align(&self) -> Align {
        match self.width {
            Width::Cells(_, align) => align,
            Width::Rest => Align::Left,
        }
    }
}

/// Where each column that is shown has its cells.
fn places(columns: &[Column<'_>], area: Rect) -> Vec<(usize, Rect)> {
    let shown = || columns.iter().enumerate().filter(|(_, column)| column.from <= area.width);
    let fixed: u16 = shown().map(|(_, column)| if let Width::Cells(cells, _) = column.width { cells } else { 0 }).sum();
    let gaps = u16::try_from(shown().count().saturating_sub(1)).unwrap_or(0) * GAP;
    let rest = area.width.saturating_sub(fixed + gaps);
    let mut x = area.x;
    let mut places = Vec::new();
    for (index, column) in shown() {
        let cells = if let Width::Cells(cells, _) = column.width { cells } else { rest };
        let cells = cells.min(area.right().saturating_sub(x));
        places.push((index, Rect { x, y: area.y, width: cells, height: 1 }));
        x = (x + cells + GAP).min(area.right());
    }
    places
}

/// Cells between two columns.
pub const GAP: u16 = 2;
