//! Tables with a few columns for each backend, as people read them: tables that are too wide get a
//! line for each backend instead. Files for programs do not change.

use std::borrow::Cow;

use super::{Cell, Column, Table, Unit};

/// Greatest width of a table with backends side by side: characters of a terminal's line.
const WIDEST: usize = 100;

/// A table as it is printed, and how many lines each of its rows takes.
pub(super) struct Printed<'t> {
    pub(super) table: Cow<'t, Table>,
    pub(super) lines_per_row: usize,
}

/// The table itself if it fits into lines of `width` characters; else with a line for each backend.
pub(super) fn printed(table: &Table, width: usize) -> Printed<'_> {
    let owners = owners(table);
    if width <= WIDEST || owners.len() < 2 {
        return Printed {
            table: Cow::Borrowed(table),
            lines_per_row: 1,
        };
    }
    let shared: Vec<usize> = of(table, None).collect();
    // All backends have equal columns: the columns of the first one count.
    let held: Vec<usize> = of(table, Some(owners[0])).collect();
    let mut stacked = Table {
        name: table.name.clone(),
        title: table.title.clone(),
        columns: shared
            .iter()
            .map(|&place| table.columns[place].clone())
            .collect(),
        naming: 0,
        rows: Vec::new(),
        notes: table.notes.clone(),
    };
    stacked.plain(["backend"]);
    for &place in &held {
        match table.columns[place].unit {
            Unit::Ns => stacked.column("time_ns", Unit::Ns),
            Unit::Ratio | Unit::Speedup => stacked.column("speedup", Unit::Ratio),
            unit => stacked.column(&table.columns[place].name, unit),
        };
    }
    for row in &table.rows {
        for (number, owner) in owners.iter().enumerate() {
            let mut line: Vec<Cell> = shared
                .iter()
                .map(|&place| match number {
                    0 => row[place].clone(),
                    _ => Cell::word(""),
                })
                .collect();
            line.push(Cell::word(owner));
            line.extend(of(table, Some(owner)).map(|place| row[place].clone()));
            stacked.rows.push(line);
        }
    }
    Printed {
        table: Cow::Owned(stacked),
        lines_per_row: owners.len(),
    }
}

/// Backends that have columns of their own, in the order of the columns.
fn owners(table: &Table) -> Vec<&str> {
    let mut owners: Vec<&str> = Vec::new();
    for owner in table
        .columns
        .iter()
        .filter_map(|column| column.of.as_deref())
    {
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }
    owners
}

/// The places of a backend's columns, or of the columns that belong to no backend.
fn of<'t>(table: &'t Table, owner: Option<&'t str>) -> impl Iterator<Item = usize> + 't {
    let is_its = move |(_, column): &(usize, &Column)| column.of.as_deref() == owner;
    let found = table.columns.iter().enumerate().filter(is_its);
    found.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("by_T", "Backends by `T`");
        table.plain(["phase", "T"]);
        for name in ["eager", "compiled"] {
            table
                .column_of(name, format!("{name}_ns"), Unit::Ns)
                .column_of(name, format!("{name}_speedup"), Unit::Speedup);
        }
        let time = |value| Cell::Interval {
            value,
            low: value * 0.9,
            high: value * 1.1,
        };
        table.rows = vec![vec![
            Cell::word("forward"),
            Cell::Count(64),
            time(2000.0),
            time(1.0),
            time(1000.0),
            time(2.0),
        ]];
        table
    }

    #[test]
    fn what_is_narrow_stays_as_it_is() {
        let table = table();
        let printed = printed(&table, WIDEST);
        assert_eq!((&*printed.table, printed.lines_per_row), (&table, 1));
    }

    #[test]
    fn what_is_wide_has_a_line_for_each_backend() {
        let table = table();
        let printed = printed(&table, WIDEST + 1);
        let stacked = &*printed.table;
        let names: Vec<&str> = stacked.columns.iter().map(|held| &*held.name).collect();
        assert_eq!(names, ["phase", "T", "backend", "time_ns", "speedup"]);
        assert_eq!(printed.lines_per_row, 2);
        assert_eq!(stacked.rows.len(), 2);
        assert_eq!(stacked.rows[0][2], Cell::word("eager"));
        assert_eq!(stacked.rows[1][0], Cell::word(""));
        assert_eq!(stacked.rows[1][4], table.rows[0][5]);
    }
}
