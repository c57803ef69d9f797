//! Values of calls as formats write them: arguments, the result, and what pointers point to when a function returns.

use rtrace_model::{CallValues, Value, ValueColumn, ValueRef, words};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

words! {
    /// What a value is to its call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    ValuePart {
        /// It is read when the function begins.
        Argument = "args",
        /// The function returns it.
        Result = "result",
        /// It is read when the function returns.
        Out = "out",
    }
}

impl ValuePart {
    pub(super) fn of(column: &ValueColumn) -> ValuePart {
        match column.at_exit {
            false => ValuePart::Argument,
            true if column.is_result() => ValuePart::Result,
            true => ValuePart::Out,
        }
    }
}

/// A value in JSON: null where it is not known. Numbers that JSON does not have are texts.
pub(super) struct Json<'a>(pub(super) Option<&'a Value>);

/// Values by name, in their order.
pub(super) struct Object<'a>(Vec<(&'a str, Json<'a>)>);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => serializer.serialize_none(),
            Some(Value::Integer(value)) => serializer.serialize_i64(*value),
            Some(Value::Float(value)) if value.is_finite() => serializer.serialize_f64(*value),
            Some(Value::Float(value)) => serializer.collect_str(value),
            Some(Value::Text(text)) => serializer.serialize_str(text),
        }
    }
}

impl Json<'_> {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("values can always be written as JSON")
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| object.serialize_entry(name, value))?;
        object.end()
    }
}

impl Object<'_> {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("values can always be written as JSON")
    }
}

/// All values of a call.
pub(super) fn all(values: &CallValues) -> Object<'_> {
    Object(values.iter().map(|(column, value)| (column.name.as_str(), Json(value))).collect())
}

/// The values of a part of a call, if it has such.
pub(super) fn object(values: &CallValues, part: ValuePart) -> Option<Object<'_>> {
    let of_part = values.iter().filter(|(column, _)| ValuePart::of(column) == part);
    let members: Vec<_> = of_part.map(|(column, value)| (column.name.as_str(), Json(value))).collect();
    (!members.is_empty()).then_some(Object(members))
}

/// What the call returned, if its function has a result: `None` in it where that is not known.
pub(super) fn result(values: &CallValues) -> Option<Option<&Value>> {
    values.iter().find(|(column, _)| ValuePart::of(column) == ValuePart::Result).map(|(_, value)| value)
}

/// A value as people read it in a line of code.
pub(super) fn plain(column: &ValueColumn, value: &Value) -> String {
    column.shown(match value {
        Value::Integer(value) => ValueRef::Integer(*value),
        Value::Float(value) => ValueRef::Float(*value),
        Value::Text(text) => ValueRef::Text(text),
    })
}
