//! A table as text: for a terminal, CSV, Markdown, LaTeX.

use std::io::{self, Write};

use super::fold;
use super::stack::{self, Printed};
use super::{Cell, Column, Table, Unit, units};
use sweeper_model::quantity;

/// CSV with full precision; missing numbers are `nan`, as in Python. An interval takes three
/// columns.
///
/// # Errors
/// Those of `out`.
pub fn csv(table: &Table, out: impl Write) -> io::Result<()> {
    let wide: Vec<bool> = (0..table.columns.len())
        .map(|column| {
            let is_interval = |row: &Vec<Cell>| matches!(row[column], Cell::Interval { .. });
            table.rows.iter().any(is_interval)
        })
        .collect();
    let mut writer = csv::Writer::from_writer(out);
    let header = table.columns.iter().zip(&wide).flat_map(|(column, &wide)| {
        let name = &column.name;
        let ends = [format!("{name}_low"), format!("{name}_high")];
        std::iter::once(name.clone()).chain(ends.into_iter().filter(move |_| wide))
    });
    writer.write_record(header)?;
    for row in &table.rows {
        let mut record = Vec::with_capacity(row.len());
        for (cell, &wide) in row.iter().zip(&wide) {
            match cell {
                Cell::Interval { value, low, high } => {
                    let end = |end: f64| Some(end).filter(|end| !end.is_nan()).map(plain);
                    record.push(plain(*value));
                    record.extend([*low, *high].map(|number| end(number).unwrap_or_default()));
                }
                cell => {
                    record.push(exact(cell));
                    record.extend((0..2).filter(|_| wide).map(|_| String::new()));
                }
            }
        }
        writer.write_record(&record)?;
    }
    writer.flush()
}

fn exact(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Word(word) => word.to_string(),
        Cell::Count(count) => count.to_string(),
        Cell::Number(value) | Cell::Interval { value, .. } => plain(*value),
    }
}

fn plain(value: f64) -> String {
    match value {
        value if value.is_nan() => "nan".to_owned(),
        value if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
        value => value.to_string(),
    }
}

/// A cell as people read it.
fn shown(cell: &Cell, unit: Unit) -> String {
    match cell {
        Cell::Empty => "–".to_owned(),
        Cell::Word(word) => word.to_string(),
        Cell::Count(count) => count.to_string(),
        Cell::Number(value) if value.is_nan() => "–".to_owned(),
        Cell::Number(value) => quantity_of(*value, unit),
        // No interval, or an interval without a meaning: the baseline over itself.
        Cell::Interval { value, low, high } if low.is_nan() || high.is_nan() || low == high => {
            quantity_of(*value, unit)
        }
        Cell::Interval { value, low, high } => {
            if unit == Unit::Speedup {
                return quantity_of(*value, unit);
            }
            let half = ((high - value).max(value - low) / value * 100.0).abs();
            let digits = usize::from(half < 9.95);
            format!("{} ±{half:.digits$}%", quantity_of(*value, unit))
        }
    }
}

/// A cell of words and sizes as people read it.
pub fn plain_text(cell: &Cell) -> String {
    shown(cell, Unit::Plain)
}

fn quantity_of(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ns => quantity::time_ns(value),
        Unit::Ms => quantity::time_ns(value * 1e6),
        Unit::Gb => quantity::bytes((value * (1u64 << 30) as f64).round() as u64),
        Unit::PerSecond => format!("{}/s", quantity::scaled(value)),
        Unit::Ratio | Unit::Speedup => format!("{}×", quantity::significant(value)),
        Unit::Plain => quantity::significant(value),
    }
}

/// A column's name without the unit that its values show: `time_ms_median_mean` is
/// `time_median_mean`.
fn heading(column: &Column) -> String {
    let name = &column.name;
    match column.unit {
        Unit::Ns => without(name, &["ns"]),
        Unit::Ms => without(name, &["ms"]),
        Unit::Gb => without(name, &["gb"]),
        Unit::Ratio => name.strip_suffix("_speedup").unwrap_or(name).to_owned(),
        Unit::Speedup => "speedup".to_owned(),
        Unit::Plain | Unit::PerSecond => name.clone(),
    }
}

/// A name without some of the words in it.
pub(super) fn without(name: &str, words: &[&str]) -> String {
    let left = name.split('_').filter(|word| !words.contains(word));
    left.collect::<Vec<_>>().join("_")
}

/// True for columns that are set flush right.
pub fn is_number(table: &Table, column: usize) -> bool {
    table
        .rows
        .iter()
        .any(|row| !matches!(row[column], Cell::Word(_) | Cell::Empty))
}

/// Every field as people read it, the headings first.
pub fn texts(table: &Table) -> Vec<Vec<String>> {
    let headings = table.columns.iter().map(heading);
    let mut lines = vec![headings.collect::<Vec<_>>()];
    for row in &table.rows {
        let fields = row.iter().zip(&table.columns);
        lines.push(
            fields
                .map(|(cell, column)| shown(cell, column.unit))
                .collect(),
        );
    }
    lines
}

/// The characters of the widest field of each column.
fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    let columns = 0..lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    columns.map(width).collect()
}

/// The table as it is printed: if it is too wide for a line, with a line for each backend.
fn printed(table: &Table) -> Printed<'_> {
    stack::printed(table, spaced(table).iter().sum())
}

/// The characters of each column with the gap before it.
fn spaced(table: &Table) -> Vec<usize> {
    let widths = widths(&texts(table)).into_iter();
    widths.map(|width| width + 3).collect()
}

/// Aligned columns for a terminal, at most about `most` lines; `strong` marks headings. Columns
/// that do not fit into lines follow below.
pub fn terminal(table: &Table, most: usize, strong: impl Fn(&str) -> String) -> String {
    let Printed {
        table: stacked,
        lines_per_row,
    } = printed(table);
    let rows = (most / lines_per_row).max(1);
    let left_out = table.rows.len().saturating_sub(rows);
    let mut shown = stacked.into_owned();
    shown.rows.truncate(rows * lines_per_row);
    let mut text = format!("{}\n", strong(&table.title));
    for part in fold::parts(&shown, spaced) {
        text.push_str(&aligned(&part, &strong));
    }
    if left_out > 0 {
        text.push_str(&format!(
            "  and {left_out} more rows in {}.csv\n",
            table.name
        ));
    }
    for line in table.notes.iter().flat_map(|note| fold::lines(note)) {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// The lines of a table's columns.
fn aligned(table: &Table, strong: impl Fn(&str) -> String) -> String {
    let lines = texts(table);
    let widths = widths(&lines);
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let mut row = String::new();
        for (column, field) in line.iter().enumerate() {
            let pad = " ".repeat(widths[column] - field.chars().count());
            let gap = if column == 0 { "  " } else { "   " };
            match is_number(table, column) {
                true => row.extend([gap, &pad, field]),
                false => row.extend([gap, field, &pad]),
            }
        }
        let row = row.trim_end();
        text.push_str(&match number {
            0 => strong(row),
            _ => row.to_owned(),
        });
        text.push('\n');
    }
    text
}

/// A table of GitHub's Markdown.
pub fn markdown(table: &Table) -> String {
    let printed = printed(table);
    let table = &*printed.table;
    let escaped = |field: &str| field.replace('|', "\\|").replace('\n', " ");
    let mut text = format!("**{}**\n\n", table.title);
    for (number, line) in units::texts(table).iter().enumerate() {
        let fields: Vec<String> = line.iter().map(|field| escaped(field)).collect();
        text.push_str(&format!("| {} |\n", fields.join(" | ")));
        if number == 0 {
            let rules = (0..line.len()).map(|column| match is_number(table, column) {
                true => "---:",
                false => "---",
            });
            text.push_str(&format!("| {} |\n", rules.collect::<Vec<_>>().join(" | ")));
        }
    }
    for note in &table.notes {
        text.push_str(&format!("\n{note}.\n"));
    }
    text
}

/// Rows of a table of LaTeX that one page holds, and characters of a line at the usual size.
const ROWS_OF_PAGE: usize = 45;
const WIDTH_OF_PAGE: usize = 80;

/// A table of LaTeX with the rules of `booktabs`: one that floats, or a `longtable` where a page
/// does not hold it; in small letters where a line does not.
pub fn latex(table: &Table) -> String {
    let printed = printed(table);
    let table = &*printed.table;
    let texts = units::texts(table);
    let columns = 0..table.columns.len();
    let alignment = columns
        .clone()
        .map(|column| match is_number(table, column) {
            true => 'r',
            false => 'l',
        });
    let alignment: String = alignment.collect();
    let width = |column: usize| texts.iter().map(|line| line[column].chars().count()).max();
    let width: usize = columns.map(|column| width(column).unwrap_or(0) + 2).sum();
    let size = match width > WIDTH_OF_PAGE {
        true => "\\footnotesize\\setlength{\\tabcolsep}{3pt}\n",
        false => "",
    };
    let caption = latex_text(&table.title);
    let mut lines = texts.iter().map(|line| {
        let fields: Vec<String> = line.iter().map(|field| latex_text(field)).collect();
        format!("{} \\\\\n", fields.join(" & "))
    });
    let head = format!("\\toprule\n{}\\midrule\n", lines.next().unwrap_or_default());
    let body: String = lines.collect();
    let notes = table.notes.iter().map(|note| latex_text(note));
    let notes = notes.map(|note| format!("\\par\\footnotesize {note}.\n"));
    let notes: String = notes.collect();
    if table.rows.len() > ROWS_OF_PAGE {
        return format!(
            "% needs \\usepackage{{booktabs,longtable}}\n{{{size}\\begin{{longtable}}{{{alignment}}}\n\
             \\caption{{{caption}}}\\\\\n{head}\\endfirsthead\n{head}\\endhead\n\\bottomrule\n\
             \\endlastfoot\n{body}\\end{{longtable}}\n{notes}}}\n"
        );
    }
    format!(
        "% needs \\usepackage{{booktabs}}\n\\begin{{table}}\n\\centering\n{size}\\caption{{{caption}}}\n\
         \\begin{{tabular}}{{{alignment}}}\n{head}{body}\\bottomrule\n\\end{{tabular}}\n{notes}\\end{{table}}\n"
    )
}

/// Text with LaTeX's own signs escaped. A word in backquotes is set in typewriter.
fn latex_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_code = false;
    for letter in text.chars() {
        match letter {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => out.extend(['\\', letter]),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '\\' => out.push_str("\\textbackslash{}"),
            '<' => out.push_str("$<$"),
            '>' => out.push_str("$>$"),
            '±' => out.push_str("$\\pm$"),
            '×' => out.push_str("$\\times$"),
            '–' => out.push_str("--"),
            '\n' => out.push(' '),
            '`' => {
                out.push_str(if is_code { "}" } else { "\\texttt{" });
                is_code = !is_code;
            }
            letter => out.push(letter),
        }
    }
    if is_code {
        out.push('}');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("example", "Times of `a_b`");
        table
            .plain(["backend", "T"])
            .column("time_ms", Unit::Ms)
            .column("a_ns", Unit::Ns)
            .column("ratio", Unit::Ratio);
        let interval = Cell::Interval {
            value: 2000.0,
            low: 1900.0,
            high: 2040.0,
        };
        table.rows.push(vec![
            Cell::word("fused|x_1"),
            Cell::Count(128),
            Cell::Number(1.25),
            interval,
            Cell::Number(12.345),
        ]);
        table.rows.push(vec![
            Cell::word("s"),
            Cell::Count(64),
            Cell::Number(f64::NAN),
            Cell::Empty,
            Cell::Number(0.5),
        ]);
        table.notes.push("5 % of <all>".to_owned());
        table
    }

    #[test]
    fn csv_is_exact() {
        let mut text = Vec::new();
        csv(&table(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "backend,T,time_ms,a_ns,a_ns_low,a_ns_high,ratio\n\
             fused|x_1,128,1.25,2000,1900,2040,12.345\ns,64,nan,,,,0.5\n"
        );
    }

    #[test]
    fn terminals_get_columns() {
        let text = terminal(&table(), 10, str::to_owned);
        assert_eq!(
            text,
            "Times of `a_b`\n  \
             backend       T      time               a   ratio\n  \
             fused|x_1   128   1.25 ms   2.00 us ±5.0%   12.3×\n  \
             s            64         –               –   0.50×\n  \
             5 % of <all>\n"
        );
        assert!(terminal(&table(), 1, str::to_owned).contains("and 1 more rows in example.csv"));
    }

    #[test]
    fn markdown_and_latex_escape_what_they_must() {
        let text = markdown(&table());
        assert!(
            text.contains("| --- | ---: | ---: | ---: | ---: |"),
            "{text}"
        );
        assert!(text.contains("fused\\|x_1"), "{text}");
        let text = latex(&table());
        assert!(
            text.contains("\\caption{Times of \\texttt{a\\_b}}"),
            "{text}"
        );
        assert!(
            text.contains("time (ms) & a (us) & ratio \\\\\n")
                && text.contains("2.00 $\\pm$ 0.10 & 12.3 \\\\"),
            "{text}"
        );
        assert!(text.contains("5 \\% of $<$all$>$."), "{text}");
        let mut long = table();
        let row = long.rows[1].clone();
        long.rows.resize(ROWS_OF_PAGE + 1, row);
        let long = latex(&long);
        assert_eq!(long.matches("time (ms) & a (us)").count(), 2, "{long}");
        assert!(!long.contains("footnotesize\\set"), "{long}");
    }
}
