//! `records.json`: the rows of `records.csv` as a list of objects, with numbers as numbers and missing
//! values as null.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::columns::Kind;
use super::super::row::Row;
use super::typed::TypedTable;

/// Writes `records.json`, one object a line.
///
/// # Errors
/// Those of the stream.
pub fn write_records(rows: &[Row], mut out: impl Write) -> io::Result<()> {
    let table = TypedTable::of(rows)?;
    out.write_all(b"[")?;
    for (number, line) in table.lines.iter().enumerate() {
        out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
        let fields = table.columns.iter().zip(line);
        let object: Map<String, Value> = fields
            .map(|((name, kind), field)| (name.clone(), value(*kind, field)))
            .collect();
        serde_json::to_writer(&mut out, &object)?;
    }
    out.write_all(b"\n]\n")?;
    out.flush()
}

/// Writes a guide's file: a list of objects, one a line.
///
/// # Errors
/// Those of the stream.
pub fn write_objects(objects: &[impl Serialize], mut out: impl Write) -> io::Result<()> {
    out.write_all(b"[")?;
    for (number, object) in objects.iter().enumerate() {
        out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut out, object)?;
    }
    out.write_all(b"\n]\n")?;
    out.flush()
}

/// A field as JSON; numbers that JSON lacks, such as an infinite error, are null.
fn value(kind: Kind, field: &str) -> Value {
    match kind {
        _ if field.is_empty() => Value::Null,
        Kind::Text => Value::from(field),
        Kind::Int => field.parse::<i64>().map_or(Value::Null, Value::from),
        Kind::Float => field.parse::<f64>().map_or(Value::Null, Value::from),
        Kind::Bool => Value::from(field == "true"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::outcome::{Measurement, Outcome, Status};
    use crate::record::row::test_row;

    #[test]
    fn numbers_are_numbers_and_what_is_missing_is_null() {
        let measurement = Measurement {
            samples_ns: vec![3.0, 1.0, 2.0],
            ..Measurement::default()
        };
        let rows = [
            test_row(1, Outcome::measured(measurement)),
            test_row(2, Outcome::without_measurement(Status::Oom, "a \"word\"")),
        ];
        let mut bytes = Vec::new();
        write_records(&rows, &mut bytes).unwrap();
        let records: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(records[0]["median_ns"], 2.0);
        assert_eq!(records[0]["T"], 128);
        assert_eq!(records[1]["median_ns"], Value::Null);
        assert_eq!(records[1]["reason"], "a \"word\"");
        assert_eq!(records.as_array().unwrap().len(), 2);
        let mut none = Vec::new();
        write_records(&[], &mut none).unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&none).unwrap(),
            Value::Array(Vec::new())
        );
    }
}
