//! The scripts of `submit`.

use std::process::Command;

use super::super::place::cpu_manifest;
use super::*;

#[test]
fn the_compiling_step_fills_the_cache_that_nodes_share() {
    let place = Place::new(&cpu_manifest("[cache]\nupstream = \"shared\"\n"));
    let flags = ["--output-dir", "out", "--cache-dir", "of-node"];
    let submit = [
        &["submit", "m.toml", "--shards", "2", "--dry-run"],
        &flags[..],
    ]
    .concat();
    let output = place.sweeper(&submit);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let scripts = text(&output);
    let command = |verb: &str| {
        let mut lines = scripts.lines();
        lines
            .find(|line| line.contains(verb))
            .unwrap_or_else(|| panic!("{scripts}"))
    };
    // As the job does: each flag is there once, or the command line is refused.
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command(" compile ")])
        .current_dir(place.path("."));
    let compiled = shell.output().unwrap();
    assert_eq!(code(&compiled), 0, "{}", text(&compiled));
    assert!(!place.path("of-node").exists());
    let task = command(" run ").trim_end_matches(" &");
    let mut shell = Command::new("sh");
    shell.args(["-c", task]).current_dir(place.path("."));
    for index in ["1", "2"] {
        let ran = shell.env("SLURM_ARRAY_TASK_ID", index).output().unwrap();
        assert_eq!(code(&ran), 0, "{}", text(&ran));
    }
    let stats = place.sweeper(&["cache", "stats", "--cache-dir", "of-node", "--json"]);
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    // The sweep's kernel and one that probes the processor.
    let count = |name: &str| stats["total"][name].as_u64();
    assert_eq!((count("misses"), count("fetched")), (Some(0), Some(2)));
}
