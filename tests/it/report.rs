//! Reports of runs and of bare CSV files, and errors of bad ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use super::place::{Place, SCRIPT, code, column, null_manifest, text};
use crate::support::golden;

const HEADER: &str = "T,K,C,B,KC,backend,semiring,phase,time_ms_median,time_ms_iqr_low,\
    time_ms_iqr_high,time_per_position_ms,peak_allocated_gb,peak_reserved_gb,status,error_msg,\
    memory_potentials_gb,memory_dp_state_gb,memory_workspace_gb,memory_autograd_gb\n";

/// A row of a foreign `benchmark_full.csv`; a missing time means out of memory.
fn row(
    shape: [u32; 3],
    backend: &str,
    semiring: &str,
    phase: &str,
    time_ms: Option<f64>,
) -> String {
    let [t, k, c] = shape;
    let start = format!("{t},{k},{c},4,{},{backend},{semiring},{phase}", k * c);
    match time_ms {
        Some(ms) => {
            let peak_gb = f64::from(t * k * c) / f64::from(1 << 20);
            format!(
                "{start},{ms},{},{},0,{peak_gb},1,success,,0,0,0,0\n",
                ms * 0.9,
                ms * 1.1
            )
        }
        None => format!("{start},nan,nan,nan,nan,nan,nan,oom,out of memory,nan,nan,nan,nan\n"),
    }
}

/// The slow backend takes a microsecond for each state and position; the fast one starts later and
/// grows half as fast, so that it is ahead from 24 states on. Backward takes three times as long as
/// forward, max half as long as log. The slow one runs out of memory at the largest shape.
fn benchmark() -> String {
    let mut text = HEADER.to_owned();
    for t in [128, 256] {
        for (k, c) in [(4, 3), (8, 3), (4, 6), (8, 6)] {
            let work = f64::from(t * k * c);
            for (semiring, share) in [("Log", 1.0), ("Max", 0.5)] {
                for (phase, factor) in [("forward", 1.0), ("backward", 3.0)] {
                    let slow = (t, k * c) != (256, 48);
                    let slow_ms = slow.then_some(work / 1e3 * share * factor);
                    let fast_ms =
                        f64::from(t) * (f64::from(k * c) / 2.0 + 8.0) / 1e3 * share * factor;
                    text += &row([t, k, c], "linear_scan_streaming", semiring, phase, slow_ms);
                    text += &row([t, k, c], "triton", semiring, phase, Some(fast_ms));
                }
            }
        }
    }
    text
}

/// The least and the greatest numbers that a file can hold are shown, if only as they are.
#[test]
fn times_of_any_size_are_reported() {
    let shape = [128, 4, 3];
    for time_ms in [5e-324, 1e-310, 1e-20, 1e300] {
        let rows = [
            row(shape, "linear_scan_streaming", "Log", "forward", Some(3.0)),
            row(shape, "triton", "Log", "forward", Some(time_ms)),
            row([256, 4, 3], "triton", "Log", "forward", Some(time_ms)),
        ];
        let place = place(&[("theirs.csv", &(HEADER.to_owned() + &rows.concat()))]);
        reported(
            &place,
            &["theirs.csv", "--baseline", "linear_scan_streaming"],
        );
    }
}

/// A folder with files in it; its manifest is never run.
fn place(files: &[(&str, &str)]) -> Place {
    let place = Place::new(&null_manifest(SCRIPT));
    for (name, text) in files {
        fs::write(place.path(name), text).unwrap();
    }
    place
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn reported(place: &Place, args: &[&str]) -> Output {
    let output = place.sweeper(&[&["report"], args].concat());
    assert_eq!(code(&output), 0, "{}", text(&output));
    output
}

fn refused(place: &Place, args: &[&str], expected: i32) -> String {
    let output = place.sweeper(&[&["report"], args].concat());
    assert_eq!(code(&output), expected, "{}", text(&output));
    text(&output)
}

/// The description inside an SVG.
fn description(path: &Path) -> String {
    let text = read(path);
    let start = text.find("<desc>").unwrap() + 6;
    text[start..text.find("</desc>").unwrap()].to_owned()
}

#[test]
fn the_guides_tables_are_as_promised() {
    let place = place(&[("theirs.csv", &benchmark())]);
    let args = [
        "theirs.csv",
        "--baseline",
        "linear_scan_streaming",
        "--no-plots",
    ];
    reported(&place, &args);
    let folder = place.path("theirs-report");
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/report");
    for name in [
        "summary_stats.csv",
        "backward_forward_ratios.csv",
        "semiring_overhead.csv",
        "crossover_points.csv",
        "baseline_ratios.csv",
        "speedup.csv",
        "speedup.md",
        "speedup.tex",
        "best_backend.csv",
        "not_measured.csv",
    ] {
        golden(&goldens.join(name), &read(&folder.join(name))).unwrap();
    }
    for (name, header) in [
        (
            "summary_stats.csv",
            "backend,semiring,phase,time_ms_median_mean,time_ms_median_std,time_ms_median_min,\
             time_ms_median_max,peak_allocated_gb_mean,peak_allocated_gb_max,positions_per_sec_mean,\
             positions_per_sec_max,KC_min,KC_max,T_min,T_max",
        ),
        (
            "backward_forward_ratios.csv",
            "backend,semiring,T,K,C,KC,forward_ms,backward_ms,ratio",
        ),
        (
            "semiring_overhead.csv",
            "backend,semiring,phase,T,K,C,KC,time_ms,log_time_ms,overhead",
        ),
        (
            "crossover_points.csv",
            "semiring,phase,T,crossover_KC,backend_a,backend_b,time_a_ms,time_b_ms,speedup",
        ),
        (
            "baseline_ratios.csv",
            "backend,semiring,phase,T,K,C,KC,time_ms,baseline_time_ms,time_ratio,peak_gb,\
             baseline_memory_gb,memory_ratio",
        ),
    ] {
        let table = read(&folder.join(name));
        assert_eq!(table.lines().next(), Some(header), "{name}");
    }
    let all = |name: &str, column_name: &str, expected: &str| {
        let values = column(&read(&folder.join(name)), column_name);
        assert!(!values.is_empty(), "{name}");
        for value in values {
            assert_eq!(value, expected, "{name}: {column_name}");
        }
    };
    all("semiring_overhead.csv", "overhead", "0.5");
    all("crossover_points.csv", "backend_a", "triton");
    all("crossover_points.csv", "crossover_KC", "24");
    all("baseline_ratios.csv", "memory_ratio", "1");
    for ratio in column(&read(&folder.join("backward_forward_ratios.csv")), "ratio") {
        assert!(
            (ratio.parse::<f64>().unwrap() - 3.0).abs() < 1e-12,
            "{ratio}"
        );
    }
}

#[test]
fn the_guides_plots_are_made_in_every_format() {
    let place = place(&[("theirs.csv", &benchmark())]);
    reported(
        &place,
        &[
            "theirs.csv",
            "--baseline",
            "linear_scan_streaming",
            "--format",
            "svg,pdf,png",
            "--output-dir",
            "plots",
        ],
    );
    for (kind, suffix) in [
        ("scalability_T", "_log_forward"),
        ("scalability_KC", "_max_backward"),
        ("throughput", "_log_forward"),
        ("memory_efficiency", "_log_forward"),
        ("backward_forward_ratio", "_log"),
        ("semiring_overhead", "_forward"),
        ("time_ratio_baseline", "_log_forward"),
        ("memory_ratio_baseline", "_log_forward"),
        ("time_ratio_heatmap", "_log_forward"),
        ("memory_ratio_heatmap", "_log_forward"),
        ("feasibility", "_log_forward"),
    ] {
        for (format, start) in [
            ("svg", &b"<svg "[..]),
            ("pdf", b"%PDF-"),
            ("png", b"\x89PNG"),
        ] {
            let path = place.path("plots").join(format!("{kind}{suffix}.{format}"));
            let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            assert!(bytes.starts_with(start), "{path:?}");
        }
        let said = description(&place.path("plots").join(format!("{kind}{suffix}.svg")));
        assert!(!said.contains("Nothing to show"), "{kind}: {said}");
        assert!(said.contains("B = 4"), "{kind}: {said}");
    }
    let said = description(&place.path("plots/scalability_KC_log_forward.svg"));
    assert!(said.contains("at T = 128, B = 4"), "{said}");
    let failures = "linear_scan_streaming 1 oom";
    let said = description(&place.path("plots/feasibility_log_forward.svg"));
    assert!(said.contains(failures), "{said}");
    let said = description(&place.path("plots/scalability_T_log_forward.svg"));
    assert!(
        said.contains("quartiles; number of samples not recorded"),
        "{said}"
    );
}

#[test]
fn a_run_and_its_table_make_one_report() {
    let place = Place::new(&null_manifest(&format!(
        "{SCRIPT}\n[report]\nbaseline = \"builtin\"\n"
    )));
    place.sweeper(&["run", "m.toml"]);
    let run = place.run_folder();
    let digits = run.file_name().unwrap().to_str().unwrap();
    let digits = &digits["nulls-".len()..][..6];
    let output = reported(&place, &[digits, "--by", "elements", "--format", "svg"]);
    assert!(
        text(&output).contains("Backends by `elements`"),
        "{}",
        text(&output)
    );
    let expected =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/report/by_elements.csv");
    let by = read(&run.join("report/by_elements.csv"));
    golden(&expected, &by).unwrap();
    let table = run.join("records.csv");
    let table = table.to_str().unwrap();
    reported(
        &place,
        &[
            table,
            "--baseline",
            "builtin",
            "--by",
            "elements",
            "--output-dir",
            "other",
        ],
    );
    assert_eq!(read(&place.path("other/by_elements.csv")), by);
    let said = description(&run.join("report/scalability_elements_forward.svg"));
    assert!(
        said.contains("medians of 5 samples with 93 % intervals"),
        "{said}"
    );
    let summary = read(&run.join("report/summary_stats.csv"));
    assert!(summary.contains("elements_min,elements_max"), "{summary}");
}

/// No row depends on how busy devices were.
#[test]
fn damaged_usage_is_a_warning() {
    let place = Place::new(&null_manifest(SCRIPT));
    place.sweeper(&["run", "m.toml"]);
    let run = place.run_folder();
    fs::write(run.join("usage.json"), "{\"wall_s\":").unwrap();
    let run = run.to_str().unwrap();
    let said = text(&reported(&place, &[run, "--no-plots"]));
    assert!(said.contains("usage.json is damaged"), "{said}");
    let compared = place.sweeper(&["compare", run, run]);
    assert_eq!(code(&compared), 0, "{}", text(&compared));
}

/// Models of several sizes make one section: they are held against each other, by their number of
/// parameters and by context, and not a section each.
#[test]
fn models_are_compared_by_context_and_by_parameters() {
    let place = Place::new(
        "schema = 1\nname = \"models\"\nabout = \"What does size cost?\"\n\
         [grid]\ncontext = [16, 32]\nlayers = [1, 2]\nbatch = 1\nvocabulary = 16\n\
         d_model = 8\nd_ff = 8\nheads = 1\n\
         [case.models]\nworkload = \"transformer\"\nphases = [\"step\"]\n\
         backends = [\"eager\", \"compiled\"]\n[device]\nuse = \"null\"\n\
         [null]\ntime_ns = \"1e6 * context\"\n\
         outcomes = [{ when = \"context == 32 and backend == 'eager'\", status = \"oom\" }]\n",
    );
    place.sweeper(&["run", "m.toml"]);
    let run = place.run_folder();
    let run_text = run.to_str().unwrap();
    reported(
        &place,
        &[run_text, "--baseline", "eager", "--format", "svg"],
    );
    let said = description(&run.join("report/speedup_parameters_step.svg"));
    assert!(said.contains("at context = 16"), "{said}");
    let said = description(&run.join("report/speedup_context_step.svg"));
    assert!(said.contains("eager 1 oom"), "{said}");
    assert!(!said.contains("= 0"), "{said}");
    let by = read(&run.join("report/by_context.csv"));
    assert_eq!(column(&by, "context"), ["16", "32"], "{by}");
    assert_eq!(column(&by, "compiled_speedup")[0], "1", "{by}");
    let ratios = read(&run.join("report/baseline_ratios.csv"));
    // 2 x 16 x 8, 4 x 8 x 8 + 3 x 8 x 8 + 2 x 8 a layer, and 8.
    assert_eq!(column(&ratios, "parameters"), ["728", "1192"], "{ratios}");
}

/// Reasons of plots that would be empty, by the plots' places.
fn empty(place: &Place, args: &[&str]) -> Vec<(String, String)> {
    let output = reported(place, &[args, &["--json"]].concat());
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let reasons = said["empty_plots"].as_array().unwrap().iter();
    let of_reason = |held: &serde_json::Value| {
        let reason = held["reason"].as_str().unwrap().to_owned();
        let plots = held["plots"].as_array().unwrap().clone();
        let plots = plots
            .into_iter()
            .map(|plot| plot.as_str().unwrap().to_owned());
        plots.map(|plot| (plot, reason.clone())).collect::<Vec<_>>()
    };
    reasons.flat_map(of_reason).collect()
}

#[test]
fn plots_that_would_be_empty_are_listed_with_the_reason() {
    let failed: String = [128, 256]
        .map(|t| row([t, 4, 3], "triton", "Log", "forward", None))
        .concat();
    let one = row([128, 4, 3], "triton", "Log", "forward", Some(1.5));
    let no_time = one.replace(",1.5,", ",nan,");
    for (rows, plot, reason) in [
        (
            &failed,
            "scalability_T_log_forward",
            "no point was measured; without a result: triton 2 oom",
        ),
        (
            &failed,
            "backward_forward_ratio_log",
            "both the forward and the backward phase",
        ),
        (
            &failed,
            "semiring_overhead_forward",
            "in the log semiring and in another one",
        ),
        (
            &one,
            "time_ratio_baseline_log_forward",
            "there is no baseline; choose one with --baseline",
        ),
        (
            &one,
            "time_ratio_heatmap_log_forward",
            "there is no baseline",
        ),
        (&one, "roofline_log_forward", "to place it by"),
        (
            &no_time,
            "throughput_log_forward",
            "triton 1 without a time",
        ),
    ] {
        let place = place(&[("some.csv", &format!("{HEADER}{rows}"))]);
        let args = ["some.csv", "--format", "svg,png", "--output-dir", "out"];
        let found = empty(&place, &args);
        let found = found.iter().find(|(held, _)| held == plot);
        let said = &found.unwrap_or_else(|| panic!("{plot} is not listed")).1;
        assert!(said.contains(reason), "{plot}: {said}");
        for end in ["svg", "png"] {
            assert!(
                !place.path("out").join(format!("{plot}.{end}")).exists(),
                "{plot}"
            );
        }
        let index = read(&place.path("out/index.html"));
        let line = format!("<li><code>{plot}</code>: ");
        assert!(index.contains(&line), "{plot}: {index}");
        let shown = text(&reported(&place, &args));
        assert!(
            shown.contains("not drawn: ") && shown.contains(reason),
            "{shown}"
        );
    }
    let empty = place(&[("none.csv", HEADER)]);
    let output = reported(&empty, &["none.csv"]);
    assert!(
        text(&output).contains("the file has no rows"),
        "{}",
        text(&output)
    );
}

/// Values of an attribute in a page, as files are named.
fn links(html: &str, attribute: &str) -> Vec<String> {
    let start = format!(" {attribute}=\"");
    let pieces = html.split(&start).skip(1);
    let values = pieces.filter_map(|piece| piece.split('"').next());
    values.map(|value| value.replace("%20", " ")).collect()
}

#[test]
fn every_file_of_a_report_is_linked_from_its_index() {
    let place = Place::new(&null_manifest(&format!(
        "{SCRIPT}outcomes = [{{ when = \"elements == 40\", status = \"oom\" }}]\n\
         [report]\nbaseline = \"builtin\"\n"
    )));
    place.sweeper(&["run", "m.toml"]);
    let run = place.run_folder();
    let run = run.to_str().unwrap();
    reported(&place, &["--html", run]);
    let output = reported(&place, &[run, "--format", "pdf,svg", "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let folder = place.run_folder().join("report");
    let html = read(&folder.join("index.html"));
    let linked: Vec<PathBuf> = links(&html, "href")
        .iter()
        .filter(|link| !link.starts_with(['#']) && !link.starts_with("data:"))
        .map(|link| folder.join(link))
        .collect();
    for path in &linked {
        assert!(path.is_file(), "{path:?}");
    }
    assert!(linked.contains(&folder.join("report.html")));
    for file in said["files"].as_array().unwrap() {
        let file = place.path(file.as_str().unwrap());
        let is_index = file.ends_with("index.html");
        assert!(is_index || linked.contains(&file), "{file:?} is not linked");
    }
    let pictures = links(&html, "src");
    let plots = linked
        .iter()
        .filter(|path| path.extension().unwrap() == "svg");
    assert!(pictures.len() > 2 && pictures.len() == plots.count());
    for picture in pictures {
        assert!(
            picture.starts_with("data:image/png;base64,"),
            "{picture:.40}"
        );
    }
    assert!(
        html.contains("<p>8 points, 2 of them without a result; "),
        "{html}"
    );
}

/// The environment tells one of several equal GPUs; titles name the model.
#[test]
fn titles_name_a_gpu_by_its_model() {
    let records =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("records/2026-11-24-h200-published-sizes");
    // Without the environment beside it there are the names in the rows alone.
    let rows = read(&records.join("records.csv"));
    assert!(rows.contains("NVIDIA H200 GPU-"));
    let place = place(&[("alone.csv", &rows)]);
    let args = ["alone.csv", "--format", "svg", "--output-dir", "out"];
    let shown = text(&reported(&place, &args));
    let mut folders = vec![place.path("out")];
    let mut titles = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|end| end == "svg" || end == "html")
            {
                let held = read(&path);
                assert!(!held.contains("GPU-"), "{path:?}");
                titles += usize::from(held.contains("NVIDIA H200"));
            }
        }
    }
    assert!(titles > 10, "{titles}");
    assert!(!shown.contains("GPU-"), "{shown}");
}

#[test]
fn bad_files_are_refused_with_the_place() {
    let whole = benchmark();
    let cut = &whole[..whole.len() - 9];
    let edited = whole.replacen("success", "succes", 1);
    let place = place(&[
        ("cut.csv", cut),
        ("edited.csv", &edited),
        ("other.csv", "a,b\n1,2\n"),
        ("fine.csv", &whole),
    ]);
    let said = refused(&place, &["cut.csv"], 6);
    assert!(
        said.contains("cut.csv:65: 16 fields where the header has 20"),
        "{said}"
    );
    let said = refused(&place, &["edited.csv"], 6);
    assert!(
        said.contains("edited.csv:2: column `status`: `succes` is not success,"),
        "{said}"
    );
    let said = refused(&place, &["other.csv"], 6);
    assert!(said.contains("no column"), "{said}");
    let said = refused(&place, &["nowhere.csv"], 6);
    assert!(said.contains("no such file or folder"), "{said}");
    let said = refused(&place, &["fine.csv", "--by", "speed"], 2);
    assert!(
        said.contains("no row has an axis `speed`; there are B, C, K, KC, T, "),
        "{said}"
    );
    let said = refused(&place, &["fine.csv", "--baseline", "cudnn"], 2);
    assert!(
        said.contains("there are linear_scan_streaming, triton"),
        "{said}"
    );
    refused(&place, &["fine.csv", "--format", "bmp"], 2);
    refused(&place, &[], 2);
}

#[test]
fn machines_are_told_apart_and_versions_not_mixed() {
    let faster = benchmark().replace("linear_scan_streaming", "triton_pytorch");
    let place = place(&[("here.csv", &benchmark()), ("there.csv", &faster)]);
    let output = reported(
        &place,
        &["here.csv", "there.csv", "--no-plots", "--output-dir", "out"],
    );
    let shown = text(&output);
    for label in ["triton (here)", "triton (there)", "triton_pytorch (there)"] {
        assert!(shown.contains(label), "{label}: {shown}");
    }
    place.sweeper(&["run", "m.toml"]);
    let new = place.run_folder();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("records/2026-11-20-h200-copy");
    let both = [new.to_str().unwrap(), old.to_str().unwrap()];
    let said = refused(&place, &both, 6);
    assert!(
        said.contains("rows of version 1") && said.contains("of version 0"),
        "{said}"
    );
    reported(&place, &[both[1], "--no-plots", "--output-dir", "old"]);
}

#[test]
fn scripts_get_json() {
    let place = place(&[("theirs.csv", &benchmark())]);
    let output = reported(&place, &["theirs.csv", "--json", "--no-plots"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let files: Vec<PathBuf> = serde_json::from_value(json["files"].clone()).unwrap();
    assert!(files.len() > 10);
    for file in files {
        assert!(place.path("").join(&file).exists(), "{file:?}");
    }
}
