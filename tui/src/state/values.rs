//! Arguments and results of calls: of each value of a function how often it was what, and the calls worth to be named
//! as lines of code.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use rtrace_model::{LocationId, RegionId, ValueBatch, ValueColumn, ValueRef, code, value_step};

/// Values of a column that are told apart, and of all columns together.
const MOST_OF_COLUMN: usize = 128;
const MOST_VALUES: usize = 1 << 16;

/// Bytes of a text that is told apart from others.
const LONGEST: usize = 256;

/// The values of all functions that have some.
#[derive(Clone, Debug)]
pub struct Recorded {
    functions: BTreeMap<RegionId, OfFunction>,
    /// Further values that can be told apart.
    room: usize,
}

/// The values of a function.
#[derive(Clone, Debug, Default)]
struct OfFunction {
    columns: Vec<OfColumn>,
    /// Calls as lines of code.
    calls: Vec<((LocationId, u64), Arc<str>)>,
}

/// What is known of the values of a column.
#[derive(Clone, Debug)]
pub struct OfColumn {
    /// What they are.
    pub column: ValueColumn,
    /// Calls of which the value could not be read, or does not exist.
    pub unknown: u64,
    /// Calls with values that are not told apart.
    pub more: u64,
    known: u64,
    last: Option<Kept>,
    counts: BTreeMap<Kept, u64>,
    steps: BTreeMap<i32, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Integer(i64),
    /// The bits of it.
    Float(u64),
    Text(Box<str>),
}

impl Kept {
    /// The beginning of a text that is too long.
    fn of(value: ValueRef<'_>) -> Kept {
        match value {
            ValueRef::Integer(value) => Kept::Integer(value),
            ValueRef::Float(value) => Kept::Float(value.to_bits()),
            ValueRef::Text(text) => {
                let end = (0..=LONGEST.min(text.len())).rfind(|&end| text.is_char_boundary(end));
                Kept::Text(text[..end.unwrap_or(0)].into())
            }
        }
    }

    fn value(&self) -> ValueRef<'_> {
        match self {
            Kept::Integer(value) => ValueRef::Integer(*value),
            Kept::Float(bits) => ValueRef::Float(f64::from_bits(*bits)),
            Kept::Text(text) => ValueRef::Text(text),
        }
    }
}

impl Default for Recorded {
    fn default() -> Recorded {
        Recorded { functions: BTreeMap::new(), room: MOST_VALUES }
    }
}

impl Recorded {
    /// A value that the calls of a function have.
    pub fn define(&mut self, column: &ValueColumn) {
        let columns = &mut self.functions.entry(column.region).or_default().columns;
        match columns.iter_mut().find(|of| of.column.position == column.position) {
            Some(known) => known.column.clone_from(column),
            None => columns.push(OfColumn::new(column.clone())),
        }
        columns.sort_by_key(|of| of.column.position);
    }

    /// Takes in values of calls; those of the calls that are `worth_naming` as a line of code, too.
    pub fn add(&mut self, batch: &ValueBatch, name: &str, worth_naming: &[(LocationId, u64)]) {
        let Some(function) = self.functions.get_mut(&batch.region) else { return };
        for (place, values) in batch.columns.iter().enumerate() {
            let Some(of) = function.columns.get_mut(place) else { continue };
            (0..batch.calls.len()).for_each(|row| of.add(values.get(row), &mut self.room));
        }
        let named = batch.calls.iter().enumerate().filter(|(_, call)| worth_naming.contains(call));
        for (row, &call) in named {
            let values = function.columns.iter().zip(&batch.columns);
            let shown = values.map(|(of, values)| (&of.column, of.shown(values.get(row))));
            function.calls.push((call, code(name, shown).into()));
        }
        function.calls.retain(|(call, _)| worth_naming.contains(call));
    }

    /// The values of a function; nothing where it has none.
    pub fn of(&self, region: RegionId) -> &[OfColumn] {
        self.functions.get(&region).map_or(&[], |of| of.columns.as_slice())
    }

    /// A call as a line of code, if it is among those that are kept.
    pub fn call(&self, region: RegionId, call: (LocationId, u64)) -> Option<&str> {
        let calls = &self.functions.get(&region)?.calls;
        calls.iter().find(|(of, _)| *of == call).map(|(_, code)| &**code)
    }
}

impl OfColumn {
    fn new(column: ValueColumn) -> OfColumn {
        let (counts, steps) = (BTreeMap::new(), BTreeMap::new());
        OfColumn { column, unknown: 0, more: 0, known: 0, last: None, counts, steps }
    }

    fn add(&mut self, value: Option<ValueRef<'_>>, room: &mut usize) {
        let Some(value) = value else {
            self.unknown += 1;
            self.last = None;
            return;
        };
        self.known += 1;
        if let (ValueRef::Integer(value), false) = (value, self.column.is_address()) {
            *self.steps.entry(value_step(value)).or_default() += 1;
        }
        let kept = self.last.insert(Kept::of(value));
        let is_cut = matches!(value, ValueRef::Text(text) if text.len() > LONGEST);
        if let (Some(count), false) = (self.counts.get_mut(kept), is_cut) {
            *count += 1;
        } else if self.counts.len() < MOST_OF_COLUMN && *room > 0 && !is_cut {
            *room -= 1;
            self.counts.insert(kept.clone(), 1);
        } else {
            self.more += 1;
        }
    }

    fn shown(&self, value: Option<ValueRef<'_>>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| self.column.shown(value))
    }

    /// Calls of which it is known whether there is a value.
    pub fn calls(&self) -> u64 {
        self.known + self.unknown
    }

    /// The value of the last call; `-` where that is not known.
    pub fn last(&self) -> String {
        self.shown(self.last.as_ref().map(Kept::value))
    }

    /// The values with most calls.
    pub fn most_frequent(&self, most: usize) -> Vec<(String, u64)> {
        let mut counts: Vec<(&Kept, u64)> = self.counts.iter().map(|(value, &calls)| (value, calls)).collect();
        counts.sort_by_key(|&(_, calls)| Reverse(calls));
        counts.truncate(most);
        counts.into_iter().map(|(value, calls)| (self.shown(Some(value.value())), calls)).collect()
    }

    /// Calls by step of powers of two, from the first step with a call to the last, of integers that are no addresses.
    pub fn steps(&self) -> Option<(i32, Vec<u64>)> {
        let (first, last) = (*self.steps.first_key_value()?.0, *self.steps.last_key_value()?.0);
        Some((first, (first..=last).map(|step| self.steps.get(&step).copied().unwrap_or(0)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use rtrace_model::{ValueType, Values};

    use super::*;

    fn column(position: u32, name: &str, value_type: ValueType, c_type: &str, at_exit: bool) -> ValueColumn {
        let (name, c_type) = (name.to_owned(), c_type.to_owned());
        let (unit, role, source) = (None, None, String::new());
        ValueColumn { region: RegionId(7), position, name, value_type, c_type, unit, role, at_exit, source }
    }

    fn recorded() -> Recorded {
        let mut recorded = Recorded::default();
        recorded.define(&column(1, "result", ValueType::Integer, "long", true));
        recorded.define(&column(0, "path", ValueType::Text, "char *", false));
        recorded
    }

    fn batch(calls: std::ops::Range<u64>, value: impl Fn(u64) -> (Option<String>, Option<i64>)) -> ValueBatch {
        let (texts, results) = calls.clone().map(value).unzip();
        ValueBatch {
            region: RegionId(7),
            calls: calls.map(|call| (LocationId(1), call)).collect(),
            columns: vec![Values::Text(texts), Values::Integer(results)],
        }
    }

    #[test]
    fn values_are_counted_and_what_is_not_told_apart_is_said() {
        let mut recorded = recorded();
        let text = |call: u64| {
            if call < 3_000 { "a".to_owned() } else { "b".repeat(usize::try_from(call % 500).unwrap_or(0)) }
        };
        let result = |call: u64| if call.is_multiple_of(2) { 0 } else { -5 };
        let value = |call: u64| (Some(text(call)), (!call.is_multiple_of(10)).then_some(result(call)));
        recorded.add(&batch(0..4_000, value), "open", &[(LocationId(1), 13), (LocationId(1), 20)]);
        let [path, result] = recorded.of(RegionId(7)) else { panic!("there are two") };
        assert_eq!(path.most_frequent(1), [("\"a\"".to_owned(), 3_000)]);
        assert_eq!((path.counts.len(), path.more, path.unknown), (MOST_OF_COLUMN, 1_000 - 2 * 127, 0));
        assert_eq!((result.unknown, result.calls(), result.last()), (400, 4_000, "-5".to_owned()));
        assert_eq!(result.most_frequent(9), [("-5".to_owned(), 2_000), ("0".to_owned(), 1_600)]);
        assert_eq!(result.steps(), Some((-3, vec![2_000, 0, 0, 1_600])));
        let code = |call| recorded.call(RegionId(7), (LocationId(1), call));
        assert_eq!(code(13), Some("open(path=\"a\") = -5"));
        assert_eq!((code(20), code(14)), (Some("open(path=\"a\") = -"), None));
    }

    #[test]
    fn memory_is_bounded() {
        let mut recorded = recorded();
        for part in 0..100 {
            recorded.add(
                &batch(part * 1_000..(part + 1) * 1_000, |call| (Some(call.to_string()), Some(call as i64))),
                "open",
                &[],
            );
        }
        assert_eq!(recorded.room, MOST_VALUES - 2 * MOST_OF_COLUMN);
        recorded.room = 0;
        recorded.add(&batch(0..9, |_| (Some("new".to_owned()), None)), "open", &[]);
        let path = &recorded.of(RegionId(7))[0];
        assert_eq!((path.counts.len() as u64 + path.more, path.last()), (100_009, "\"new\"".to_owned()));
    }
}
