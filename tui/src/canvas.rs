//! Text on the cells of a frame, and tables of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use rtrace_model::units::{Unit, brief};

use crate::list::{List, Rows as _};
use crate::text::{fit, fit_name, share, width, wrap};
use crate::theme::Theme;

/// A frame that is being filled.
#[derive(Debug)]
pub struct Canvas<'a> {
    /// Its cells.
    pub buffer: &'a mut Buffer,
    /// What things look like.
    pub theme: Theme,
    /// The units of times.
    pub units: &'a mut Units,
}

/// The unit that a column of times had last, by its title.
pub type Units = BTreeMap<String, Unit>;

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
pub enum ColumnWidth {
    /// So many.
    Cells(u16, Align),
    /// What the others leave.
    Rest,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableColumn<'a> {
    /// Its title, with the unit where its values have none; not escaped.
    pub title: &'a str,
    /// Its cells.
    pub width: ColumnWidth,
    /// The columns of text that a table must have for this one to be shown.
    pub from: u16,
    /// Whether its title names a unit.
    is_of_times: bool,
}

impl<'a> TableColumn<'a> {
    /// A column of numbers.
    pub const fn number(title: &'a str, cells: u16, from: u16) -> TableColumn<'a> {
        TableColumn { title, width: ColumnWidth::Cells(cells, Align::Right), from, is_of_times: false }
    }

    /// A column of times, whose title has room for a unit and the mark of the order.
    pub const fn time(title: &'a str, cells: u16, from: u16) -> TableColumn<'a> {
        TableColumn { is_of_times: true, ..TableColumn::number(title, cells, from) }
    }

    /// A column of words.
    pub const fn words(title: &'a str, cells: u16, from: u16) -> TableColumn<'a> {
        TableColumn { title, width: ColumnWidth::Cells(cells, Align::Left), from, is_of_times: false }
    }

    /// The column of names.
    pub const fn rest(title: &'a str) -> TableColumn<'a> {
        TableColumn { title, width: ColumnWidth::Rest, from: 0, is_of_times: false }
    }
}

/// What a cell of a table says; text is not escaped.
#[derive(Clone, Debug, Default)]
pub struct Cell<'a> {
    content: Content<'a>,
    /// How it looks; of a share, how its bar looks.
    style: Style,
}

#[derive(Clone, Debug)]
enum Content<'a> {
    Text(Cow<'a, str>),
    /// The name of a function behind some cells.
    Name(Cow<'a, str>, usize),
    /// Nanoseconds, in the unit of the column, behind a mark.
    Time(u64, &'static str),
    /// A part of a whole from 0 to 1, as a bar; and which part of that is drawn in another shade.
    Share(f64, f64),
}

impl Default for Content<'_> {
    fn default() -> Self {
        Content::Text(Cow::Borrowed(""))
    }
}

impl<'a, T: Into<Cow<'a, str>>> From<T> for Cell<'a> {
    fn from(text: T) -> Cell<'a> {
        Content::Text(text.into()).into()
    }
}

impl<'a> From<Content<'a>> for Cell<'a> {
    fn from(content: Content<'a>) -> Cell<'a> {
        Cell { content, style: Style::new() }
    }
}

impl<'a> Cell<'a> {
    /// The name of a function.
    pub fn name(name: impl Into<Cow<'a, str>>) -> Cell<'a> {
        Content::Name(name.into(), 0).into()
    }

    /// The same, moved to the right.
    pub fn indented(name: impl Into<Cow<'a, str>>, cells: usize) -> Cell<'a> {
        Content::Name(name.into(), cells).into()
    }

    /// A time in nanoseconds: all of a column are in one unit, which its title names.
    pub fn time(ns: Option<u64>) -> Cell<'a> {
        Cell::marked(ns, "")
    }

    /// The same, behind a mark.
    pub fn marked(ns: Option<u64>, mark: &'static str) -> Cell<'a> {
        ns.map_or_else(|| Cell::from("-"), |ns| Content::Time(ns, mark).into())
    }

    /// The same with three digits and a unit of its own: of durations, which differ by powers of ten.
    pub fn duration(ns: Option<u64>, mark: &'static str) -> Cell<'a> {
        ns.map_or_else(|| Cell::from("-"), |ns| Cell::from(format!("{mark}{}", brief(ns))))
    }

    /// A part of a whole, as a bar and in percent; `other` is the part of it that is drawn in another shade.
    pub fn share(part: Option<f64>, other: f64) -> Cell<'a> {
        part.map_or_else(|| Cell::from("-"), |part| Content::Share(part, other).into())
    }

    /// The same text in another style.
    pub fn styled(self, style: Style) -> Self {
        Cell { style, ..self }
    }

    /// Its time, and the cells of the mark before it.
    fn as_time(&self) -> Option<(u64, usize)> {
        if let Content::Time(ns, mark) = self.content { Some((ns, mark.len())) } else { None }
    }
}

/// A table to draw: its place, columns and marked title.
#[derive(Clone, Copy, Debug)]
pub struct TableFrame<'a> {
    /// Where it is.
    pub area: Rect,
    /// Its columns, as many as fit.
    pub columns: &'a [TableColumn<'a>],
    /// The column that gives the order, with the glyph of that.
    pub order: Option<(usize, &'static str)>,
    /// Whether keys move through it, so that a row is marked.
    pub is_active: bool,
}

impl<'a> TableFrame<'a> {
    /// The table of a view, in the order of its rows.
    pub fn plain(area: Rect, columns: &'a [TableColumn<'a>]) -> TableFrame<'a> {
        TableFrame { area, columns, order: None, is_active: true }
    }
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
        table: TableFrame<'_>,
        list: &mut List<K>,
        row: impl Fn(K) -> Vec<Cell<'t>>,
    ) -> Vec<(usize, Rect)> {
        let TableFrame { area, columns, order, is_active } = table;
        if area.is_empty() {
            return Vec::new();
        }
        let places = places(columns, area);
        let height = usize::from(area.height.saturating_sub(1));
        let shown = if height == 0 { Vec::new() } else { list.on_screen(height) };
        let rows: Vec<(usize, Vec<Cell<'_>>)> = shown.into_iter().map(|(place, key)| (place, row(key))).collect();
        let units: Vec<Option<Unit>> =
            places.iter().map(|&(index, place)| self.unit(&columns[index], index, place, &rows)).collect();
        for (&(index, place), unit) in places.iter().zip(&units) {
            let mark = order.filter(|&(marked, _)| marked == index).map(|(_, glyph)| glyph);
            self.put_title(place, &columns[index], *unit, mark);
        }
        let chosen = list.place();
        for ((place_in_list, cells), y) in rows.iter().zip(area.y + 1..area.bottom()) {
            for (&(index, place), unit) in places.iter().zip(&units) {
                if let Some(cell) = cells.get(index) {
                    self.put_cell(Rect { y, height: 1, ..place }, cell, *unit, columns[index].align());
                }
            }
            if *place_in_list == chosen && is_active {
                self.buffer.set_style(Rect { y, height: 1, ..area }, self.theme.chosen());
            }
        }
        places
    }
}

impl Canvas<'_> {
    /// The unit of the times of a column; absent where it has none.
    fn unit(
        &mut self,
        column: &TableColumn<'_>,
        index: usize,
        place: Rect,
        rows: &[(usize, Vec<Cell<'_>>)],
    ) -> Option<Unit> {
        let (times, marks): (Vec<u64>, Vec<usize>) =
            rows.iter().filter_map(|(_, cells)| cells.get(index)?.as_time()).unzip();
        let before = self.units.get(column.title).copied();
        if times.is_empty() {
            return before.filter(|_| column.is_of_times);
        }
        let marks = marks.into_iter().max().unwrap_or(0);
        let unit = Unit::steady(before, &times, usize::from(place.width).saturating_sub(marks));
        self.units.insert(column.title.to_owned(), unit);
        Some(unit)
    }

    fn put_title(&mut self, place: Rect, column: &TableColumn<'_>, unit: Option<Unit>, mark: Option<&str>) {
        let unit = unit.map_or_else(String::new, |unit| format!(" {}", unit.name));
        let title = format!("{}{unit}{}", column.title, mark.unwrap_or_default());
        let style = self.theme.title();
        let style = if mark.is_some() { style.patch(self.theme.accent()) } else { style };
        self.put_aligned(place, &title, style, column.align());
    }

    fn put_cell(&mut self, place: Rect, cell: &Cell<'_>, unit: Option<Unit>, align: Align) {
        match &cell.content {
            Content::Text(text) => self.put_aligned(place, text, cell.style, align),
            Content::Name(name, indent) => {
                let indent = u16::try_from(*indent).unwrap_or(u16::MAX).min(place.width / 2);
                let place = Rect { x: place.x + indent, width: place.width - indent, ..place };
                let name = fit_name(name, usize::from(place.width), self.theme.glyphs);
                self.put_aligned(place, &name, cell.style, align);
            }
            Content::Time(ns, mark) => {
                let time = unit.map_or_else(String::new, |unit| unit.show(*ns, true));
                self.put_aligned(place, &format!("{mark}{time}"), cell.style, align);
            }
            Content::Share(part, other) => {
                let bar = self.theme.gauge_of_two(*part, *other, usize::from(place.width.saturating_sub(NUMBER)));
                self.put_aligned(place, &share(*part), Style::new(), Align::Right);
                self.put(place.x, place.y, place.width.saturating_sub(NUMBER), &bar, cell.style);
            }
        }
    }
}

/// Cells beside a bar for a share in percent.
const NUMBER: u16 = 6;

impl TableColumn<'_> {
    fn align(&self) -> Align {
        match self.width {
            ColumnWidth::Cells(_, align) => align,
            ColumnWidth::Rest => Align::Left,
        }
    }
}

/// Where each column that is shown has its cells.
fn places(columns: &[TableColumn<'_>], area: Rect) -> Vec<(usize, Rect)> {
    let shown = || columns.iter().enumerate().filter(|(_, column)| column.from <= area.width);
    let fixed: u16 =
        shown().map(|(_, column)| if let ColumnWidth::Cells(cells, _) = column.width { cells } else { 0 }).sum();
    let gaps = u16::try_from(shown().count().saturating_sub(1)).unwrap_or(0) * GAP;
    let rest = area.width.saturating_sub(fixed + gaps);
    let mut x = area.x;
    let mut places = Vec::new();
    for (index, column) in shown() {
        let cells = if let ColumnWidth::Cells(cells, _) = column.width { cells } else { rest };
        let cells = cells.min(area.right().saturating_sub(x));
        places.push((index, Rect { x, y: area.y, width: cells, height: 1 }));
        x = (x + cells + GAP).min(area.right());
    }
    places
}

/// Cells between two columns.
pub const GAP: u16 = 2;
