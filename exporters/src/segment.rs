//! A folder of Parquet files that together hold rows without end: calls, events.
//!
//! Rows gather in memory. A full row group is sorted, encoded and forgotten, so memory stays
//! bounded at any rate. When rows are published, the file is completed and takes its name. A file
//! with few rows is not the last word: its rows stay in memory, and the next time it is replaced
//! by one that holds them and the newer ones, so that a slow recording of a day does not leave a
//! file for each of its seconds.

use crate::Error;
use crate::directory::Directory;
use crate::file::{Encoder, ROW_GROUP};
use crate::schema::{Stream, column};

/// Rows from which a published segment is left alone. Encoding that many again takes about 15 ms.
const SEALED: usize = ROW_GROUP / 2;

/// Rows from which a segment wants to be published early.
const FULL: usize = 8 * ROW_GROUP;

pub(crate) struct Segments<T> {
    folder: Directory,
    number: u32,
    /// The segment's file, once it has a row group.
    encoder: Option<Encoder<T>>,
    encoded: usize,
    /// Rows of the segment that are not in `encoder`.
    rows: Vec<T>,
    /// Empty: memory in which they are sorted.
    sorted: Vec<T>,
    /// Names of the columns beyond those of a row.
    further: Vec<String>,
    /// Of each row in turn, their values.
    values: Vec<u64>,
    /// Whether the segment holds more than the file of its name.
    dirty: bool,
}

/// What is told of rows, sorted by their keys, before they are forgotten, with the values of their further columns.
pub(crate) type SettledRows<'a, T> = dyn FnMut(&[T], &[u64]) + 'a;

impl<T: Stream> Segments<T> {
    /// Makes the folder; the first publication writes a segment even if it is empty, so that tools
    /// find the columns.
    pub(crate) fn create(directory: &Directory) -> Result<Segments<T>, Error> {
        let folder = directory.folder(T::PLACE)?;
        Ok(Segments {
            folder,
            number: 1,
            encoder: None,
            encoded: 0,
            rows: Vec::new(),
            sorted: Vec::new(),
            further: Vec::new(),
            values: Vec::new(),
            dirty: true,
        })
    }

    /// Gives rows further nullable columns of 64-bit integers; rows that are there already have none.
    pub(crate) fn set_further(&mut self, columns: Vec<String>) {
        let has_rows = self.encoder.is_some() || !self.rows.is_empty() || self.number > 1;
        if self.further != columns && !has_rows {
            self.further = columns;
            self.dirty = true;
        }
    }

    /// Number of further columns.
    pub(crate) fn further(&self) -> usize {
        self.further.len()
    }

    pub(crate) fn push(&mut self, rows: &[T]) -> Result<(), Error> {
        self.push_further(rows, &[], &mut |_, _| {})
    }

    /// Adds rows with, of each in turn, the values of the further columns; those of a row that is not
    /// measured are written as null.
    pub(crate) fn push_further(
        &mut self,
        mut rows: &[T],
        mut values: &[u64],
        settled: &mut SettledRows<'_, T>,
    ) -> Result<(), Error> {
        self.dirty |= !rows.is_empty();
        while !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(ROW_GROUP - self.rows.len()));
            let (of_now, of_later) = values.split_at(now.len() * self.further.len());
            self.rows.extend_from_slice(now);
            self.values.extend_from_slice(of_now);
            (rows, values) = (later, of_later);
            if self.rows.len() == ROW_GROUP {
                self.encode()?;
                self.encoded += self.rows.len();
                self.forget(settled);
            }
        }
        Ok(())
    }

    /// Gives up what is not published, and the room that it takes.
    pub(crate) fn abandon(&mut self) {
        self.encoder = None;
    }

    /// Whether the segment should be published now rather than in its time.
    pub(crate) fn is_full(&self) -> bool {
        self.encoded >= FULL
    }

    /// Makes all rows visible to readers.
    pub(crate) fn publish(&mut self, settled: &mut SettledRows<'_, T>) -> Result<(), Error> {
        if !self.dirty {
            return Ok(());
        }
        if !self.rows.is_empty() || self.encoder.is_none() {
            self.encode()?;
        }
        if let Some(encoder) = self.encoder.take() {
            encoder.commit()?;
        }
        self.dirty = false;
        if self.encoded + self.rows.len() >= SEALED {
            self.forget(settled);
            self.encoded = 0;
            self.number += 1;
        }
        Ok(())
    }

    /// Gives the memory of the published rows back; none are added after it.
    pub(crate) fn close(&mut self, settled: &mut SettledRows<'_, T>) {
        self.forget(settled);
    }

    fn forget(&mut self, settled: &mut SettledRows<'_, T>) {
        if !self.rows.is_empty() {
            settled(&self.rows, &self.values);
        }
        self.rows.clear();
        self.values.clear();
    }

    fn sort(&mut self) {
        let width = self.further.len();
        let order = T::order(&self.rows);
        self.sorted.extend(order.iter().map(|&row| self.rows[row as usize].clone()));
        std::mem::swap(&mut self.rows, &mut self.sorted);
        self.sorted.clear();
        if width > 0 {
            self.values =
                order.iter().flat_map(|&row| &self.values[row as usize * width..][..width]).copied().collect();
        }
    }

    fn encode(&mut self) -> Result<(), Error> {
        self.sort();
        let width = self.further.len();
        let column = |place| {
            let values = self.values.iter().skip(place).step_by(width).zip(&self.rows);
            column::optional_numbers(values.map(|(&value, row)| row.is_measured().then_some(value)))
        };
        let further = (0..width).map(column).collect();
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(Encoder::create(&self.folder, &format!("{:06}.parquet", self.number), &self.further)?),
        };
        encoder.row_group(self.rows.iter(), further)
    }
}
