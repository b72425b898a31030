//! Audits of kernels in C: other inputs, and results that are poisoned.

use std::fs;

use super::rows;
use crate::place::{Place, code, text};

/// y = 2 x + 1, by kernels that work in each run or not.
const KERNELS: &str = "\
void honest(float *restrict y, const float *restrict x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = 2.0f * x[i] + 1.0f;
}
void once(float *restrict y, const float *restrict x, int n)
{
    static const float *done;
    if (done != x)
        honest(y, x, n);
    done = x;
}
void every_second(float *restrict y, const float *restrict x, int n)
{
    static int calls;
    if (calls++ % 2 == 0)
        honest(y, x, n);
}
void either_way(float *restrict y, const float *restrict x, int n)
{
    static int calls;
    int is_odd = calls++ % 2;
    for (int i = 0; i < n; i++)
        y[i] = is_odd ? x[i] + (x[i] + 1.0f) : 2.0f * x[i] + 1.0f;
}
void if_not_done(float *restrict y, const float *restrict x, int n)
{
    if (y[n - 1] != 2.0f * x[n - 1] + 1.0f)
        honest(y, x, n);
}
";

fn kernels(backends: &[&str], more: &str) -> Place {
    let mut manifest = "schema = 1
[workload.scale]
params    = { n = { int = [1, 4000000] } }
inputs.x  = { dtype = \"f32\", shape = [\"n\"] }
outputs.y = { dtype = \"f32\", shape = [\"n\"] }
check     = { reference = { expr = \"2.0 * x + 1.0\" } }
[case.scale]
workload = \"scale\"
grid = { n = 300000 }
[device]
use = \"cpu\"
[measure]
repeats = 7
"
    .to_owned()
        + more;
    for backend in backends {
        manifest += &format!(
            "[backend.{backend}]\nworkload = \"scale\"\nc = \"kernels.c\"\nentry = \"{backend}\"\n\
             args = [\"y\", \"x\", {{ i32 = \"n\" }}]\n"
        );
    }
    let place = Place::new(&manifest);
    fs::write(place.path("kernels.c"), KERNELS).unwrap();
    place
}

#[test]
fn kernels_that_do_not_work_in_each_run_are_found() {
    let expected = [
        ("honest", ""),
        ("once", "a run on poisoned results left others"),
        ("every_second", "a run on poisoned results left others"),
        ("either_way", ""),
        ("if_not_done", "us on inputs that it had not seen"),
    ];
    let place = kernels(&expected.map(|(backend, _)| backend), "");
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    for row in rows(&place) {
        let (backend, reason) = (&row["backend"], &row["reason"]);
        let of = expected.iter().find(|(name, _)| name == backend).unwrap();
        let status = &row["status"];
        let is_right = of.1.is_empty();
        assert_eq!(
            status,
            if is_right { "ok" } else { "wrong" },
            "{backend}: {reason}"
        );
        // One that worked on inputs that show mistakes does not on the published ones.
        let others = ["for inputs that it had not seen", "`y` is not finite"];
        let is_told = reason.contains(of.1) || others.iter().any(|other| reason.contains(other));
        assert!(is_told, "{backend}: {reason}");
    }
}

/// Whatever state caches are in before a run.
#[test]
fn honest_kernels_stay_right() {
    for more in ["l2 = \"hot\"\n", "l2 = \"clean\"\n"] {
        let place = kernels(&["honest"], more);
        let ran = place.sweeper(&["run", "m.toml"]);
        assert_eq!(code(&ran), 0, "{more}: {}", text(&ran));
    }
}

/// log(1 + exp(x)), by a kernel that overflows from 88 on and one that does not.
#[test]
fn kernels_run_on_inputs_that_show_mistakes() {
    let place = Place::new(
        "schema = 1
[workload.softplus]
params    = { n = { int = [1, 4000000] } }
inputs.x  = { dtype = \"f32\", shape = [\"n\"] }
outputs.y = { dtype = \"f32\", shape = [\"n\"] }
check     = { reference = { expr = \"log(1 + exp(x))\" } }
[backend.stable]
workload = \"softplus\"
c        = \"softplus.c\"
entry    = \"stable\"
args     = [\"y\", \"x\", { i32 = \"n\" }]
[backend.naive]
like     = \"stable\"
entry    = \"naive\"
[case.softplus]
workload = \"softplus\"
grid     = { n = 5000 }
[device]
use = \"cpu\"
[measure]
repeats = 3
",
    );
    let source = "#include <math.h>
void stable(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = fmaxf(x[i], 0) + log1pf(expf(-fabsf(x[i])));
}
void naive(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = log1pf(expf(x[i]));
}
";
    fs::write(place.path("softplus.c"), source).unwrap();
    place.sweeper(&["run", "m.toml"]);
    let rows = rows(&place);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        let [backend, status, reason] = ["backend", "status", "reason"].map(|name| &row[name]);
        let is_right = backend == "stable";
        assert_eq!(
            status,
            if is_right { "ok" } else { "wrong" },
            "{backend}: {reason}"
        );
        assert_eq!(
            reason.ends_with("on inputs that show mistakes"),
            !is_right,
            "{reason}"
        );
    }
}
