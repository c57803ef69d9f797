//! The values of many calls in the room of one: `7`, `0|7`, `0..65536`, `...`.

use rtrace_model::{CallValues, Value, ValueColumn, code};

use super::values::plain;

/// Values that are shown one by one.
const FEW: usize = 3;

/// The values of the calls of a call path.
#[derive(Clone, Debug, Default)]
pub(super) struct Varieties {
    /// In the order of the first call's columns.
    columns: Vec<(ValueColumn, Variety)>,
    /// Also those of which no value is known.
    calls: u64,
}

/// The values of a column.
#[derive(Clone, Debug, Default)]
struct Variety {
    known: KnownValues,
    /// Calls of which the value is known.
    calls: u64,
}

#[derive(Clone, Debug)]
enum KnownValues {
    /// In the order of their first calls.
    Few(Vec<Value>),
    /// The smallest and the largest of many numbers.
    Range(Value, Value),
    /// Many others.
    Many,
}

impl Default for KnownValues {
    fn default() -> KnownValues {
        KnownValues::Few(Vec::new())
    }
}

impl Varieties {
    /// Whether the calls have neither arguments nor results.
    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Adds a call.
    pub(super) fn add(&mut self, values: Option<&CallValues>) {
        self.calls += 1;
        for (column, value) in values.into_iter().flat_map(CallValues::iter) {
            let variety = self.column(column);
            if let Some(value) = value {
                variety.calls += 1;
                variety.known.add(value, column.is_address());
            }
        }
    }

    /// Adds other calls.
    pub(super) fn merge(&mut self, other: Varieties) {
        self.calls += other.calls;
        for (column, Variety { known, calls }) in other.columns {
            let variety = self.column(&column);
            variety.calls += calls;
            match known {
                KnownValues::Few(values) => {
                    values.iter().for_each(|value| variety.known.add(value, column.is_address()))
                }
                KnownValues::Range(least, most) => variety.known.widen(&least, &most),
                KnownValues::Many => variety.known = KnownValues::Many,
            }
        }
    }

    fn column(&mut self, column: &ValueColumn) -> &mut Variety {
        let place = self.columns.iter().position(|(known, _)| known.name == column.name);
        let place = place.unwrap_or_else(|| {
            self.columns.push((column.clone(), Variety::default()));
            self.columns.len() - 1
        });
        &mut self.columns[place].1
    }

    /// The call as a line of [code]; `-` stands for values that are not known.
    pub(super) fn call(&self, function: &str) -> String {
        if self.is_empty() {
            return function.to_owned();
        }
        code(function, self.columns.iter().map(|(column, variety)| (column, self.text(column, variety))))
    }

    fn text(&self, column: &ValueColumn, variety: &Variety) -> String {
        let mut texts: Vec<String> = match &variety.known {
            KnownValues::Few(values) => values.iter().map(|value| plain(column, value)).collect(),
            KnownValues::Range(least, most) => vec![format!("{}..{}", plain(column, least), plain(column, most))],
            KnownValues::Many => vec!["...".to_owned()],
        };
        if variety.calls < self.calls {
            texts.push("-".to_owned());
        }
        texts.join("|")
    }
}

impl KnownValues {
    fn add(&mut self, value: &Value, is_address: bool) {
        match self {
            KnownValues::Few(values) if values.iter().any(|known| is_same(known, value)) => {}
            KnownValues::Few(values) if values.len() < FEW => values.push(value.clone()),
            KnownValues::Few(_) if is_address || matches!(value, Value::Text(_)) => *self = KnownValues::Many,
            _ => self.widen(value, value),
        }
    }

    /// Makes a range of it that includes these numbers.
    fn widen(&mut self, least: &Value, most: &Value) {
        *self = match std::mem::replace(self, KnownValues::Many) {
            KnownValues::Few(values) => {
                values.iter().fold(KnownValues::Range(least.clone(), most.clone()), |mut range, value| {
                    range.widen(value, value);
                    range
                })
            }
            KnownValues::Range(from, to) => match (is_less(least, &from), is_less(&to, most)) {
                (Some(lower), Some(higher)) => {
                    KnownValues::Range(if lower { least.clone() } else { from }, if higher { most.clone() } else { to })
                }
                // A column that has another type in another trace.
                _ => KnownValues::Many,
            },
            KnownValues::Many => KnownValues::Many,
        }
    }
}

/// Not a number is the same as itself here.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b).is_eq(),
        _ => a == b,
    }
}

/// Whether a number is less than another; `None` where they are not of one type.
fn is_less(a: &Value, b: &Value) -> Option<bool> {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => Some(a < b),
        (Value::Float(a), Value::Float(b)) => Some(a.total_cmp(b).is_lt()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rtrace_model::{RegionId, ValueType};

    use super::*;

    fn column(position: u32, name: &str, value_type: ValueType, c_type: &str, at_exit: bool) -> ValueColumn {
        let (name, c_type) = (name.to_owned(), c_type.to_owned());
        let (unit, role, source) = (None, None, String::new());
        ValueColumn { region: RegionId(0), position, name, value_type, c_type, unit, role, at_exit, source }
    }

    fn call(path: Option<&str>, buffer: i64, result: Option<i64>) -> CallValues {
        let columns = [
            column(0, "path", ValueType::Text, "const char *", false),
            column(1, "buffer", ValueType::Integer, "void *", false),
            column(2, "rate", ValueType::Float, "double", true),
            column(3, "result", ValueType::Integer, "int", true),
        ];
        let path = path.map(|path| Value::Text(path.to_owned()));
        let rate = result.map(|result| Value::Float(result as f64 / 2.0));
        let values = [path, Some(Value::Integer(buffer)), rate, result.map(Value::Integer)];
        CallValues { columns: columns.into(), values: values.into() }
    }

    #[test]
    fn values_of_many_calls_take_little_room() {
        let mut varieties = Varieties::default();
        assert_eq!(varieties.call("f"), "f");
        varieties.add(Some(&call(Some("a\"\n"), 0x1000, Some(7))));
        assert_eq!(varieties.call("f"), r#"f(path="a\"\x0a", buffer=0x1000, >rate=3.5) = 7"#);
        varieties.add(Some(&call(None, 0x2000, None)));
        assert_eq!(varieties.call("f"), r#"f(path="a\"\x0a"|-, buffer=0x1000|0x2000, >rate=3.5|-) = 7|-"#);
        for number in [-3, 4, 900] {
            varieties.add(Some(&call(Some(&number.to_string()), number, Some(number))));
        }
        assert_eq!(varieties.call("f"), "f(path=...|-, buffer=..., >rate=-1.5..450.0|-) = -3..900|-");
    }

    #[test]
    fn calls_whose_values_are_not_known_are_said() {
        let mut varieties = Varieties::default();
        varieties.add(None);
        assert_eq!(varieties.call("f"), "f");
        varieties.add(Some(&call(Some("x"), 1, Some(1))));
        assert_eq!(varieties.call("f"), r#"f(path="x"|-, buffer=0x1|-, >rate=0.5|-) = 1|-"#);
    }

    #[test]
    fn calls_of_other_threads_are_added() {
        let of = |results: &[i64]| {
            let mut varieties = Varieties::default();
            results.iter().for_each(|&result| varieties.add(Some(&call(Some("x"), 1, Some(result)))));
            varieties
        };
        let mut few = of(&[1, 2]);
        few.merge(of(&[2, 3]));
        assert!(few.call("f").ends_with(" = 1|2|3"));
        few.merge(of(&[9, 8, 7, 6]));
        assert!(few.call("f").ends_with(" = 1..9"));
        let mut many = of(&[5, 6, 7, 8]);
        many.merge(of(&[2]));
        assert!(many.call("f").ends_with(" = 2..8"));
    }
}
