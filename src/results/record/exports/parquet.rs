//! `records.parquet`: the rows of `records.csv` as Parquet, each column of one kind, compressed
//! with Snappy.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use sweeper_program::Value;

use super::typed::{TypedColumn, typed_columns};
use sweeper_model::row::Row;
use sweeper_model::row::schema::Kind;

/// Writes `records.parquet`: one group of rows, every column optional.
///
/// # Errors
/// Those of the stream.
pub fn write_records(rows: &[Row], out: impl Write + Send) -> io::Result<()> {
    write_table(&typed_columns(rows), out).map_err(io::Error::other)
}

fn write_table(columns: &[TypedColumn<'_>], out: impl Write + Send) -> Result<(), ParquetError> {
    let fields = columns.iter().map(|held| field(&held.name, held.kind));
    let fields = fields.map(|field| field.map(Arc::new));
    let schema = Type::group_type_builder("records")
        .with_fields(fields.collect::<Result<_, _>>()?)
        .build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for held in columns {
        let Some(mut column) = group.next_column()? else {
            break;
        };
        write_column(&mut column, held)?;
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn write_column(
    column: &mut SerializedColumnWriter<'_>,
    held: &TypedColumn<'_>,
) -> Result<(), ParquetError> {
    let values = &held.values;
    match held.kind {
        Kind::Text | Kind::Digest => write_values::<ByteArrayType>(column, values, |value| {
            value.as_text().map(ByteArray::from)
        }),
        Kind::Int => write_values::<Int64Type>(column, values, Value::as_int),
        Kind::Float => write_values::<DoubleType>(column, values, |value| match value {
            Value::Float(number) => Some(*number),
            _ => None,
        }),
        Kind::Bool => write_values::<BoolType>(column, values, |value| match value {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }),
    }
}

/// Writes the values that are there; a level of zero says that one is missing.
fn write_values<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[Option<Value>],
    of: impl Fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let all: Vec<Option<T::T>> = values.iter().map(|value| of(value.as_ref()?)).collect();
    let levels: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = all.into_iter().flatten().collect();
    column
        .typed::<T>()
        .write_batch(&values, Some(&levels), None)?;
    Ok(())
}

fn field(name: &str, kind: Kind) -> Result<Type, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Text | Kind::Digest => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Int => (Physical::INT64, None),
        Kind::Float => (Physical::DOUBLE, None),
        Kind::Bool => (Physical::BOOLEAN, None),
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL)
        .build()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;
    use sweeper_model::row::outcome::{Measurement, Outcome, Status};
    use sweeper_model::row::test_row;

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
