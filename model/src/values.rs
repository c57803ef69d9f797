//! Values of calls: arguments, results, and what they point to.

use serde::{Deserialize, Serialize};

use crate::{LocationId, RegionId};

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueType {
    /// Integers of 64 bits, also truth values and addresses. Unsigned ones above 2⁶³ look negative.
    Integer,
    /// Numbers with a fraction.
    Float,
    /// Text, cut where it is longer than was asked for. What is no UTF-8 is replaced.
    Text,
}

impl ValueType {
    /// All types.
    pub const ALL: [ValueType; 3] = [ValueType::Integer, ValueType::Float, ValueType::Text];

    /// The word used in columns.
    pub const fn name(self) -> &'static str {
        match self {
            ValueType::Integer => "integer",
            ValueType::Float => "float",
            ValueType::Text => "text",
        }
    }

    /// The type of that [`name`](ValueType::name).
    pub fn from_name(name: &str) -> Option<ValueType> {
        ValueType::ALL.into_iter().find(|kind| kind.name() == name)
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
        self.value_type == ValueType::Integer && self.c_type.trim_end().ends_with('*')
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
