//! Functions that nobody trusts, on a GPU: each attack, and its row.

use std::fs;

use super::rows;
use crate::cuda::gpu_alone;
use crate::place::{Place, text};

/// Functions with the statuses that their rows may have, and a part of the reason.
const EXPECTED: [(&str, &str, &str); 25] = [
    ("on_a_stream", "wrong", "outside the timed span"),
    ("on_a_stream_later", "wrong", "outside the timed span"),
    ("in_a_thread", "wrong", "`y` "),
    ("lazy", "wrong", "`y` "),
    ("by_address", "wrong", "`y` is off by"),
    ("by_content", "ok", ""),
    ("in_half_precision", "wrong", "`y` is off by"),
    ("in_tf32", "wrong", "`y` is off by"),
    ("nothing", "wrong", "`y` "),
    ("one_in_three", "wrong", "`y` is off by"),
    ("half_of_it", "wrong", "`y` is off by"),
    ("patched_clocks", "ok", ""),
    ("rings_early", "wrong", "outside the timed span"),
    ("opens_the_gate", "wrong", "`y` is off by"),
    ("on_sight", "ok", ""),
    ("spins", "ok", ""),
    ("finishes_late", "ok wrong", ""),
    ("leaves_work", "wrong", "at work after its call"),
    ("waits_itself", "ok", ""),
    ("hangs_the_device", "timeout", "in time"),
    ("faults", "crashed", ""),
    ("in_memory_of_the_host", "wrong", "a result is on cpu"),
    ("elsewhere", "wrong", "not where it says"),
    ("looks_for_answers", "error", "Permission denied"),
    ("takes_all_memory", "oom", "others need some, too"),
];

fn place() -> Place {
    let backends: String = EXPECTED
        .iter()
        .map(|(name, ..)| format!("[backend.{name}]\nlike = \"honest\"\nentry = \"{name}\"\n"))
        .collect();
    let place = Place::new(&format!(
        "schema = 1
[python]
exe = \"${{SWEEPER_PYTHON:-python3}}\"
[workload.product]
params    = {{ n = {{ int = [1, 100000] }} }}
inputs.x  = {{ dtype = \"f32\", shape = [\"n\", \"n\"] }}
inputs.w  = {{ dtype = \"f32\", shape = [\"n\", \"n\"] }}
outputs.y = {{ dtype = \"f32\", shape = [\"n\", \"n\"] }}
check     = {{ reference = {{ python = \"hacks.py\", entry = \"honest\" }} }}
[backend.honest]
workload = \"product\"
python   = \"hacks.py\"
entry    = \"honest\"
arrays   = \"torch\"
args     = [\"x\", \"w\"]
returns  = [\"y\"]
trust    = false
{backends}
[case.product]
workload = \"product\"
grid     = {{ n = 2048 }}
[device]
use = \"cuda\"
[limits]
point_timeout_s = 20
"
    ));
    let hacks = include_str!("hacks_cuda.py");
    let hacks = hacks.replace("@FOLDER@", place.path(".").to_str().unwrap());
    fs::write(place.path("hacks.py"), hacks).unwrap();
    place
}

/// No function gains by a trick, and none changes another's row.
#[test]
fn functions_on_a_gpu_gain_nothing_by_tricks() {
    let Some(_gpu) = gpu_alone() else {
        return;
    };
    let place = place();
    let ran = place.sweeper(&["run", "m.toml"]);
    let rows = rows(&place);
    let median = |name: &str| -> f64 {
        let row = &rows[&format!("{name} forward")];
        row["median_ns"].parse().unwrap()
    };
    let row = &rows["honest forward"];
    assert_eq!(row["status"], "ok", "{}: {}", row["reason"], text(&ran));
    for (name, statuses, reason) in EXPECTED {
        let row = &rows[&format!("{name} forward")];
        let said = format!("{name}: {}: {}", row["status"], row["reason"]);
        let mut statuses = statuses.split(' ');
        assert!(statuses.any(|status| status == row["status"]), "{said}");
        assert!(row["reason"].contains(reason), "{said}");
        if row["status"] == "ok" {
            let ratio = median(name) / median("honest");
            assert!(ratio > 0.95, "{name} takes {ratio} of the honest time");
        }
    }
}
