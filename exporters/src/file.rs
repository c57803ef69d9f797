//! One Parquet file, written row group by row group and read back by row group.
//!
//! 64-bit integers are ids, times and durations: stored as differences. All else repeats itself:
//! stored by dictionary. Pages hold a whole row group's column, which gives zstd the most to find.

use std::collections::HashMap;
use std::fs::File;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::PageReader as _;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnPath;

use crate::Error;
use crate::directory::{Directory, Staged, open_file};
use crate::schema::{ColumnError, Columns, Row, column, with_further};

/// Most rows of one row group that is written.
pub(crate) const ROW_GROUP: usize = 128 * 1024;

/// Most rows of one row group that are read: other tools may have merged segments, but memory is
/// bounded by it.
const LARGEST_ROW_GROUP: usize = 16 * ROW_GROUP;

/// A column has at most so many values for each row, and in a small row group for each of [`ROW_GROUP`]
/// rows: a histogram has fewer. A few bytes may stand for any number of equal ones.
const MOST_VALUES: usize = 64;

/// Bytes that the columns of the row groups read at once may take: a text that is stored once may be
/// the value of every row.
const MOST_BYTES: usize = 1 << 30;

/// Rows that are taken out of the columns at a time.
const BATCH: usize = ROW_GROUP / 32;

/// A Parquet file of `T`s under its temporary name.
pub(crate) struct Encoder<T> {
    writer: ArrowWriter<File>,
    staged: Staged,
    /// Names of the columns beyond those of the row, each of 64-bit integers.
    further: Vec<String>,
    row: PhantomData<fn(&T)>,
}

impl<T: Row> Encoder<T> {
    pub(crate) fn create(directory: &Directory, name: &str, further: &[String]) -> Result<Encoder<T>, Error> {
        let (file, staged) = directory.stage(name)?;
        let nothing = further.iter().map(|_| column::numbers(std::iter::empty::<u64>())).collect();
        let schema = with_further(&T::encode(std::iter::empty()), further, nothing).schema();
        let properties = properties(&schema);
        let writer =
            ArrowWriter::try_new(file, schema, Some(properties)).map_err(Error::parquet("write", staged.target()))?;
        Ok(Encoder { writer, staged, further: further.to_vec(), row: PhantomData })
    }

    /// Writes the rows as one row group, with the values of the further columns.
    pub(crate) fn row_group<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a T> + Clone,
        further: Vec<ArrayRef>,
    ) -> Result<(), Error>
    where
        T: 'a,
    {
        let batch = with_further(&T::encode(rows), &self.further, further);
        let written = self.writer.write(&batch).and_then(|()| self.writer.flush());
        written.map_err(Error::parquet("write", self.staged.target()))
    }

    /// Completes the file and gives it its name.
    pub(crate) fn commit(self) -> Result<(), Error> {
        self.writer.close().map_err(Error::parquet("write", self.staged.target()))?;
        self.staged.commit()
    }
}

/// Writes a file of one row group.
pub(crate) fn write_batch(directory: &Directory, name: &str, batch: &RecordBatch) -> Result<(), Error> {
    let (file, staged) = directory.stage(name)?;
    let schema = batch.schema();
    let properties = properties(&schema);
    let write = || {
        let mut writer = ArrowWriter::try_new(file, schema, Some(properties))?;
        writer.write(batch)?;
        writer.close()
    };
    write().map_err(Error::parquet("write", staged.target()))?;
    staged.commit()
}

/// All rows of a file with whatever columns it has, or with these only.
pub(crate) fn read_batches(path: &Path, columns: Option<&[&str]>) -> Result<Vec<RecordBatch>, Error> {
    let file = open_file(path).map_err(Error::io("open", path))?;
    guarded(path, || {
        let fail = Error::parquet("read", path);
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let mut reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).map_err(fail)?;
        if let Some(columns) = columns {
            let mask = ProjectionMask::columns(reader.parquet_schema(), columns.iter().copied());
            reader = reader.with_projection(mask);
        }
        let batches = reader.with_batch_size(BATCH).build().map_err(Error::parquet("read", path))?;
        let mut read = Vec::new();
        let mut bytes = 0;
        for batch in batches {
            let batch = batch.map_err(|error| Error::parquet("read", path)(error.into()))?;
            bytes += batch.get_array_memory_size();
            if bytes > MOST_BYTES {
                let problem = format!("its rows take more than {} MiB of memory", MOST_BYTES >> 20);
                return Err(Error::Content { path: path.to_owned(), problem });
            }
            read.push(batch);
        }
        Ok(read)
    })
}

/// The number of rows of a file, and by column, as far as the file says, how many of them are null.
pub(crate) fn nulls(path: &Path) -> Result<(u64, HashMap<String, u64>), Error> {
    let file = open_file(path).map_err(Error::io("open", path))?;
    guarded(path, || {
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options);
        let reader = reader.map_err(Error::parquet("read", path))?;
        let (mut rows, mut nulls) = (0, HashMap::new());
        for group in reader.metadata().row_groups() {
            rows += group.num_rows().unsigned_abs();
            for column in group.columns() {
                let sum: &mut Option<u64> = nulls.entry(column.column_path().string()).or_insert(Some(0));
                let of_group = column.statistics().and_then(Statistics::null_count_opt);
                *sum = sum.zip(of_group).map(|(sum, of)| sum.saturating_add(of));
            }
        }
        Ok((rows, nulls.into_iter().filter_map(|(name, nulls)| Some((name, nulls?))).collect()))
    })
}

/// Whether a file is complete: its last part says what is in it.
///
/// # Errors
/// It is not, or cannot be read.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    let file = open_file(path).map_err(Error::io("open", path))?;
    guarded(path, || {
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options);
        reader.map(|_| ()).map_err(Error::parquet("read", path))
    })
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
    file: Arc<File>,
    reader: ParquetRecordBatchReaderBuilder<File>,
    row: PhantomData<fn() -> T>,
}

impl<'a, T: Row> Decoder<'a, T> {
    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be read, or has a row group too large to be read at once.
    pub(crate) fn open(path: &'a Path) -> Result<Decoder<'a, T>, Error> {
        let file = open_file(path).map_err(Error::io("open", path))?;
        let pages = Arc::new(file.try_clone().map_err(Error::io("open", path))?);
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
        Ok(Decoder { path, file: pages, reader, row: PhantomData })
    }

    /// Number of rows of each row group.
    pub(crate) fn rows(&self) -> Vec<u64> {
        self.reader.metadata().row_groups().iter().map(|group| group.num_rows().unsigned_abs()).collect()
    }

    /// The least and the greatest value of a column of 64-bit integers in each row group, where the file says them.
    pub(crate) fn ranges(&self, column: &str) -> Vec<Option<[u64; 2]>> {
        let range = |group: &RowGroupMetaData| {
            let column = group.columns().iter().find(|of| of.column_path().string() == column)?;
            let Statistics::Int64(values) = column.statistics()? else { return None };
            Some([u64::try_from(*values.min_opt()?).ok()?, u64::try_from(*values.max_opt()?).ok()?])
        };
        self.reader.metadata().row_groups().iter().map(range).collect()
    }

    /// The rows of the given row groups, in their order.
    pub(crate) fn read(self, row_groups: Vec<usize>) -> Result<Vec<T>, Error> {
        self.read_further(row_groups, &[]).map(|(rows, _)| rows)
    }

    /// The rows of the given row groups, and of each row in turn the values of further columns, which
    /// are 0 in rows that are not measured.
    pub(crate) fn read_further(self, row_groups: Vec<usize>, further: &[String]) -> Result<(Vec<T>, Vec<u64>), Error> {
        let Decoder { path, file, reader, .. } = self;
        guarded(path, || {
            let fail = |source| Error::parquet("read", path)(source);
            for &index in &row_groups {
                check_values(path, &file, reader.metadata(), index)?;
            }
            let batches = reader.with_row_groups(row_groups).with_batch_size(BATCH).build().map_err(fail)?;
            let (mut rows, mut values, mut bytes) = (Vec::new(), Vec::new(), 0);
            for batch in batches {
                let batch: RecordBatch = batch.map_err(|error| fail(error.into()))?;
                bytes += batch.get_array_memory_size();
                if bytes > MOST_BYTES {
                    let problem = format!("its rows take more than {} MiB of memory", MOST_BYTES >> 20);
                    return Err(Error::Content { path: path.to_owned(), problem });
                }
                let content = |error: ColumnError| Error::Content { path: path.to_owned(), problem: error.to_string() };
                let columns = Columns(&batch);
                let decoded = T::decode(&columns).map_err(content)?;
                columns.interleave(further, |row| decoded[row].is_measured(), &mut values).map_err(content)?;
                rows.extend(decoded);
            }
            Ok((rows, values))
        })
    }

    /// All rows.
    pub(crate) fn read_all(self) -> Result<Vec<T>, Error> {
        let all = (0..self.reader.metadata().num_row_groups()).collect();
        self.read(all)
    }
}

/// Refuses a row group in which a column has far more values than rows, as its pages tell.
fn check_values(path: &Path, file: &Arc<File>, metadata: &ParquetMetaData, index: usize) -> Result<(), Error> {
    let fail = |source| Error::parquet("read", path)(source);
    let group = metadata.row_group(index);
    let rows = usize::try_from(group.num_rows()).unwrap_or_default();
    for column in group.columns() {
        // No page is decompressed, and what does that takes longer to make than the headers to read.
        let plain = column.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build().map_err(fail)?;
        let mut pages = SerializedPageReader::new(Arc::clone(file), &plain, rows, None).map_err(fail)?;
        let mut values = 0_usize;
        while let Some(page) = pages.peek_next_page().map_err(fail)? {
            values = values.saturating_add(page.num_levels.unwrap_or_default());
            pages.skip_next_page().map_err(fail)?;
        }
        if values > MOST_VALUES * rows.max(ROW_GROUP) {
            let column = column.column_path().string();
            let problem = format!("column `{column}` of row group {index} has {values} values in {rows} rows");
            return Err(Error::Content { path: path.to_owned(), problem });
        }
    }
    Ok(())
}

/// Runs `read`; a panic in it is an error.
fn guarded<R>(path: &Path, read: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    rtrace_model::guarded(read)
        .unwrap_or_else(|| Err(Error::Content { path: path.to_owned(), problem: "its content is damaged".to_owned() }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use arrow_array::builder::{Int64Builder, ListBuilder};
    use rtrace_model::PathProfile;

    use super::*;

    /// A few kilobytes, which would be 72 megabytes of zeros.
    #[test]
    fn a_list_of_millions_in_one_row_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let mut lists = ListBuilder::new(Int64Builder::new());
        lists.values().append_value_n(0, 9_000_000);
        lists.append(true);
        let list: ArrayRef = Arc::new(lists.finish());
        let batch = RecordBatch::try_from_iter([("histogram", list)]).unwrap();
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let error = Decoder::<PathProfile>::open(&path).unwrap().read_all().unwrap_err().to_string();
        let cause = "column `histogram.list.item` of row group 0 has 9000000 values in 1 rows";
        assert!(error.ends_with(cause), "{error}");
    }

    #[test]
    fn a_panic_of_the_library_is_an_error() {
        let error = guarded(Path::new("a.parquet"), || -> Result<(), Error> { panic!("column start is negative") });
        assert_eq!(error.unwrap_err().to_string(), "failed to read `a.parquet`: its content is damaged");
    }
}
