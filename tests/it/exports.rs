//! Files of the guides, as real runs write them.

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
