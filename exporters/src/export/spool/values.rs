//! The values of calls as bytes, beside which stands once what they are.

use std::collections::HashMap;
use std::sync::Arc;

use rtrace_model::{CallValues, Value, ValueColumn};

use super::super::varint;

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const FLOAT: u8 = 2;
const TEXT: u8 = 3;

/// What the values of calls are: calls refer to it by a number.
#[derive(Default)]
pub(super) struct Schemas {
    all: Vec<Arc<[ValueColumn]>>,
    /// By the address of the columns, which stay as long as this does.
    places: HashMap<*const ValueColumn, usize>,
    /// The values of one call, before their size is known.
    bytes: Vec<u8>,
}

impl Schemas {
    /// Appends the values of a call behind their size, or a size of 0.
    pub(super) fn put(&mut self, bytes: &mut Vec<u8>, values: Option<&CallValues>) {
        self.bytes.clear();
        if let Some(values) = values {
            let place = *self.places.entry(values.columns.as_ptr()).or_insert_with(|| {
                self.all.push(Arc::clone(&values.columns));
                self.all.len() - 1
            });
            varint::put(&mut self.bytes, place as u64);
            values.values.iter().for_each(|value| put(&mut self.bytes, value.as_ref()));
        }
        varint::put(bytes, self.bytes.len() as u64);
        bytes.extend(&self.bytes);
    }

    /// The values that these bytes are; `None` where they are none.
    pub(super) fn take(&self, mut bytes: &[u8]) -> Option<CallValues> {
        let columns = self.all.get(usize::try_from(varint::take(&mut bytes)?).ok()?)?;
        let values = (0..columns.len()).map(|_| take(&mut bytes)).collect::<Option<_>>()?;
        Some(CallValues { columns: Arc::clone(columns), values })
    }
}

fn put(bytes: &mut Vec<u8>, value: Option<&Value>) {
    match value {
        None => bytes.push(NULL),
        Some(Value::Integer(number)) => {
            bytes.push(INTEGER);
            varint::put_difference(bytes, 0, number.cast_unsigned());
        }
        Some(Value::Float(number)) => {
            bytes.push(FLOAT);
            bytes.extend(number.to_le_bytes());
        }
        Some(Value::Text(text)) => {
            bytes.push(TEXT);
            varint::put(bytes, text.len() as u64);
            bytes.extend(text.as_bytes());
        }
    }
}

fn take(bytes: &mut &[u8]) -> Option<Option<Value>> {
    let (&kind, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(match kind {
        NULL => None,
        INTEGER => Some(Value::Integer(varint::take_difference(bytes, 0)?.cast_signed())),
        FLOAT => {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(Value::Float(f64::from_le_bytes(*number)))
        }
        TEXT => {
            let size = varint::take(bytes)?.try_into().ok()?;
            let (text, rest) = bytes.split_at_checked(size)?;
            *bytes = rest;
            Some(Value::Text(std::str::from_utf8(text).ok()?.to_owned()))
        }
        _ => return None,
    })
}
