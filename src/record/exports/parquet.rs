//! `records.parquet`: the rows of `records.csv` as Parquet, each column of one kind, compressed with
//! Snappy.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::super::columns::Kind;
use super::super::row::Row;
use super::typed::TypedTable;

/// Writes `records.parquet`: one group of rows, every column optional.
///
/// # Errors
/// Those of the stream.
pub fn write_records(rows: &[Row], out: impl Write + Send) -> io::Result<()> {
    let table = TypedTable::of(rows)?;
    write_table(&table, out).map_err(io::Error::other)
}

fn write_table(table: &TypedTable, out: impl Write + Send) -> Result<(), ParquetError> {
    let fields = table.columns.iter().map(|(name, kind)| field(name, *kind));
    let fields = fields.map(|field| field.map(Arc::new));
    let schema = Type::group_type_builder("records")
        .with_fields(fields.collect::<Result<_, _>>()?)
        .build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let mut index = 0;
    while let Some(mut column) = group.next_column()? {
        let fields: Vec<&str> = table.lines.iter().map(|line| &line[index]).collect();
        let writing = &mut column;
        match table.columns[index].1 {
            Kind::Text => write_column::<ByteArrayType>(writing, &fields, |field| {
                (!field.is_empty()).then(|| ByteArray::from(field))
            }),
            Kind::Int => write_parsed::<Int64Type>(writing, &fields),
            Kind::Float => write_parsed::<DoubleType>(writing, &fields),
            Kind::Bool => write_parsed::<BoolType>(writing, &fields),
        }?;
        column.close()?;
        index += 1;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn field(name: &str, kind: Kind) -> Result<Type, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Int => (Physical::INT64, None),
        Kind::Float => (Physical::DOUBLE, None),
        Kind::Bool => (Physical::BOOLEAN, None),
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL)
        .build()
}

/// Writes the numbers or truths that are there.
fn write_parsed<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    fields: &[&str],
) -> Result<(), ParquetError>
where
    T::T: std::str::FromStr,
{
    write_column::<T>(column, fields, |field| field.parse().ok())
}

/// Writes the values that are there; a level of zero says that one is missing.
fn write_column<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    fields: &[&str],
    value: impl Fn(&str) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let all: Vec<Option<T::T>> = fields.iter().map(|field| value(field)).collect();
    let levels: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = all.into_iter().flatten().collect();
    column
        .typed::<T>()
        .write_batch(&values, Some(&levels), None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;
    use crate::execute::outcome::{Measurement, Outcome, Status};
    use crate::record::row::test_row;

    #[test]
    fn what_was_written_can_be_read() {
        let measurement = Measurement {
            samples_ns: vec![3.0, 1.0, 2.0],
            ..Measurement::default()
        };
        let rows = [
            test_row(1, Outcome::measured(measurement)),
            test_row(2, Outcome::without_measurement(Status::Oom, "too much")),
        ];
        let file = tempfile::NamedTempFile::new().unwrap();
        write_records(&rows, file.reopen().unwrap()).unwrap();
        let reader = SerializedFileReader::new(file.reopen().unwrap()).unwrap();
        let read: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let of = |row: usize, name: &str| {
            let mut columns = read[row].get_column_iter();
            columns.find(|(held, _)| *held == name).unwrap().1.clone()
        };
        assert_eq!(of(0, "median_ns"), Field::Double(2.0));
        assert_eq!(of(0, "T"), Field::Long(128));
        assert_eq!(of(1, "median_ns"), Field::Null);
        assert_eq!(of(1, "reason"), Field::Str("too much".to_owned()));
    }
}
