//! One Parquet file, written row group by row group and read back by row group.
//!
//! 64-bit integers are ids, times and durations: stored as differences. All else repeats itself:
//! stored by dictionary. Pages hold a whole row group's column, which gives zstd the most to find.

use std::fs::File;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use crate::Error;
use crate::directory::{Directory, Staged};
use crate::schema::{Columns, Row};

/// Most rows of one row group that is written.
pub(crate) const ROW_GROUP: usize = 128 * 1024;

/// Most rows of one row group that are read: other tools may have merged segments, but memory is
/// bounded by it.
const LARGEST_ROW_GROUP: usize = 16 * ROW_GROUP;

/// A Parquet file of `T`s under its temporary name.
pub(crate) struct Encoder<T> {
    writer: ArrowWriter<File>,
    staged: Staged,
    row: PhantomData<fn(&T)>,
}

impl<T: Row> Encoder<T> {
    pub(crate) fn create(directory: &Directory, name: &str) -> Result<Encoder<T>, Error> {
        let (file, staged) = directory.stage(name)?;
        let schema = T::encode(std::iter::empty()).schema();
        let properties = properties(&schema);
        let writer =
            ArrowWriter::try_new(file, schema, Some(properties)).map_err(Error::parquet("write", staged.target()))?;
        Ok(Encoder { writer, staged, row: PhantomData })
    }

    /// Writes the rows as one row group.
    pub(crate) fn row_group<'a>(&mut self, rows: impl Iterator<Item = &'a T> + Clone) -> Result<(), Error>
    where
        T: 'a,
    {
        let batch = T::encode(rows);
        let written = self.writer.write(&batch).and_then(|()| self.writer.flush());
        written.map_err(Error::parquet("write", self.staged.target()))
    }

    /// Completes the file and gives it its name.
    pub(crate) fn commit(self) -> Result<(), Error> {
        self.writer.close().map_err(Error::parquet("write", self.staged.target()))?;
        self.staged.commit()
    }
}

fn properties(schema: &Schema) -> WriterProperties {
    let level = ZstdLevel::try_new(1).expect("1 is a level of zstd");
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_data_page_row_count_limit(ROW_GROUP);
    for field in schema.fields() {
        if field.data_type() == &DataType::Int64 {
            let column = ColumnPath::from(field.name().as_str());
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}

/// A Parquet file of `T`s open for reading.
///
/// The Parquet library takes much of a file's content for granted and panics where a damaged file
/// breaks it, so each use of it is guarded.
pub(crate) struct Decoder<'a, T> {
    path: &'a Path,
    reader: ParquetRecordBatchReaderBuilder<File>,
    row: PhantomData<fn() -> T>,
}

impl<'a, T: Row> Decoder<'a, T> {
    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be read, or has a row group too large to be read at once.
    pub(crate) fn open(path: &'a Path) -> Result<Decoder<'a, T>, Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        // The types as Parquet has them, whatever the writer thought they were in memory.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let reader = guarded(path, || {
            ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).map_err(Error::parquet("read", path))
        })?;
        for (index, group) in reader.metadata().row_groups().iter().enumerate() {
            let rows = group.num_rows();
            if !usize::try_from(rows).is_ok_and(|rows| rows <= LARGEST_ROW_GROUP) {
                let problem = format!("row group {index} has {rows} rows, more than {LARGEST_ROW_GROUP}");
                return Err(Error::Content { path: path.to_owned(), problem });
            }
        }
        Ok(Decoder { path, reader, row: PhantomData })
    }

    /// Number of row groups.
    pub(crate) fn row_groups(&self) -> usize {
        self.reader.metadata().num_row_groups()
    }

    /// Number of rows of all row groups.
    pub(crate) fn rows(&self) -> u64 {
        self.reader.metadata().row_groups().iter().map(|group| group.num_rows().unsigned_abs()).sum()
    }

    /// The rows of the given row groups, in their order.
    pub(crate) fn read(self, row_groups: Vec<usize>) -> Result<Vec<T>, Error> {
        let Decoder { path, reader, .. } = self;
        guarded(path, || {
            let fail = |source| Error::parquet("read", path)(source);
            let batches = reader.with_row_groups(row_groups).with_batch_size(ROW_GROUP).build().map_err(fail)?;
            let mut rows = Vec::new();
            for batch in batches {
                let batch: RecordBatch = batch.map_err(|error| fail(error.into()))?;
                let decoded = T::decode(&Columns(&batch))
                    .map_err(|error| Error::Content { path: path.to_owned(), problem: error.to_string() })?;
                rows.extend(decoded);
            }
            Ok(rows)
        })
    }

    /// All rows.
    pub(crate) fn read_all(self) -> Result<Vec<T>, Error> {
        let all = (0..self.row_groups()).collect();
        self.read(all)
    }
}

/// Runs `read`; a panic in it is an error.
///
/// What `read` borrows is not used again after a panic: it owns the file and its buffers.
fn guarded<R>(path: &Path, read: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(Error::Content { path: path.to_owned(), problem: "its content is damaged".to_owned() }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_panic_of_the_library_is_an_error() {
        let error = guarded(Path::new("a.parquet"), || -> Result<(), Error> { panic!("column start is negative") });
        assert_eq!(error.unwrap_err().to_string(), "failed to read `a.parquet`: its content is damaged");
    }
}
