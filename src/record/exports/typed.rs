//! Rows as columns of one kind each, for formats that have kinds.

use std::io;

use super::super::columns::{Kind, kind_of};
use super::super::row::Row;
use super::super::tables;

/// The columns of `records.csv` with their kinds, and its lines.
pub(super) struct TypedTable {
    /// Names and kinds, in the order of the file.
    pub(super) columns: Vec<(String, Kind)>,
    /// Fields; an empty one is missing.
    pub(super) lines: Vec<csv::StringRecord>,
}

impl TypedTable {
    /// The table of these rows.
    ///
    /// # Errors
    /// None that happen: it is made in memory.
    pub(super) fn of(rows: &[Row]) -> io::Result<Self> {
        let mut bytes = Vec::new();
        tables::write_records(rows, &mut bytes)?;
        let mut reader = csv::Reader::from_reader(bytes.as_slice());
        let header = reader.headers()?.clone();
        let lines: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>()?;
        let columns = header.iter().enumerate().map(|(index, name)| {
            let fields = lines.iter().map(|line| &line[index]);
            let kind = kind_of(name).unwrap_or_else(|| kind_of_fields(fields));
            (name.to_owned(), kind)
        });
        Ok(TypedTable {
            columns: columns.collect(),
            lines,
        })
    }
}

/// The narrowest kind that all fields that are there have.
fn kind_of_fields<'f>(fields: impl Iterator<Item = &'f str> + Clone) -> Kind {
    let mut present = fields.filter(|field| !field.is_empty());
    let all = |is: fn(&str) -> bool| present.clone().all(is);
    match () {
        () if present.clone().next().is_none() => Kind::Text,
        () if all(|field| field.parse::<i64>().is_ok()) => Kind::Int,
        () if all(|field| field.parse::<f64>().is_ok_and(f64::is_finite)) => Kind::Float,
        () if present.all(|field| matches!(field, "true" | "false")) => Kind::Bool,
        () => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_the_fields() {
        let of = |fields: &[&'static str]| kind_of_fields(fields.iter().copied());
        assert_eq!(of(&["1", "", "-3"]), Kind::Int);
        assert_eq!(of(&["1", "2.5"]), Kind::Float);
        assert_eq!(of(&["true", "false"]), Kind::Bool);
        assert_eq!(of(&["1", "log"]), Kind::Text);
        assert_eq!(of(&["", ""]), Kind::Text);
        assert_eq!(of(&["inf"]), Kind::Text);
    }
}
