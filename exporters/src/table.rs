//! A small Parquet file that is written anew whenever it changed: one kind of definition.

use std::collections::BTreeMap;

use crate::Error;
use crate::directory::Directory;
use crate::file::{Encoder, ROW_GROUP};
use crate::schema::Row;

pub(crate) struct IdTable<K, T> {
    rows: BTreeMap<K, T>,
    /// Whether `rows` differs from the file.
    dirty: bool,
}

impl<K: Ord, T: Row + PartialEq + Clone> IdTable<K, T> {
    /// A table that has a file even while it is empty.
    pub(crate) fn new() -> IdTable<K, T> {
        IdTable { rows: BTreeMap::new(), dirty: true }
    }

    /// A table that has a file from its first row on.
    pub(crate) fn optional() -> IdTable<K, T> {
        IdTable { dirty: false, ..IdTable::new() }
    }

    /// Adds a row or replaces the one of that key.
    pub(crate) fn put(&mut self, key: K, row: &T) {
        if self.rows.get(&key) != Some(row) {
            self.rows.insert(key, row.clone());
            self.dirty = true;
        }
    }

    /// The rows, by key.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &T> {
        self.rows.values()
    }

    /// Writes the file if it would differ.
    pub(crate) fn publish(&mut self, directory: &Directory) -> Result<(), Error> {
        if !self.dirty {
            return Ok(());
        }
        let mut encoder = Encoder::create(directory, T::PLACE, &[])?;
        let mut rows = self.rows.values();
        while rows.len() > 0 {
            encoder.row_group(rows.clone().take(ROW_GROUP), Vec::new())?;
            rows.nth(ROW_GROUP - 1);
        }
        encoder.commit()?;
        self.dirty = false;
        Ok(())
    }
}
