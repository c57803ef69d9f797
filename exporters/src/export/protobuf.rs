//! Protocol Buffers by hand: the few messages that formats need do not pay for a compiler of
//! schemas. See <https://protobuf.dev/programming-guides/encoding/>.

use super::varint;

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

/// A message under construction: its fields, encoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn new() -> Message {
        Message::default()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends an integer, a truth value or an enumerator.
    pub(super) fn int(&mut self, field: u64, value: u64) -> &mut Message {
        varint::put(&mut self.0, field << 3 | VARINT);
        varint::put(&mut self.0, value);
        self
    }

    pub(super) fn double(&mut self, field: u64, value: f64) -> &mut Message {
        varint::put(&mut self.0, field << 3 | FIXED_64);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn text(&mut self, field: u64, value: &str) -> &mut Message {
        self.delimited(field, value.as_bytes())
    }

    pub(super) fn message(&mut self, field: u64, value: &Message) -> &mut Message {
        self.delimited(field, &value.0)
    }

    /// Appends several integers as one field.
    pub(super) fn packed(&mut self, field: u64, values: impl IntoIterator<Item = u64>) -> &mut Message {
        let mut packed = Vec::new();
        values.into_iter().for_each(|value| varint::put(&mut packed, value));
        self.delimited(field, &packed)
    }

    fn delimited(&mut self, field: u64, bytes: &[u8]) -> &mut Message {
        varint::put(&mut self.0, field << 3 | LENGTH_DELIMITED);
        varint::put(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding guide.
    #[test]
    fn messages_are_encoded_as_documented() {
        assert_eq!(Message::new().int(1, 150).bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::new().text(2, "testing").bytes(), b"\x12\x07testing");
        let mut inner = Message::new();
        inner.int(1, 150);
        assert_eq!(Message::new().message(3, &inner).bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::new().packed(6, [3, 270, 86942]).bytes(), b"\x32\x06\x03\x8e\x02\x9e\xa7\x05");
    }
}
