//! `values.parquet`: which values the calls of each region have, and where they are.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use rtrace_model::{RegionId, ValueColumn, ValueType};

use super::Row;
use super::column::{self, ColumnError, Columns};

impl Row for ValueColumn {
    const PLACE: &'static str = "values.parquet";

    fn encode<'a>(values: impl Iterator<Item = &'a ValueColumn> + Clone) -> RecordBatch {
        let values = || values.clone();
        let texts =
            |texts: &mut dyn Iterator<Item = Option<&'a str>>| -> ArrayRef { Arc::new(StringArray::from_iter(texts)) };
        column::batch([
            ("region", column::int32(values().map(|value| value.region.0)), false),
            ("position", column::int32(values().map(|value| value.position)), false),
            ("column", column::text(values().map(|value| value.name.as_str())), false),
            ("type", column::text(values().map(|value| value.value_type.name())), false),
            ("c_type", column::text(values().map(|value| value.c_type.as_str())), false),
            ("unit", texts(&mut values().map(|value| value.unit.as_deref())), true),
            ("role", texts(&mut values().map(|value| value.role.as_deref())), true),
            ("at_exit", column::boolean(values().map(|value| value.at_exit)), false),
            ("source", column::text(values().map(|value| value.source.as_str())), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<ValueColumn>, ColumnError> {
        let region = columns.int32("region")?;
        let position = columns.int32("position")?;
        let name = columns.text("column")?;
        let value_type = columns.words("type", ValueType::from_name)?;
        let c_type = columns.text("c_type")?;
        let unit = columns.optional_text("unit")?;
        let role = columns.optional_text("role")?;
        let at_exit = columns.added_boolean("at_exit")?;
        let source = columns.text("source")?;
        let value = |row: usize| ValueColumn {
            region: RegionId(region[row]),
            position: position[row],
            name: name[row].to_owned(),
            value_type: value_type[row],
            c_type: c_type[row].to_owned(),
            unit: unit[row].map(str::to_owned),
            role: role[row].map(str::to_owned),
            at_exit: at_exit[row],
            source: source[row].to_owned(),
        };
        Ok((0..columns.rows()).map(value).collect())
    }
}
