//! Tables that are too wide for a terminal, as several that stand one below another: each has the
//! columns that name rows, and as many of the others as fit. Files for programs do not change.

use super::{Cell, Column, Table, Unit};

/// Characters of a terminal's line that no table and no note exceeds where it can be avoided.
pub(super) const LINE: usize = 160;

/// The column in which parameters stand that not all rows have.
const PROBLEM: &str = "problem";

/// Parts of a table that fit into lines, with its columns in order; `widths` measures columns.
pub(super) fn parts(table: &Table, widths: impl Fn(&Table) -> Vec<usize>) -> Vec<Table> {
    if widths(table).iter().sum::<usize>() <= LINE || table.naming == 0 {
        return vec![table.clone()];
    }
    let table = with_problems(table);
    let widths = widths(&table);
    let (names, values) = widths.split_at(table.naming);
    let named: usize = names.iter().sum();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut left = 0;
    for (value, &width) in values.iter().enumerate() {
        let column = table.naming + value;
        match parts.last_mut() {
            Some(part) if width <= left => part.push(column),
            _ => {
                parts.push((0..table.naming).chain([column]).collect());
                left = LINE.saturating_sub(named);
            }
        }
        left = left.saturating_sub(width);
    }
    parts.iter().map(|part| chosen(&table, part)).collect()
}

/// The table with some of its columns.
fn chosen(table: &Table, columns: &[usize]) -> Table {
    let cells = |row: &Vec<Cell>| columns.iter().map(|&column| row[column].clone()).collect();
    Table {
        columns: columns
            .iter()
            .map(|&column| table.columns[column].clone())
            .collect(),
        rows: table.rows.iter().map(cells).collect(),
        ..table.clone()
    }
}

/// The table with one column of those that name rows and are empty in some, as those of several
/// workloads are: `batch=64 depth=4`.
fn with_problems(table: &Table) -> Table {
    let is_partial = |column: &usize| table.rows.iter().any(|row| row[*column] == Cell::Empty);
    let partial: Vec<usize> = (0..table.naming).filter(is_partial).collect();
    let (Some(&first), true) = (partial.first(), partial.len() > 1) else {
        return table.clone();
    };
    let kept = (0..table.columns.len()).filter(|column| !partial[1..].contains(column));
    let mut folded = chosen(table, &kept.collect::<Vec<_>>());
    folded.naming -= partial.len() - 1;
    folded.columns[first] = Column {
        name: PROBLEM.to_owned(),
        unit: Unit::Plain,
        of: None,
    };
    for (row, held) in folded.rows.iter_mut().zip(&table.rows) {
        let named = partial.iter().filter_map(|&column| {
            let value = match &held[column] {
                Cell::Empty => return None,
                Cell::Word(word) => word.to_string(),
                Cell::Count(count) => count.to_string(),
                Cell::Number(value) | Cell::Interval { value, .. } => value.to_string(),
            };
            Some(format!("{}={value}", table.columns[column].name))
        });
        let named: Vec<String> = named.collect();
        row[first] = match named.is_empty() {
            true => Cell::Empty,
            false => Cell::word(named.join(" ")),
        };
    }
    folded
}

/// The lines of a note.
pub(super) fn lines(note: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in note.split(' ') {
        let last = lines.len() - 1;
        let length = lines[last].chars().count() + 1 + word.chars().count();
        // Notes are indented by two.
        if length + 2 > LINE && !lines[last].is_empty() {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of two workloads, with so many values of 20 characters.
    fn table(values: usize) -> Table {
        let mut table = Table::new("loops", "Loops");
        table
            .plain(["workload", "batch", "size", "iterations"])
            .names_rows();
        for value in 0..values {
            table.column(format!("value{value}"), Unit::Plain);
        }
        let names = [
            [Cell::word("mlp"), Cell::Count(8), Cell::Empty],
            [Cell::word("copy"), Cell::Empty, Cell::Number(0.5)],
        ];
        for (row, names) in names.into_iter().enumerate() {
            let values = (0..values).map(|value| Cell::Count((10 * row + value) as i64));
            let cells = names.into_iter().chain([Cell::Count(100)]);
            table.rows.push(cells.chain(values).collect());
        }
        table
    }

    #[test]
    fn what_fits_stays_and_all_else_is_there_once() {
        let width = |table: &Table| vec![20; table.columns.len()];
        assert_eq!(parts(&table(4), width), [table(4)]);
        let folded = parts(&table(12), width);
        let names = |part: &Table| -> Vec<String> {
            part.columns.iter().map(|held| held.name.clone()).collect()
        };
        // Three columns name rows, and five more fit.
        let begin = ["workload", "problem", "iterations"];
        let mut values = 0..12;
        for (part, count) in folded.iter().zip([5, 5, 2]) {
            let own = values.by_ref().take(count);
            let own: Vec<String> = own.map(|value| format!("value{value}")).collect();
            assert_eq!(names(part)[..3], begin);
            assert_eq!(names(part)[3..], own);
            assert_eq!(part.rows[0][1], Cell::word("batch=8"));
            assert_eq!(part.rows[1][1], Cell::word("size=0.5"));
        }
        assert_eq!(folded.len(), 3);
        assert_eq!(folded[1].rows[1][3], Cell::Count(15));
    }

    #[test]
    fn a_column_that_is_wider_than_a_line_is_shown_nevertheless() {
        let folded = parts(&table(2), |held| vec![2 * LINE; held.columns.len()]);
        let columns: Vec<usize> = folded.iter().map(|part| part.columns.len()).collect();
        assert_eq!(columns, [4, 4]);
    }

    #[test]
    fn notes_are_cut_between_words() {
        assert_eq!(lines("5 % of all"), ["5 % of all"]);
        let long = "word ".repeat(100);
        let cut = lines(long.trim());
        assert!(cut.len() > 3 && cut.iter().all(|line| line.len() + 2 <= LINE));
        assert_eq!(cut.join(" "), long.trim());
    }
}
