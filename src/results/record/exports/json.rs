//! `records.json`: the rows of `records.csv` as a list of objects, with numbers as numbers and
//! missing values as null.

use std::io::{self, Write};

use serde_json::{Map, Value as Json};
use sweeper_program::Value;

use super::typed::typed_columns;
use sweeper_model::row::Row;

/// Writes `records.json`, one object a line.
///
/// # Errors
/// Those of the stream.
pub fn write_records(rows: &[Row], mut out: impl Write) -> io::Result<()> {
    let columns = typed_columns(rows);
    out.write_all(b"[")?;
    for number in 0..rows.len() {
        out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
        let object: Map<String, Json> = columns
            .iter()
            .map(|column| {
                (
                    column.name.to_string(),
                    json(column.values[number].as_ref()),
                )
            })
            .collect();
        serde_json::to_writer(&mut out, &object)?;
    }
    out.write_all(b"\n]\n")?;
    out.flush()
}

/// A value as JSON; numbers that JSON lacks, such as an infinite error, are null.
fn json(value: Option<&Value>) -> Json {
    match value {
        None => Json::Null,
        Some(Value::Text(text)) => Json::from(&**text),
        Some(Value::Int(number)) => Json::from(*number),
        Some(Value::Float(number)) => Json::from(*number),
        Some(Value::Bool(truth)) => Json::from(*truth),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_model::row::outcome::{Measurement, Outcome, Status};
    use sweeper_model::row::test_row;

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
        let records: Json = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(records[0]["median_ns"], 2.0);
        assert_eq!(records[0]["T"], 128);
        assert_eq!(records[1]["median_ns"], Json::Null);
        assert_eq!(records[1]["reason"], "a \"word\"");
        assert_eq!(records.as_array().unwrap().len(), 2);
        let mut none = Vec::new();
        write_records(&[], &mut none).unwrap();
        assert_eq!(
            serde_json::from_slice::<Json>(&none).unwrap(),
            Json::Array(Vec::new())
        );
    }
}
