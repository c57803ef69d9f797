//! A report's rows before they are given a format.

/// A column of a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its name in CSV and JSON; times end in `_ns`.
    pub(super) key: &'static str,
    /// Its heading in the table for people.
    pub(super) title: &'static str,
    pub(super) shown: Shown,
}

impl Column {
    pub(super) const fn new(key: &'static str, title: &'static str) -> Column {
        Column { key, title, shown: Shown::Always }
    }

    /// A column whose name is known only now. A report is made once, so its columns may as well stay.
    pub(super) fn named(key: String, title: String) -> Column {
        Column::new(key.leak(), title.leak())
    }

    pub(super) const fn shown(self, shown: Shown) -> Column {
        Column { shown, ..self }
    }
}

/// Where a column appears in the table for people; CSV and JSON have all.
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
    /// A part of a whole, 0 to 1.
    Share(f64),
    /// Some other number.
    Ratio(f64),
    Absent,
}

impl Value {
    pub(super) fn is_zero(&self) -> bool {
        matches!(self, Value::Count(0) | Value::Time(0) | Value::Absent)
    }

    /// What puts labels in order: the name, then the number.
    pub(super) fn sortable(&self) -> (String, u64) {
        match self {
            Value::Name(name) | Value::Nested(_, name) => (name.clone(), 0),
            Value::Count(number) | Value::Time(number) => (String::new(), *number),
            Value::Share(_) | Value::Ratio(_) | Value::Absent => (String::new(), 0),
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
    /// Cuts the table to the first rows; how many are left out in all.
    pub(super) fn limit(&mut self, limit: Option<usize>) -> usize {
        let keep = limit.unwrap_or(usize::MAX);
        self.left_out += self.rows.len().saturating_sub(keep);
        self.rows.truncate(keep);
        self.left_out
    }
}
