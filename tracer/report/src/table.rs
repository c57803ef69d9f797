//! A report's rows before they are given a format.

use super::Min;
use super::people::paint::Tone;

/// A column of a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its name in CSV and JSON; times end in `_ns`.
    pub(super) key: &'static str,
    /// What people choose it by.
    pub(super) title: &'static str,
    /// Its heading in the table for people, without the unit.
    pub(super) heading: &'static str,
    /// People see columns in the order of their seats, and those of one seat in that of CSV.
    pub(super) seat: u8,
    pub(super) shown: Shown,
    pub(super) kind: ColumnKind,
    /// Where there is no room for all columns, those of the highest rank go first.
    pub(super) rank: u8,
    /// Columns of the same word have one unit.
    pub(super) unit: Option<&'static str>,
    /// Whether it goes together with the other of its rank.
    pub(super) is_paired: bool,
    /// Whether a bar stands beside its shares.
    pub(super) has_bar: bool,
    /// Whether CSV and JSON have it.
    pub(super) is_data: bool,
}

/// The seat of a figure that has no better one, and that of what a row is.
const SEAT: u8 = 50;
const LAST_SEAT: u8 = u8::MAX;

/// The unit of sums of times.
pub(super) const SUM: &str = "sum";

/// What a column is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// A figure, among which people choose.
    Figure,
    /// Something that belongs to what a row is.
    Label,
    /// What a row is: it stays, however narrow the terminal, and takes the room that is left.
    Name,
}

impl Column {
    pub(super) const fn new(key: &'static str, title: &'static str) -> Column {
        Column {
            key,
            title,
            heading: title,
            seat: SEAT,
            shown: Shown::Always,
            kind: ColumnKind::Figure,
            rank: 0,
            unit: None,
            is_paired: false,
            has_bar: false,
            is_data: true,
        }
    }

    /// A column that says more of what a row is.
    pub(super) const fn label(key: &'static str, title: &'static str) -> Column {
        Column { kind: ColumnKind::Label, seat: LAST_SEAT, ..Column::new(key, title) }
    }

    /// A column that says what a row is.
    pub(super) const fn name(key: &'static str, title: &'static str) -> Column {
        Column { kind: ColumnKind::Name, seat: LAST_SEAT, ..Column::new(key, title) }
    }

    pub(super) const fn only_for_people(self) -> Column {
        Column { is_data: false, ..self }
    }

    /// A column whose name is known only now. A report is made once, so its columns may as well stay.
    pub(super) fn named(key: String, title: String) -> Column {
        Column::new(key.leak(), title.leak())
    }

    pub(super) const fn shown(self, shown: Shown) -> Column {
        Column { shown, ..self }
    }

    pub(super) const fn heading(self, heading: &'static str) -> Column {
        Column { heading, ..self }
    }

    pub(super) const fn seat(self, seat: u8) -> Column {
        Column { seat, ..self }
    }

    pub(super) const fn rank(self, rank: u8) -> Column {
        Column { rank, ..self }
    }

    /// A column of times that are compared with those of others.
    pub(super) const fn unit(self, unit: &'static str) -> Column {
        Column { unit: Some(unit), ..self }
    }

    pub(super) const fn paired(self) -> Column {
        Column { is_paired: true, ..self }
    }

    pub(super) const fn with_bar(self) -> Column {
        Column { has_bar: true, ..self }
    }
}

/// Where a column appears in the table for people; CSV and JSON have all that are data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Always,
    IfNotZero,
    Never,
}

#[derive(Clone, Debug)]
pub(super) enum Datum {
    /// A name, which may come from a traced program.
    Name(String),
    /// A name in a tree, so many levels below its root.
    Nested(usize, String),
    Count(u64),
    /// A number that is known to be no smaller.
    AtLeast(u64),
    /// Nanoseconds.
    Time(u64),
    /// Nanoseconds, much of which tracing itself took.
    Traced(u64),
    /// A bound of a step of a histogram, in nanoseconds.
    Bound(u64),
    /// An upper bound, in nanoseconds, of a time that is not known better.
    AtMost(u64),
    /// A part of a whole, 0 to 1.
    Share(f64),
    /// A part of the longest bar, 0 to 1.
    Bar(f64),
    /// A difference as a part of what was, with its sign.
    Change(f64),
    /// Some other number.
    Ratio(f64),
    /// So many per second.
    Rate(f64),
    /// The number of a process, thread or rank.
    Id(u64),
    /// A value of a call.
    Recorded(RecordedValue),
    /// What rtrace thinks of the row.
    Verdict {
        text: String,
        tone: Tone,
    },
    Absent,
}

/// A value of a call, or a bound of such values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum RecordedValue {
    Integer(i128),
    Address(i64),
    /// The bits of a number.
    Float(u64),
    /// A text, which comes from a traced program.
    Text(String),
}

impl Datum {
    pub(super) fn is_zero(&self) -> bool {
        matches!(self, Datum::Count(0) | Datum::Time(0) | Datum::AtMost(0) | Datum::Absent)
            || matches!(self, Datum::Ratio(0.0) | Datum::Rate(0.0))
            || matches!(self, Datum::Verdict { text, .. } if text.is_empty())
    }

    /// What puts rows in order; less than all others where it is not known.
    fn figure(&self) -> f64 {
        match self {
            Datum::Count(number) | Datum::AtLeast(number) | Datum::Id(number) => *number as f64,
            Datum::Time(time) | Datum::Traced(time) | Datum::Bound(time) | Datum::AtMost(time) => *time as f64,
            Datum::Share(figure) | Datum::Bar(figure) | Datum::Change(figure) => *figure,
            Datum::Ratio(figure) | Datum::Rate(figure) => *figure,
            Datum::Name(_) | Datum::Nested(..) | Datum::Recorded(_) | Datum::Verdict { .. } | Datum::Absent => {
                f64::NEG_INFINITY
            }
        }
    }

    /// What puts labels in order: the name, then the number.
    pub(super) fn sortable(&self) -> (String, u64) {
        match self {
            Datum::Name(name) | Datum::Nested(_, name) => (name.clone(), 0),
            Datum::Count(number) | Datum::AtLeast(number) | Datum::Id(number) => (String::new(), *number),
            // In the order of numbers: the sign decides first.
            Datum::Recorded(RecordedValue::Integer(number)) => (String::new(), (*number as u64) ^ 1 << 63),
            Datum::Recorded(RecordedValue::Address(number)) => (String::new(), number.cast_unsigned()),
            Datum::Recorded(RecordedValue::Float(bits)) if bits >> 63 == 1 => (String::new(), !bits),
            Datum::Recorded(RecordedValue::Float(bits)) => (String::new(), bits | 1 << 63),
            Datum::Recorded(RecordedValue::Text(text)) => (text.clone(), 0),
            _ => (String::new(), 0),
        }
    }
}

impl From<Option<u64>> for Datum {
    /// A time that may be absent.
    fn from(time: Option<u64>) -> Datum {
        time.map_or(Datum::Absent, Datum::Time)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Datum>>,
    /// What each row is to those who count: as many as rows, until some are left out.
    pub(super) marks: Vec<u32>,
    /// Whether rows of one name stand together, below that name.
    pub(super) has_sections: bool,
    /// Rows that were left out before they came here.
    pub(super) left_out: usize,
}

/// The headings by which figures are chosen, each once.
pub(super) fn titles<'a>(columns: impl IntoIterator<Item = &'a Column>) -> Vec<&'static str> {
    let mut titles = Vec::new();
    for column in columns.into_iter().filter(|column| column.kind == ColumnKind::Figure) {
        if !titles.contains(&column.title) {
            titles.push(column.title);
        }
    }
    titles
}

impl Table {
    /// Adds figures behind the others; `values` are those of a row by its mark.
    pub(super) fn insert(&mut self, columns: &[Column], values: impl Fn(u32) -> Vec<Datum>) {
        let last = self.columns.iter().rposition(|column| column.kind == ColumnKind::Figure);
        let place = last.map_or(self.columns.len(), |place| place + 1);
        for (row, &mark) in self.rows.iter_mut().zip(&self.marks) {
            row.splice(place..place, values(mark));
        }
        self.columns.splice(place..place, columns.iter().copied());
    }

    /// Puts a column where people see it beside those of that seat.
    pub(super) fn seat(&mut self, key: &str, seat: u8) {
        self.columns.iter_mut().filter(|column| column.key == key).for_each(|column| column.seat = seat);
    }

    /// Keeps a figure of that title however little room there is: the rows are in its order.
    pub(super) fn keep(&mut self, title: &str) {
        self.columns.iter_mut().filter(|column| column.title == title).for_each(|column| column.rank = 0);
    }

    /// Keeps of the figures those of these titles, in this order.
    ///
    /// # Errors
    /// The title that no column has.
    pub(super) fn choose<'a>(&mut self, titles: &'a [String]) -> Result<(), &'a str> {
        let mut kept: Vec<usize> = Vec::new();
        for title in titles {
            let is_meant = |column: &Column| column.kind == ColumnKind::Figure && column.title == title;
            kept.push(self.columns.iter().position(is_meant).ok_or(title.as_str())?);
        }
        kept.extend((0..self.columns.len()).filter(|&place| self.columns[place].kind != ColumnKind::Figure));
        let chosen = |place: &usize| {
            let column = self.columns[*place];
            if column.kind == ColumnKind::Figure { column.shown(Shown::Always).seat(SEAT) } else { column }
        };
        let columns = kept.iter().map(chosen).collect();
        for row in &mut self.rows {
            *row = kept.iter().map(|&place| row[place].clone()).collect();
        }
        self.columns = columns;
        Ok(())
    }

    /// The headings by which figures are chosen.
    pub(super) fn titles(&self) -> String {
        titles(&self.columns).join(", ")
    }

    /// Puts the rows with the largest figure of that title first; rows of one figure stay in their order.
    ///
    /// # Errors
    /// There is none; with the titles that there are.
    pub(super) fn sort_by(&mut self, title: &str) -> Result<(), String> {
        let is_meant = |column: &Column| column.kind == ColumnKind::Figure && column.title == title;
        let place = self.columns.iter().position(is_meant).ok_or_else(|| self.titles())?;
        let mut rows: Vec<(Vec<Datum>, Option<u32>)> = std::mem::take(&mut self.rows)
            .into_iter()
            .zip(self.marks.iter().copied().map(Some).chain(std::iter::repeat(None)))
            .collect();
        rows.sort_by(|(a, _), (b, _)| b[place].figure().total_cmp(&a[place].figure()));
        self.marks = rows.iter().filter_map(|(_, mark)| *mark).collect();
        self.rows = rows.into_iter().map(|(row, _)| row).collect();
        Ok(())
    }

    /// Takes away figures of these keys.
    pub(super) fn forget(&mut self, keys: &[&str]) {
        let is_kept: Vec<bool> = self.columns.iter().map(|column| !keys.contains(&column.key)).collect();
        let mut kept = is_kept.iter();
        self.columns.retain(|_| kept.next() == Some(&true));
        for row in &mut self.rows {
            let mut kept = is_kept.iter();
            row.retain(|_| kept.next() == Some(&true));
        }
    }

    /// Shows people a column, or does not.
    pub(super) fn show(&mut self, key: &str, shown: Shown) {
        self.columns.iter_mut().filter(|column| column.key == key).for_each(|column| column.shown = shown);
    }

    /// Leaves out the rows whose time with callees is less, or not known.
    pub(super) fn at_least(&mut self, min: Min) {
        let key = match min {
            Min::Time(_) => "inclusive_ns",
            Min::Share(_) => "share",
        };
        let Some(place) = self.columns.iter().position(|column| column.key == key) else { return };
        let before = self.rows.len();
        self.rows.retain(|row| match (&row[place], min) {
            (Datum::Time(time) | Datum::Traced(time), Min::Time(min)) => *time >= min,
            (Datum::Share(share), Min::Share(min)) => *share >= min,
            (Datum::Absent, _) => false,
            _ => true,
        });
        self.left_out += before - self.rows.len();
    }

    /// Cuts the table to the first rows; how many are left out in all.
    pub(super) fn limit(&mut self, limit: Option<usize>) -> usize {
        let keep = limit.unwrap_or(usize::MAX);
        self.left_out += self.rows.len().saturating_sub(keep);
        self.rows.truncate(keep);
        self.left_out
    }
}
