//! One Parquet file, written row group by row group and read back by row group.
//!
//! 64-bit integers are ids, times and durations: stored as differences. All else repeats itself:
//! stored by dictionary. Pages hold a whole row group's column, which gives zstd the most to find.

use std::fs::File;
use std::marker::PhantomData;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use rtrace_model::escape;

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
pub(crate) struct Decoder<'a, T> {
    path: &'a Path,
    reader: ParquetRecordBatchReaderBuilder<File>,
    row: PhantomData<fn() -> T>,
}

impl<'a, T: Row> Decoder<'a, T> {
    pub(crate) fn open(path: &'a Path) -> Result<Decoder<'a, T>, Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let length = file.metadata().map_err(Error::io("read", path))?.len();
        // The types as Parquet has them, whatever the writer thought they were in memory.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
            .map_err(Error::parquet("read", path))?;
        for (index, group) in reader.metadata().row_groups().iter().enumerate() {
            check(group, length).map_err(|problem| {
                let problem = format!("row group {index} {problem}");
                Error::Content { path: path.to_owned(), problem }
            })?;
        }
        Ok(Decoder { path, reader, row: PhantomData })
    }

    /// Number of row groups.
    pub(crate) fn row_groups(&self) -> usize {
        self.reader.metadata().num_row_groups()
    }

    /// The rows of the given row groups, in their order.
    pub(crate) fn read(self, row_groups: Vec<usize>) -> Result<Vec<T>, Error> {
        let fail = |source| Error::parquet("read", self.path)(source);
        let reader = self.reader.with_row_groups(row_groups).with_batch_size(ROW_GROUP).build().map_err(fail)?;
        let mut rows = Vec::new();
        for batch in reader {
            let batch: RecordBatch = batch.map_err(|error| fail(error.into()))?;
            let decoded = T::decode(&Columns(&batch))
                .map_err(|error| Error::Content { path: self.path.to_owned(), problem: error.to_string() })?;
            rows.extend(decoded);
        }
        Ok(rows)
    }

    /// All rows.
    pub(crate) fn read_all(self) -> Result<Vec<T>, Error> {
        let all = (0..self.row_groups()).collect();
        self.read(all)
    }
}

/// Whether a row group can be read: small enough for memory, and within a file of `length` bytes,
/// which the Parquet library takes for granted.
fn check(group: &RowGroupMetaData, length: u64) -> Result<(), String> {
    let rows = group.num_rows();
    if !usize::try_from(rows).is_ok_and(|rows| rows <= LARGEST_ROW_GROUP) {
        return Err(format!("has {rows} rows, more than {LARGEST_ROW_GROUP}"));
    }
    for column in group.columns() {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let within = || {
            let end = u64::try_from(start).ok()?.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
            (end <= length).then_some(())
        };
        within().ok_or_else(|| {
            format!("has column `{}` beyond the end of the file", escape(column.column_descr().name()))
        })?;
    }
    Ok(())
}
