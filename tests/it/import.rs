//! Files for other programs: `records.csv` and `.json` by pandas, polars and DuckDB, Parquet, and
//! NVBench's own scripts; and the document of the columns.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::place::{Place, SCRIPT, code, null_manifest, text};
use crate::support::{has_package as has, python, skip};

/// A run with failures, missing values and all exports.
fn place() -> Place {
    let outcomes = "outcomes = [{ when = \"elements == 40\", status = \"oom\" }]\n";
    let exports = match cfg!(feature = "parquet") {
        true => "[output]\nexports = [\"json\", \"nvbench\", \"parquet\"]\n",
        false => "[output]\nexports = [\"json\", \"nvbench\"]\n",
    };
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{outcomes}{exports}")));
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    place
}

/// Runs a script in the run's folder.
fn runs(place: &Place, script: &str) {
    let output = Command::new(python())
        .args(["-c", script])
        .current_dir(place.run_folder())
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}\n{}", text(&output));
}

/// The checks of each reader's table: all rows, numbers as numbers, and missing values as missing.
const CHECKS: &str = "
def check(rows):
    assert len(rows) == 8, len(rows)
    ok = [row for row in rows if row['status'] == 'ok']
    assert len(ok) == 6
    for row in ok:
        assert isinstance(row['elements'], int) and isinstance(row['threads'], int)
        assert isinstance(row['median_ns'], float), row['median_ns']
        assert abs(row['median_ns'] / (100 * row['elements']) - 1) < 0.02
        assert len(row['point']) == 64
    for row in rows:
        if row['status'] == 'oom':
            assert row['median_ns'] is None or row['median_ns'] != row['median_ns']
";

#[test]
fn pandas_reads_records() {
    if !has("pandas", "pandas") {
        return;
    }
    let place = place();
    for read in [
        "read_csv('records.csv')",
        "read_json('exports/records.json')",
    ] {
        let script = format!("{CHECKS}\nimport pandas\ncheck(pandas.{read}.to_dict('records'))");
        runs(&place, &script);
    }
    runs(
        &place,
        "import pandas\nassert len(pandas.read_csv('samples.csv')) == 6 * 5",
    );
}

#[test]
fn polars_reads_records() {
    if !has("polars", "polars") {
        return;
    }
    let place = place();
    for read in [
        "read_csv('records.csv')",
        "read_json('exports/records.json')",
    ] {
        let script = format!("{CHECKS}\nimport polars\ncheck(polars.{read}.to_dicts())");
        runs(&place, &script);
    }
    runs(
        &place,
        "import polars\nassert len(polars.read_csv('samples.csv')) == 6 * 5",
    );
}

#[test]
fn duckdb_reads_records() {
    if !has("duckdb", "duckdb") {
        return;
    }
    let place = place();
    let mut files = vec!["records.csv", "exports/records.json"];
    if cfg!(feature = "parquet") {
        files.push("exports/records.parquet");
    }
    for file in files {
        let script = format!(
            "{CHECKS}\nimport duckdb\nfound = duckdb.sql(\"select * from '{file}'\")\n\
             check([dict(zip(found.columns, row)) for row in found.fetchall()])"
        );
        runs(&place, &script);
    }
    let script = "import duckdb\nassert duckdb.sql(\"select count(*) from 'samples.csv'\").fetchall()[0][0] == 30";
    runs(&place, script);
}

#[test]
fn nvbench_scripts_read_our_results() {
    if !has("cuda.bench.scripts", "cuda-bench") {
        return;
    }
    let place = place();
    let script = |module: &str, arguments: &[&str]| {
        let output = Command::new(python())
            .args(["-m", &format!("cuda.bench.scripts.{module}")])
            .args(arguments)
            .env("MPLBACKEND", "agg")
            .current_dir(place.run_folder().join("exports"))
            .output()
            .unwrap();
        let shown = text(&output);
        if shown.contains("required for") && shown.contains("pip install") {
            skip("cuda-bench", &shown);
            return None;
        }
        assert!(output.status.success(), "{module}: {shown}");
        assert!(
            !shown.contains("Traceback") && !shown.contains("WARNING"),
            "{module}: {shown}"
        );
        Some(shown)
    };
    let both = ["nvbench.json", "nvbench.json"];
    let compared = script("nvbench_compare", &[&both[..], &["--no-color"]].concat());
    // Six points with times, each compared with itself.
    assert!(compared.is_none_or(|shown| shown.matches("0.00%").count() >= 6));
    let robust = script("nvbench_compare_robust", &both);
    assert!(robust.is_none_or(|shown| shown.contains("builtin")));
    let walltime = script("nvbench_walltime", &["nvbench.json"]);
    assert!(walltime.is_none_or(|shown| shown.contains("copy forward builtin")));
    let histogram = script("nvbench_histogram", &["nvbench.json"]);
    assert!(histogram.is_none_or(|shown| shown.contains("elements=10")));
}

#[test]
fn a_build_without_parquet_says_so_before_it_measures() {
    if cfg!(feature = "parquet") {
        return;
    }
    let place = Place::new(&null_manifest(&format!(
        "{SCRIPT}[output]\nexports = [\"parquet\"]\n"
    )));
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 7, "{}", text(&output));
    assert!(
        text(&output).contains("--features parquet"),
        "{}",
        text(&output)
    );
    assert!(!place.path("results").exists());
}

/// `docs/records.md` has the table that the program has.
#[test]
fn columns_are_documented() {
    const MARKS: [&str; 2] = ["<!-- columns -->\n", "<!-- end of columns -->"];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/records.md");
    let document = fs::read_to_string(&path).unwrap();
    let start = document.find(MARKS[0]).unwrap() + MARKS[0].len();
    let end = document.find(MARKS[1]).unwrap();
    let table = sweeper::row::schema::markdown();
    let whole = format!("{}{table}{}", &document[..start], &document[end..]);
    crate::support::golden(&path, &whole).unwrap();
}

/// The results of an autotuner on one problem, each configuration `factor` times as slow.
fn t4(factor: f64) -> String {
    let result = |width: u32| {
        let times: Vec<f64> = (0..8)
            .map(|run| factor * f64::from(width * 100 + run))
            .collect();
        json!({
            "configuration": { "width": width },
            "times": { "compilation": 900.0, "runtimes": times },
            "invalidity": "correct",
        })
    };
    let refused = json!({ "configuration": { "width": 9 }, "invalidity": "constraints" });
    let results = [result(1), result(2), result(4), refused];
    json!({ "metadata": { "kernel_name": "scale" }, "results": results }).to_string()
}

#[test]
fn results_of_an_autotuner_are_reported_and_compared() {
    let place = Place::new("");
    for (name, factor) in [("a", 1.0), ("b", 1.5)] {
        fs::write(place.path(&format!("{name}.json")), t4(factor)).unwrap();
        let imported = place.sweeper(&["import", "t4", &format!("{name}.json"), "-o", name]);
        assert_eq!(code(&imported), 0, "{}", text(&imported));
    }
    let again = place.sweeper(&["import", "t4", "a.json", "-o", "a"]);
    assert_eq!(code(&again), 6, "{}", text(&again));

    let reported = place.sweeper(&["report", "a/records.csv"]);
    assert_eq!(code(&reported), 0, "{}", text(&reported));
    let tuned = fs::read_to_string(place.path("a/records-report/tuning.csv")).unwrap();
    assert!(tuned.contains("scale,forward,width=1,"), "{tuned}");
    let compared = text(&place.sweeper(&["compare", "a/records.csv", "b/records.csv"]));
    assert!(
        compared.contains("3 SLOWER") && compared.contains("1.500"),
        "{compared}"
    );
}
