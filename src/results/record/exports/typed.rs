//! Rows as columns of one kind each, for formats that have kinds.

use std::borrow::Cow;

use sweeper_program::Value;

use super::super::tables::{self, FileColumn};
use sweeper_model::row::Row;
use sweeper_model::row::entry::{Entry, Words};
use sweeper_model::row::schema::Kind;

/// A column of `records.csv`, with values of its kind.
pub(super) struct TypedColumn<'r> {
    /// Name of the column.
    pub(super) name: Cow<'r, str>,
    /// The kind of all its values.
    #[cfg_attr(
        not(feature = "parquet"),
        expect(dead_code, reason = "JSON has the kind of each value")
    )]
    pub(super) kind: Kind,
    /// One value a row; none where the field is empty.
    pub(super) values: Vec<Option<Value>>,
}

/// The columns of these rows, in the order of the file.
pub(super) fn typed_columns(rows: &[Row]) -> Vec<TypedColumn<'_>> {
    let mut words = Words::default();
    let entries: Vec<Entry> = rows.iter().map(|row| Entry::of(row, &mut words)).collect();
    let columns = tables::columns(rows).into_iter();
    columns
        .map(|column| {
            let values = entries.iter().map(|entry| column.value(entry)).collect();
            let (kind, values) = match column {
                FileColumn::Fixed(column) => (column.kind, values),
                FileColumn::Metric(column) if column.has_words() => (Kind::Text, values),
                FileColumn::Metric(_) => (Kind::Float, values),
                FileColumn::Named(_) => of_one_kind(values),
            };
            TypedColumn {
                name: column.name(),
                kind,
                values,
            }
        })
        .collect()
}

/// The narrowest kind that all values have by their texts, and the values as that kind: manifests
/// may write a number as a word, and readers of the CSV file can't tell them apart either.
fn of_one_kind(values: Vec<Option<Value>>) -> (Kind, Vec<Option<Value>>) {
    let texts: Vec<Option<String>> = values
        .iter()
        .map(|value| {
            value
                .as_ref()
                .map(Value::to_string)
                .filter(|text| !text.is_empty())
        })
        .collect();
    let present = || texts.iter().flatten();
    let kinds = [Kind::Int, Kind::Float, Kind::Bool];
    let mut fitting = kinds
        .into_iter()
        .filter(|&kind| present().all(|text| parse(kind, text).is_some()));
    let kind = match present().next() {
        Some(_) => fitting.next().unwrap_or(Kind::Text),
        None => Kind::Text,
    };
    let values = texts.iter().map(|text| parse(kind, text.as_deref()?));
    (kind, values.collect())
}

fn parse(kind: Kind, text: &str) -> Option<Value> {
    match kind {
        Kind::Text | Kind::Digest => Some(Value::from(text)),
        Kind::Int => text.parse().ok().map(Value::Int),
        Kind::Float => {
            let number = text.parse().ok().filter(|number: &f64| number.is_finite());
            number.map(Value::Float)
        }
        Kind::Bool => text.parse().ok().map(Value::Bool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_the_values() {
        let of = |values: &[Option<Value>]| of_one_kind(values.to_vec());
        let (int, float, text) = (Value::Int, Value::Float, |text: &str| {
            Some(Value::from(text))
        });
        assert_eq!(of(&[Some(int(1)), None, Some(int(-3))]).0, Kind::Int);
        let numbers = of(&[Some(int(1)), Some(float(2.5))]);
        assert_eq!(
            numbers,
            (Kind::Float, vec![Some(float(1.0)), Some(float(2.5))])
        );
        assert_eq!(
            of(&[text("1"), text("8")]),
            (Kind::Int, vec![Some(int(1)), Some(int(8))])
        );
        assert_eq!(of(&[Some(Value::Bool(true)), text("false")]).0, Kind::Bool);
        assert_eq!(
            of(&[Some(int(1)), text("log")]),
            (Kind::Text, vec![text("1"), text("log")])
        );
        assert_eq!(of(&[text(""), None]), (Kind::Text, vec![None, None]));
        assert_eq!(of(&[text("inf")]).0, Kind::Text);
    }
}
