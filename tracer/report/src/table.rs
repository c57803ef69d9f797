//! A report's rows before they are given a format.

use super::Min;

/// A column of a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its name in CSV and JSON; times end in `_ns`.
    pub(super) key: &'static str,
    /// Its heading in the table for people.
    pub(super) title: &'static str,
    pub(super) shown: Shown,
    /// Whether it says what a row is; the others are figures, among which people choose.
    is_label: bool,
    /// Whether CSV and JSON have it.
    pub(super) is_data: bool,
}

impl Column {
    pub(super) const fn new(key: &'static str, title: &'static str) -> Column {
        Column { key, title, shown: Shown::Always, is_label: false, is_data: true }
    }

    /// A column that says what a row is.
    pub(super) const fn label(key: &'static str, title: &'static str) -> Column {
        Column { is_label: true, ..Column::new(key, title) }
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
}

/// Where a column appears in the table for people; CSV and JSON have all that are data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Always,
    IfNotZero,
    Never,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A name, which may come from a traced program.
    Name(String),
    /// A name in a tree, so many levels below its root.
    Nested(usize, String),
    Count(u64),
    /// Nanoseconds.
    Time(u64),
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
    Absent,
}

impl Value {
    pub(super) fn is_zero(&self) -> bool {
        matches!(self, Value::Count(0) | Value::Time(0) | Value::AtMost(0) | Value::Absent)
    }

    /// What puts labels in order: the name, then the number.
    pub(super) fn sortable(&self) -> (String, u64) {
        match self {
            Value::Name(name) | Value::Nested(_, name) => (name.clone(), 0),
            Value::Count(number) | Value::Time(number) | Value::AtMost(number) => (String::new(), *number),
            Value::Share(_) | Value::Bar(_) | Value::Change(_) | Value::Ratio(_) | Value::Absent => (String::new(), 0),
        }
    }
}

impl From<Option<u64>> for Value {
    /// A time that may be absent.
    fn from(time: Option<u64>) -> Value {
        time.map_or(Value::Absent, Value::Time)
    }
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Value>>,
    /// Rows that were left out before they came here.
    pub(super) left_out: usize,
}

impl Table {
    /// Keeps of the figures those of these titles, in this order.
    ///
    /// # Errors
    /// The title that no column has.
    pub(super) fn choose<'a>(&mut self, titles: &'a [String]) -> Result<(), &'a str> {
        let mut kept: Vec<usize> = Vec::new();
        for title in titles {
            let is_meant = |column: &Column| !column.is_label && column.title == title;
            kept.push(self.columns.iter().position(is_meant).ok_or(title.as_str())?);
        }
        kept.extend((0..self.columns.len()).filter(|&place| self.columns[place].is_label));
        let chosen = |place: &usize| {
            let column = self.columns[*place];
            if column.is_label { column } else { column.shown(Shown::Always) }
        };
        let columns = kept.iter().map(chosen).collect();
        for row in &mut self.rows {
            *row = kept.iter().map(|&place| row[place].clone()).collect();
        }
        self.columns = columns;
        Ok(())
    }

    /// Shows people a column that is in CSV and JSON alone.
    pub(super) fn show(&mut self, key: &str) {
        self.columns.iter_mut().filter(|column| column.key == key).for_each(|column| column.shown = Shown::Always);
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
            (Value::Time(time), Min::Time(min)) => *time >= min,
            (Value::Share(share), Min::Share(min)) => *share >= min,
            (Value::Absent, _) => false,
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
