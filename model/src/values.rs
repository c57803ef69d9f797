//! Values of calls: arguments, results, and what they point to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{LocationId, RegionId, escape, words};

words! {
    /// What the values of a column are.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    ValueType {
        /// Integers of 64 bits, also truth values and addresses. Unsigned ones above 2⁶³ look negative.
        Integer = "integer",
        /// Numbers with a fraction.
        Float = "float",
        /// Text, cut where it is longer than was asked for. What is no UTF-8 is replaced.
        Text = "text",
    }
}

/// A value that the calls of a region have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueColumn {
    /// The region.
    pub region: RegionId,
    /// Its place among the columns of the region.
    pub position: u32,
    /// Its name, unique in its region.
    pub name: String,
    /// What it is.
    pub value_type: ValueType,
    /// The type as C or the debug information says it.
    pub c_type: String,
    /// Its unit, such as `B`.
    pub unit: Option<String>,
    /// What it means to whoever does not know the function, such as `bytes`.
    pub role: Option<String>,
    /// Whether it is read when the function returns; else when it is entered.
    pub at_exit: bool,
    /// Who says that the function has it.
    pub source: String,
}

impl ValueColumn {
    /// Whether its integers are addresses, which people read in base 16.
    pub fn is_address(&self) -> bool {
        let mut c_type = self.c_type.trim_end();
        // A pointer that does not change, as `this` of C++, is one, too.
        while let Some(rest) = ["const", "volatile", "restrict"].iter().find_map(|word| c_type.strip_suffix(word)) {
            c_type = rest.trim_end_matches('_').trim_end();
        }
        self.value_type == ValueType::Integer && (c_type.ends_with(['*', '&']) || c_type.contains("(*"))
    }

    /// Whether it is what the function returns.
    pub fn is_result(&self) -> bool {
        self.at_exit && self.name == "result"
    }

    /// One of its values as people read it in a line of code.
    pub fn shown(&self, value: ValueRef<'_>) -> String {
        match value {
            ValueRef::Integer(value) if self.is_address() => format!("{value:#x}"),
            ValueRef::Integer(value) => value.to_string(),
            ValueRef::Float(value) => format!("{value:?}"),
            ValueRef::Text(text) => {
                let end = text.char_indices().nth(LONGEST).map(|(end, _)| end);
                let quoted = text[..end.unwrap_or(text.len())].replace('\\', "\\\\").replace('"', "\\\"");
                format!("\"{}{}\"", escape(&quoted), if end.is_some() { "…" } else { "" })
            }
        }
    }
}

/// Characters of a text that are shown to people.
const LONGEST: usize = 64;

/// A value of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// See [`ValueType::Integer`].
    Integer(i64),
    /// See [`ValueType::Float`].
    Float(f64),
    /// See [`ValueType::Text`].
    Text(&'a str),
}

/// A call as a line of code: `read(fd=7, count=65536) = 4096`. What is only known when the function returns has a `>`.
/// The name is escaped already, or will be.
pub fn code<'a>(function: &str, values: impl Iterator<Item = (&'a ValueColumn, String)>) -> String {
    let (mut before, mut after, mut result) = (Vec::new(), Vec::new(), String::new());
    for (column, value) in values {
        match (column.at_exit, column.is_result()) {
            (_, true) => result.push_str(&format!(" = {value}")),
            (false, _) => before.push(format!("{}={value}", escape(&column.name))),
            (true, _) => after.push(format!(">{}={value}", escape(&column.name))),
        }
    }
    before.append(&mut after);
    format!("{function}({}){result}", before.join(", "))
}

/// The step that an integer is in where values are counted by powers of two: the number of its digits in base 2, with
/// its sign.
pub fn value_step(value: i64) -> i32 {
    let digits = (u64::BITS - value.unsigned_abs().leading_zeros()) as i32;
    if value < 0 { -digits } else { digits }
}

/// The least integer of a step, and that from which integers are above it.
pub fn value_bounds(step: i32) -> (i128, i128) {
    let power = |exponent: i32| 1_i128 << exponent;
    match step {
        0 => (0, 1),
        1.. => (power(step - 1), power(step)),
        _ => (1 - power(-step), 1 - power(-step - 1)),
    }
}

/// The values of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// See [`ValueType::Integer`].
    Integer(Vec<Option<i64>>),
    /// See [`ValueType::Float`].
    Float(Vec<Option<f64>>),
    /// See [`ValueType::Text`].
    Text(Vec<Option<String>>),
}

impl Values {
    /// No value yet.
    pub fn new(kind: ValueType) -> Values {
        match kind {
            ValueType::Integer => Values::Integer(Vec::new()),
            ValueType::Float => Values::Float(Vec::new()),
            ValueType::Text => Values::Text(Vec::new()),
        }
    }

    /// Adds values of the same type.
    ///
    /// # Panics
    /// They are of another type.
    pub fn extend(&mut self, other: &Values) {
        match (self, other) {
            (Values::Integer(values), Values::Integer(others)) => values.extend_from_slice(others),
            (Values::Float(values), Values::Float(others)) => values.extend_from_slice(others),
            (Values::Text(values), Values::Text(others)) => values.extend_from_slice(others),
            _ => panic!("a column has values of one type"),
        }
    }

    /// The value of a row; `None` where there is none.
    pub fn get(&self, row: usize) -> Option<ValueRef<'_>> {
        match self {
            Values::Integer(values) => Some(ValueRef::Integer((*values.get(row)?)?)),
            Values::Float(values) => Some(ValueRef::Float((*values.get(row)?)?)),
            Values::Text(values) => Some(ValueRef::Text(values.get(row)?.as_deref()?)),
        }
    }

    /// The value of a row as people read it; `None` where there is none.
    pub fn text(&self, row: usize) -> Option<String> {
        match self {
            Values::Integer(values) => values[row].map(|value| value.to_string()),
            Values::Float(values) => values[row].map(|value| value.to_string()),
            Values::Text(values) => values[row].clone(),
        }
    }
}

/// Values of calls of one region, a row per call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValueBatch {
    /// The region.
    pub region: RegionId,
    /// The thread and the id of each call.
    pub calls: Vec<(LocationId, u64)>,
    /// By [`position`](ValueColumn::position), each with as many values as there are calls. `None` where a value could
    /// not be read, or does not exist.
    pub columns: Vec<Values>,
}

/// A value of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// See [`ValueType::Integer`].
    Integer(i64),
    /// See [`ValueType::Float`].
    Float(f64),
    /// See [`ValueType::Text`].
    Text(String),
}

/// The values of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallValues {
    /// What they are; the region is that of the set.
    pub columns: Arc<[ValueColumn]>,
    /// As many as there are columns; `None` where a value could not be read, or does not exist.
    pub values: Box<[Option<Value>]>,
}

impl CallValues {
    /// The values with what they are.
    pub fn iter(&self) -> impl Iterator<Item = (&ValueColumn, Option<&Value>)> {
        self.columns.iter().zip(self.values.iter().map(Option::as_ref))
    }

    /// The value of that name: `None` if there is no such column, `Some(None)` if it has no value here.
    pub fn named(&self, name: &str) -> Option<Option<&Value>> {
        self.iter().find(|(column, _)| column.name == name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_addresses_whatever_qualifies_them() {
        let is_address = |c_type: &str, value_type| {
            let (region, name, source) = (RegionId(0), "x".to_owned(), String::new());
            let c_type = c_type.to_owned();
            let column = ValueColumn {
                region,
                position: 0,
                name,
                value_type,
                c_type,
                unit: None,
                role: None,
                at_exit: false,
                source,
            };
            column.is_address()
        };
        for c_type in
            ["char *", "Circle * const", "char *__restrict", "int &", "void (*)(int)", "char * const volatile"]
        {
            assert!(is_address(c_type, ValueType::Integer), "{c_type}");
        }
        assert!(!is_address("int const", ValueType::Integer) && !is_address("char *", ValueType::Text));
    }

    #[test]
    fn each_value_is_in_one_step() {
        for (value, expected) in [(0, (0, 1)), (1, (1, 2)), (2, (2, 4)), (3, (2, 4)), (-1, (-1, 0)), (-3, (-3, -1))] {
            assert_eq!(value_bounds(value_step(value)), expected, "{value}");
        }
        for value in [i64::MIN, i64::MIN + 1, -4_097, -4_096, -2, 5, 4_095, 4_096, i64::MAX] {
            let (from, below) = value_bounds(value_step(value));
            assert!((from..below).contains(&value.into()), "{value}: {from} to {below}");
            assert_eq!(value_bounds(value_step(value) + 1).0, below);
        }
    }
}
