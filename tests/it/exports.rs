//! Files of the guides, as real runs write them.

use std::path::Path;

use super::place::{Place, code, column, text};

/// Every buffer is in one of the guide's categories: the categories add up to the peak, for each
/// backend, form of potentials and phase.
#[test]
fn categories_of_memory_add_up_to_the_peak() {
    let place = Place::new(
        "schema = 1\nname = \"categories\"\nabout = \"What is memory for?\"\n\
         [grid]\nT = 256\nK = 8\nC = 6\npotentials = [\"materialized\", \"decomposed\"]\n\
         [case.semicrf]\nworkload = \"semicrf\"\nphases = [\"forward\", \"backward\", \"both\"]\n\
         backends = [\"streaming\", \"fused\", \"fused_reference\", \"fused_checkpointing\"]\n\
         [device]\nuse = \"cpu\"\n[measure]\nrepeats = 1\nwarmup = 0\n\
         [output]\nexports = [\"memory_breakdown\"]\n",
    );
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let mut seen = 0;
    for form in ["materialized", "decomposed"] {
        let csv = place.read(&format!("exports/potentials={form}/memory_breakdown.csv"));
        let numbers = |name: &str| -> Vec<f64> {
            let fields = column(&csv, name).into_iter();
            fields.map(|field| field.parse().unwrap()).collect()
        };
        let peaks = numbers("peak_allocated_gb");
        let parts = ["potentials", "dp_state", "workspace", "autograd"];
        let parts = parts.map(|part| numbers(&format!("est_{part}_gb")));
        for (row, peak) in peaks.iter().enumerate() {
            let sum: f64 = parts.iter().map(|part| part[row]).sum();
            let share = sum / peak;
            assert!(
                (0.98..=1.0).contains(&share),
                "{form}, row {row}: {share}\n{csv}"
            );
            assert!(
                parts[0][row] > 0.0,
                "{form}, row {row} has no scores\n{csv}"
            );
            seen += 1;
        }
    }
    assert_eq!(seen, 24);
}

/// The fields of a file of the attention guide, after a run of a manifest on a CPU with one sample.
fn export(manifest: &str, path: &str, names: &[&str]) -> Vec<Vec<String>> {
    let place = Place::new("schema = 1\n");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("manifests")
        .join(manifest);
    let sets = [
        "measure.repeats=1",
        "measure.warmup=0",
        "output.dir=results",
    ];
    let mut args = vec!["run", manifest.to_str().unwrap(), "--device", "cpu"];
    args.extend(["--backends", "eager,compiled"]);
    args.extend(sets.iter().flat_map(|set| ["--set", set]));
    let output = place.sweeper(&args);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let csv = place.read(path);
    names.iter().map(|name| column(&csv, name)).collect()
}

/// Both parts of the attention guide on a CPU: all is measured, checked and compared.
#[test]
fn the_attention_guides_files_are_whole() {
    let names = ["seq_len", "compiled", "status", "error", "total_mean_ms"];
    let path = "exports/heads=1/kv_heads=0/mask=causal/compiled_attention_benchmark.csv";
    let found = export("attention-quick.toml", path, &names);
    assert_eq!(found[0], ["33", "33", "256", "256"]);
    assert_eq!(found[1], ["False", "True", "False", "True"]);
    assert!(found[2].iter().all(|status| status == "success"));
    assert!(found[3].iter().all(String::is_empty), "{:?}", found[3]);
    assert!(
        found[4]
            .iter()
            .all(|time| time.parse::<f64>().unwrap() > 0.0)
    );
    let names = ["context_length", "num_params", "status", "error"];
    let names = [&names[..], &["forward_speedup", "full_step_speedup"]].concat();
    let path = "exports/loss=sum/compiled_transformer_benchmark.csv";
    let found = export("transformer-quick.toml", path, &names);
    assert_eq!(found[0], ["16", "64"]);
    // 2 V d + L (4 d^2 + 3 d d_ff + 2 d) + d.
    assert_eq!(found[1], ["144192", "144192"]);
    assert_eq!(found[2], ["success", "success"]);
    assert!(found[3].iter().all(String::is_empty), "{:?}", found[3]);
    for speedups in &found[4..] {
        assert!(speedups.iter().all(|it| it.parse::<f64>().unwrap() > 0.0));
    }
}
