//! A change of a file: what a bad disk, another tool or an ill-meaning person might have made.

/// One change; the input is a list of these.
pub struct Edit {
    pub file: u8,
    kind: u8,
    place: u16,
    value: u8,
}

impl Edit {
    pub fn of([file, kind, low, high, value]: [u8; 5]) -> Edit {
        Edit { file, kind, place: u16::from_le_bytes([low, high]), value }
    }

    pub fn apply(&self, bytes: &mut Vec<u8>) {
        // The end of a Parquet file describes the rest, so places are counted from there.
        let Some(place) = bytes.len().checked_sub(1 + usize::from(self.place)) else { return };
        match self.kind % 8 {
            0..4 => bytes[place] = self.value,
            4 => bytes[place] ^= self.value,
            5 => bytes.insert(place, self.value),
            6 => drop(bytes.drain(place..bytes.len().min(place + usize::from(self.value)))),
            _ => bytes.truncate(place),
        }
    }
}
