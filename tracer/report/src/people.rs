//! A report as a table for people: as many columns as a terminal has room for, a unit for each, and names last.
//!
//! Where the output is no terminal, nothing is cut, shortened or left out, and numbers have no separators. Names come
//! from traced programs and are escaped.

mod layout;
pub(crate) mod paint;

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

use rtrace_model::units::{self, Unit};
use rtrace_model::{counted, escape, grouped, names};
use unicode_width::UnicodeWidthStr as _;

use self::layout::{Draft, GAP};
use self::paint::{Tone, paint};
use super::table::{Column, ColumnKind, Datum, RecordedValue, Shown, Table};
use super::{Look, Report};

/// Cells of a bar beside a share, on a narrow terminal and from this width on.
const NARROW_BAR: usize = 5;
const WIDE_BAR: usize = 8;
const WIDE: usize = 100;

/// Cells of the longest bar of a distribution.
const LONGEST_BAR: usize = 60;
const PLAIN_BAR: usize = 40;

/// Cells that a nested name keeps, however deep it is.
const NESTED_NAME: usize = 20;

/// Writes the table between a title and notes.
pub(super) fn table(report: &Report, look: &Look, out: &mut dyn Write) -> io::Result<()> {
    let table = &report.table;
    let sheet = Sheet::new(table, look);
    for (name, about) in &report.about {
        let side = if report.about.len() > 1 { format!("{}: ", name.to_uppercase()) } else { String::new() };
        let line = about.line(look.width.map(|width| width.saturating_sub(side.len())));
        writeln!(out, "{}", paint(&format!("{side}{line}"), Tone::Heading, look.colours))?;
    }
    if let Some(library) = &sheet.only_library {
        writeln!(out, "{}", paint(&format!("all functions are in {library}"), Tone::Dim, look.colours))?;
    }
    if !table.rows.is_empty() {
        writeln!(out)?;
        sheet.write(table, look, out)?;
    }
    let no_room = (!sheet.without_room.is_empty()).then(|| {
        let columns = sheet.without_room.join(", ");
        Note::plain(format!("no room for: {columns}; use a wider terminal, or choose columns with --columns"))
    });
    let legend = report.legend.iter().filter(|_| sheet.columns.iter().any(|column| column.is_marked));
    // On a terminal, what is not of the rows themselves waits until it is asked for.
    let is_brief = look.width.is_some() && !look.notes;
    let all = no_room.iter().chain(&report.notes);
    let (shown, hidden): (Vec<&Note>, Vec<&Note>) = all.partition(|note| note.is_kept || !is_brief);
    let more = more_notes(&hidden);
    let notes: Vec<&Note> = shown.into_iter().chain(&more).chain(legend).collect();
    if !notes.is_empty() {
        writeln!(out)?;
    }
    for note in notes {
        let text = if look.is_ascii { note.text.replace('…', "~") } else { note.text.clone() };
        for line in wrapped(&text, look.width, CONTINUED) {
            writeln!(out, "{}", paint(&line, note.tone, look.colours))?;
        }
    }
    Ok(())
}

/// A line below the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) text: String,
    pub(super) tone: Tone,
    /// Whether it is shown where notes are brief.
    pub(super) is_kept: bool,
}

/// That there are notes beside those that are shown.
fn more_notes(hidden: &[&Note]) -> Option<Note> {
    let warnings = hidden.iter().filter(|note| note.tone == Tone::Warning).count();
    let notes = counted(hidden.len() as u64, "more note");
    let text = |how: &str| format!("{notes}{how}: --notes");
    match (hidden.len(), warnings) {
        (0, _) => None,
        (_, 0) => Some(Note::plain(text(""))),
        (_, some) => Some(Note::warning(text(&format!(", with {}", counted(some as u64, "warning"))))),
    }
}

impl Note {
    pub(super) fn plain(text: impl Into<String>) -> Note {
        Note { text: text.into(), tone: Tone::Plain, is_kept: false }
    }

    /// What makes the figures worse than they look.
    pub(super) fn warning(text: impl Into<String>) -> Note {
        Note { text: text.into(), tone: Tone::Warning, is_kept: false }
    }

    /// What belongs to the rows so much that it is never left out.
    pub(super) fn kept(self) -> Note {
        Note { is_kept: true, ..self }
    }
}

/// A column as it is shown.
struct Drawn {
    place: usize,
    heading: String,
    cells: Vec<TextCell>,
    kind: ColumnKind,
    is_left: bool,
    /// Whether it has a time much of which is tracing.
    is_marked: bool,
    width: usize,
}

struct TextCell {
    text: String,
    tone: Tone,
}

/// All that is shown.
struct Sheet {
    columns: Vec<Drawn>,
    /// Headings of columns for which there is no room.
    without_room: Vec<&'static str>,
    only_library: Option<String>,
}

impl Sheet {
    fn new(table: &Table, look: &Look) -> Sheet {
        let only_library = look.width.and_then(|_| only_library(table));
        let is_shown = |&place: &usize| {
            let column = &table.columns[place];
            let is_heading = table.has_sections && column.kind != ColumnKind::Figure;
            is_shown(table, place) && !is_heading && !(column.key == "library" && only_library.is_some())
        };
        let mut places: Vec<usize> = (0..table.columns.len()).filter(is_shown).collect();
        places.sort_by_key(|&place| table.columns[place].seat);
        let mut columns: Vec<Drawn> = places.into_iter().map(|place| Drawn::new(table, place, look)).collect();
        let mut without_room = Vec::new();
        if let Some(width) = look.width {
            let drafts: Vec<Draft> = columns.iter().map(|column| column.draft(table)).collect();
            let kept: HashMap<usize, usize> = layout::fit(&drafts, width).into_iter().collect();
            let mut numbers = 0..;
            columns.retain_mut(|column| match numbers.next().and_then(|number| kept.get(&number)) {
                Some(&width) => {
                    column.width = width;
                    true
                }
                None => {
                    without_room.push(table.columns[column.place].title);
                    false
                }
            });
        }
        for column in columns.iter_mut().filter(|column| column.kind == ColumnKind::Name) {
            column.name(table, look);
        }
        let taken: usize = columns.iter().map(|column| column.width + GAP).sum();
        for column in &mut columns {
            column.draw_bars(table, look, look.width.map_or(PLAIN_BAR, |width| width.saturating_sub(taken)));
        }
        Sheet { columns, without_room, only_library }
    }

    fn write(&self, table: &Table, look: &Look, out: &mut dyn Write) -> io::Result<()> {
        let headings = self.columns.iter().map(|column| (column, column.heading.as_str(), Tone::Heading));
        if !table.has_sections {
            line(headings.clone(), look, out)?;
        }
        let mut section = None;
        for (number, row) in table.rows.iter().enumerate() {
            if table.has_sections {
                let name = self.section_name(table, row);
                if section.as_ref() != Some(&name) {
                    if section.is_some() {
                        writeln!(out)?;
                    }
                    let shown = look.width.filter(|_| !look.full_names).map(|width| names::short(&name, width));
                    writeln!(out, "{}", paint(shown.as_ref().unwrap_or(&name), Tone::Heading, look.colours))?;
                    line(headings.clone(), look, out)?;
                    section = Some(name);
                }
            }
            let cells = self.columns.iter().map(|column| {
                let cell = &column.cells[number];
                (column, cell.text.as_str(), cell.tone)
            });
            line(cells, look, out)?;
        }
        Ok(())
    }
}

impl Sheet {
    /// What the rows of a section have in common.
    fn section_name(&self, table: &Table, row: &[Datum]) -> String {
        let is_said = |column: &Column| {
            let is_shown = column.kind != ColumnKind::Figure && column.shown != Shown::Never;
            is_shown && !(column.key == "library" && self.only_library.is_some())
        };
        let labels = table.columns.iter().zip(row).filter(|(column, value)| is_said(column) && !value.is_zero());
        labels.map(|(_, value)| plain(value, None, false)).collect::<Vec<_>>().join("  ")
    }
}

/// Writes cells under each other, without spaces at the end.
fn line<'a>(
    cells: impl Iterator<Item = (&'a Drawn, &'a str, Tone)>,
    look: &Look,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (mut line, mut owed) = (String::new(), 0);
    for (column, text, tone) in cells {
        let padding = column.width.saturating_sub(text.width());
        let (before, behind) = if column.is_left { (0, padding) } else { (padding, 0) };
        if !text.is_empty() {
            line.push_str(&" ".repeat(owed + before));
            line.push_str(&paint(text, tone, look.colours));
            owed = behind + GAP;
        } else {
            owed += before + behind + GAP;
        }
    }
    writeln!(out, "{line}")
}

/// The library of all functions, where it is one.
fn only_library(table: &Table) -> Option<String> {
    let place = table.columns.iter().position(|column| column.key == "library" && column.kind == ColumnKind::Label)?;
    let mut libraries = table.rows.iter().map(|row| &row[place]);
    let Some(Datum::Name(first)) = libraries.next().filter(|_| is_shown(table, place)) else { return None };
    libraries.all(|other| matches!(other, Datum::Name(name) if name == first)).then(|| escape(first).into_owned())
}

fn is_shown(table: &Table, place: usize) -> bool {
    match table.columns[place].shown {
        Shown::Always => true,
        Shown::IfNotZero => table.rows.iter().any(|row| !row[place].is_zero()),
        Shown::Never => false,
    }
}

impl Drawn {
    fn new(table: &Table, place: usize, look: &Look) -> Drawn {
        let column = &table.columns[place];
        let values = || table.rows.iter().map(|row| &row[place]);
        let unit = values().any(|value| time_of(value).is_some()).then(|| unit(table, place));
        let is_part = values().any(|value| matches!(value, Datum::Share(_) | Datum::Change(_)));
        let heading = match unit {
            Some(unit) => format!("{} {}", column.heading, unit.name),
            None if is_part => format!("{} %", column.heading),
            None => column.heading.to_owned(),
        };
        let is_marked = values().any(|value| matches!(value, Datum::Traced(_)));
        let draw = |value: &Datum| {
            let mut text = plain(value, unit, look.width.is_some());
            if is_marked {
                text.push(if matches!(value, Datum::Traced(_)) { '!' } else { ' ' });
            }
            TextCell { text, tone: tone(value) }
        };
        let cells: Vec<TextCell> = values().map(draw).collect();
        let is_left = column.kind == ColumnKind::Name
            || values().any(|value| matches!(value, Datum::Name(_) | Datum::Verdict { .. } | Datum::Bar(_)));
        let mut drawn = Drawn {
            place,
            heading: escape(&heading).into_owned(),
            cells,
            kind: column.kind,
            is_left,
            is_marked,
            width: 0,
        };
        if let Some(width) = look.width.filter(|_| column.has_bar) {
            let bar = if width < WIDE { NARROW_BAR } else { WIDE_BAR };
            drawn.put_bars_before(table, bar, look);
        }
        if look.width.is_some() && !look.full_names && column.kind == ColumnKind::Name {
            drawn.shorten();
        }
        drawn.width = drawn.natural_width();
        drawn
    }

    fn natural_width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.text.width()).max().unwrap_or(0);
        cells.max(self.heading.width())
    }

    fn draft(&self, table: &Table) -> Draft {
        let width_of = |(cell, row): (&TextCell, &Vec<Datum>)| match row[self.place] {
            Datum::Nested(depth, _) => cell.text.width() + 2 * depth,
            _ => cell.text.width(),
        };
        let mut widths: Vec<usize> = self.cells.iter().zip(&table.rows).map(width_of).collect();
        widths.sort_unstable();
        let heading = self.heading.width();
        let width = widths.last().copied().unwrap_or(0).max(heading);
        let typical = widths.get(widths.len() * 3 / 4).copied().unwrap_or(0).max(heading);
        let column = &table.columns[self.place];
        Draft { width, typical, kind: self.kind, rank: column.rank, is_paired: column.is_paired }
    }

    /// Leaves arguments out where names differ without them.
    fn shorten(&mut self) {
        let short: Vec<String> = self.cells.iter().map(|cell| names::without_arguments(&cell.text)).collect();
        let mut meanings: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        for (short, cell) in short.iter().zip(&self.cells) {
            meanings.entry(short).or_default().insert(&cell.text);
        }
        let is_clear: Vec<bool> = short.iter().map(|short| meanings[short.as_str()].len() == 1).collect();
        for ((cell, short), is_clear) in self.cells.iter_mut().zip(short).zip(is_clear) {
            if is_clear {
                cell.text = short;
            }
        }
    }

    /// Makes names as long as there is room, and puts those of a tree below each other.
    fn name(&mut self, table: &Table, look: &Look) {
        let limit = look.width.filter(|_| !look.full_names).map(|_| self.width);
        let depth_of = |row: &Vec<Datum>| match row[self.place] {
            Datum::Nested(depth, _) => depth,
            _ => 0,
        };
        let widest = |step: usize| {
            let rows = self.cells.iter().zip(&table.rows);
            rows.map(|(cell, row)| cell.text.width() + step * depth_of(row)).max().unwrap_or(0)
        };
        let (step, indents) = match limit {
            Some(limit) if widest(2) > limit && widest(1) > limit => (1, limit.saturating_sub(NESTED_NAME)),
            Some(limit) if widest(2) > limit => (1, usize::MAX),
            _ => (2, usize::MAX),
        };
        for (cell, row) in self.cells.iter_mut().zip(&table.rows) {
            let depth = depth_of(row);
            let indent = match step * depth <= indents {
                true => " ".repeat(step * depth),
                // Deeper than there is room: the number of levels stands for them.
                false => format!("{:<indents$}", format!("{depth}> "), indents = indents.min(8)),
            };
            let name = match limit {
                Some(limit) => names::fit(&cell.text, limit.saturating_sub(indent.width())),
                None => std::mem::take(&mut cell.text),
            };
            cell.text = indent + &if look.is_ascii { name.replace('…', "~") } else { name };
        }
        self.width = self.natural_width();
    }

    /// Puts a bar before each share.
    fn put_bars_before(&mut self, table: &Table, cells: usize, look: &Look) {
        let number = self.cells.iter().map(|cell| cell.text.width()).max().unwrap_or(0);
        for (cell, row) in self.cells.iter_mut().zip(&table.rows) {
            let Datum::Share(share) = row[self.place] else { continue };
            let bar = bar(share, cells, look);
            cell.text = format!("{bar}{}{:>number$}", " ".repeat(cells - bar.width() + 1), cell.text);
        }
    }

    /// Makes the bars of a distribution as long as there is room.
    fn draw_bars(&mut self, table: &Table, look: &Look, room: usize) {
        for (cell, row) in self.cells.iter_mut().zip(&table.rows) {
            if let Datum::Bar(part) = row[self.place] {
                cell.text = bar(part, room.min(LONGEST_BAR), look);
            }
        }
    }
}

/// The unit of a column, and of all that are shown and have the same.
fn unit(table: &Table, place: usize) -> Unit {
    let meant = table.columns[place].unit;
    let is_alike =
        |&of: &usize| of == place || meant.is_some() && table.columns[of].unit == meant && is_shown(table, of);
    let places: Vec<usize> = (0..table.columns.len()).filter(is_alike).collect();
    Unit::of(table.rows.iter().flat_map(|row| places.iter().filter_map(|&place| time_of(&row[place]))))
}

fn time_of(value: &Datum) -> Option<u64> {
    match value {
        Datum::Time(time) | Datum::Traced(time) | Datum::AtMost(time) => Some(*time),
        _ => None,
    }
}

/// A bar for a part of the longest, 0 to 1.
fn bar(part: f64, cells: usize, look: &Look) -> String {
    let part = part.clamp(0.0, 1.0);
    if look.is_ascii || look.width.is_none() {
        return "#".repeat((part * cells as f64).round() as usize);
    }
    let eighths = (part * cells as f64 * 8.0).round() as usize;
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + rest
}

fn tone(value: &Datum) -> Tone {
    match value {
        Datum::Traced(_) => Tone::Warning,
        Datum::Share(_) | Datum::Bar(_) => Tone::Bar,
        Datum::Absent => Tone::Dim,
        Datum::Verdict { tone, .. } => *tone,
        _ => Tone::Plain,
    }
}

/// A value without its unit; of a nested name without its place.
fn plain(value: &Datum, unit: Option<Unit>, is_grouped: bool) -> String {
    let time = |time: u64| unit.map_or_else(|| time.to_string(), |unit| unit.show(time, is_grouped));
    match value {
        Datum::Name(name) | Datum::Nested(_, name) => escape(name).into_owned(),
        Datum::Verdict { text, .. } => text.clone(),
        Datum::Count(count) if is_grouped => grouped(*count),
        Datum::Count(count) => count.to_string(),
        Datum::AtLeast(count) => format!(">={}", plain(&Datum::Count(*count), unit, is_grouped)),
        Datum::Id(id) => id.to_string(),
        Datum::Recorded(RecordedValue::Integer(number)) => number.to_string(),
        Datum::Recorded(RecordedValue::Address(number)) => format!("{number:#x}"),
        Datum::Recorded(RecordedValue::Float(bits)) => format!("{:?}", f64::from_bits(*bits)),
        Datum::Recorded(RecordedValue::Text(text)) => {
            format!("\"{}\"", escape(&text.replace('\\', "\\\\").replace('"', "\\\"")))
        }
        Datum::Time(ns) | Datum::Traced(ns) => time(*ns),
        Datum::AtMost(bound) => format!("<={}", time(*bound)),
        Datum::Bound(bound) => units::round(*bound),
        Datum::Share(share) => format!("{:.1}", share * 100.0),
        Datum::Bar(_) => String::new(),
        Datum::Change(part) => format!("{:+.1}", part * 100.0),
        Datum::Ratio(ratio) if ratio.abs() < 10_000.0 => format!("{ratio:.3}"),
        Datum::Ratio(ratio) => plain(&Datum::Count(ratio.round() as u64), unit, is_grouped),
        Datum::Rate(rate) if *rate < 100.0 => format!("{rate:.1}"),
        Datum::Rate(rate) => plain(&Datum::Count(rate.round() as u64), unit, is_grouped),
        Datum::Absent => "-".to_owned(),
    }
}

/// Spaces in front of the further lines of a note.
const CONTINUED: usize = 2;

/// A text on lines of so many cells, broken between words, the further ones indented.
pub(super) fn wrapped(text: &str, width: Option<usize>, indent: usize) -> Vec<String> {
    let Some(width) = width else { return vec![text.to_owned()] };
    let (mut lines, mut line) = (Vec::new(), String::new());
    // A number and its unit stay together.
    let text = text.replace(" %", "\u{a0}%");
    for word in text.split(' ').map(|word| word.replace('\u{a0}', " ")) {
        if line.is_empty() {
            line.push_str(&word);
        } else if line.width() + 1 + word.width() <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent) + &word));
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests;
