//! Lines of workloads as a case: a grid where they are one, else axes that walk together.

use std::fmt::Write;

/// The widest line of a list.
const WIDTH: usize = 100;

/// Values of the parameters in which the workloads of a definition differ.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Names of the parameters.
    pub(super) names: Vec<String>,
    /// Their values, as TOML, for each workload.
    pub(super) rows: Vec<Vec<String>>,
}

impl Lines {
    /// Adds the values of a workload, unless one before has them all.
    pub(super) fn add(&mut self, row: Vec<String>) {
        if !self.rows.contains(&row) {
            self.rows.push(row);
        }
    }

    /// Takes out a parameter.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(at) = self.names.iter().position(|held| held == name) {
            self.names.remove(at);
            self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    }

    /// Takes out a parameter that has one value in all lines; that value.
    pub(super) fn take_constant(&mut self, name: &str) -> Option<String> {
        let at = self.names.iter().position(|held| held == name)?;
        let [value] = self.distinct(at).try_into().ok()?;
        self.remove(name);
        Some(value)
    }

    /// The values of a parameter, each once, in the order of the lines.
    fn distinct(&self, at: usize) -> Vec<String> {
        let mut found = Vec::new();
        for value in self.rows.iter().map(|row| &row[at]) {
            if !found.contains(value) {
                found.push(value.clone());
            }
        }
        found
    }

    /// Writes the keys of the case of a workload that follow its name.
    pub(super) fn write(&self, out: &mut String, case: &str) {
        let distinct: Vec<Vec<String>> =
            (0..self.names.len()).map(|at| self.distinct(at)).collect();
        let points = distinct
            .iter()
            .try_fold(1usize, |all, values| all.checked_mul(values.len()));
        // Lines are different from each other: as many as combinations are all combinations.
        let is_grid = points == Some(self.rows.len());
        let mut walking = Vec::new();
        for (name, values) in self.names.iter().zip(distinct) {
            match values.as_slice() {
                [value] => _ = writeln!(out, "grid.{name} = {value}"),
                values if is_grid => out.push_str(&list(&format!("grid.{name}"), values)),
                _ => walking.push(name),
            }
        }
        if walking.is_empty() {
            return;
        }
        let _ = write!(out, "\n[[case.{case}.zip]]\n");
        for (at, name) in self.names.iter().enumerate() {
            if walking.contains(&name) {
                let values: Vec<String> = self.rows.iter().map(|row| row[at].clone()).collect();
                out.push_str(&list(&format!("axes.{name}"), &values));
            }
        }
    }
}

/// A key with a list, in as many lines as it takes.
fn list(key: &str, values: &[String]) -> String {
    let in_one = format!("{key} = [{}]\n", values.join(", "));
    if in_one.len() <= WIDTH {
        return in_one;
    }
    let mut out = format!("{key} = [");
    let mut width = WIDTH;
    for value in values {
        if width + value.len() + 2 > WIDTH {
            out.push_str("\n    ");
            width = 4;
        } else {
            out.push(' ');
            width += 1;
        }
        let _ = write!(out, "{value},");
        width += value.len() + 1;
    }
    out.push_str("\n]\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(names: &[&str], rows: &[&[i64]]) -> String {
        let mut lines = Lines {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
        };
        for row in rows {
            lines.add(row.iter().map(i64::to_string).collect());
        }
        let mut out = String::new();
        lines.write(&mut out, "c");
        out
    }

    #[test]
    fn lines_are_a_grid_or_walk_together() {
        let grid = written(&["a", "b"], &[&[1, 4], &[2, 4], &[1, 5], &[2, 5], &[1, 4]]);
        assert_eq!(grid, "grid.a = [1, 2]\ngrid.b = [4, 5]\n");
        let zip = written(&["a", "b", "c"], &[&[1, 4, 7], &[2, 5, 7], &[1, 5, 7]]);
        assert_eq!(
            zip,
            "grid.c = 7\n\n[[case.c.zip]]\naxes.a = [1, 2, 1]\naxes.b = [4, 5, 5]\n"
        );
    }

    #[test]
    fn long_lists_are_broken() {
        let rows: Vec<[i64; 1]> = (1000..1040).map(|value| [value]).collect();
        let rows: Vec<&[i64]> = rows.iter().map(|row| &row[..]).collect();
        let text = written(&["m"], &rows);
        assert!(text.starts_with("grid.m = [\n    1000, 1001,"), "{text}");
        assert!(text.ends_with("1039,\n]\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }
}
