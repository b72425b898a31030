//! Kernels in C that nobody trusts: each attack, and its row.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::rows;
use crate::place::{Place, code, text};
use crate::support::{has_sandbox, nvrtc};

const TRUSTED: &str = "\
void honest(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        for (volatile int times = 0; times < 4; times++)
            y[i] = 2.0f * x[i] + 1.0f;
}
";

const CUDA: &str = "\
extern \"C\" __global__ void honest(float *y, const float *x, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[i] = 2.0f * x[i] + 1.0f;
}
";

/// A backend of each kernel, beside the honest one and one that is trusted.
fn place(kernels: &[&str]) -> Place {
    let backend =
        |name: &&str| format!("[backend.{name}]\nlike = \"honest\"\nentry = \"{name}\"\n");
    let backends: String = kernels.iter().map(backend).collect();
    let place = Place::new(&format!(
        "schema = 1
[workload.scale]
params    = {{ n = {{ int = [1, 1000000] }} }}
inputs.x  = {{ dtype = \"f32\", shape = [\"n\"] }}
outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}
check     = {{ reference = {{ expr = \"2.0 * x + 1.0\" }} }}
[backend.honest]
workload = \"scale\"
c        = \"hacks.c\"
entry    = \"honest\"
args     = [\"y\", \"x\", {{ i32 = \"n\" }}]
trust    = false
[backend.trusted]
like  = \"honest\"
c     = \"trusted.c\"
trust = true
{backends}
[case.scale]
workload = \"scale\"
grid     = {{ n = 20000 }}
[device]
use = \"cpu\"
[measure]
repeats = 9
[limits]
point_timeout_s = 8
"
    ));
    let hacks = include_str!("hacks.c").replace("@FOLDER@", place.path(".").to_str().unwrap());
    fs::write(place.path("hacks.c"), hacks).unwrap();
    fs::write(place.path("trusted.c"), TRUSTED).unwrap();
    place
}

/// Runs kernels, each of which has one of these statuses, with a part of its reason.
fn assert_rows(expected: &[(&str, &str, &str)]) -> Place {
    let names: Vec<&str> = expected.iter().map(|(name, ..)| *name).collect();
    let place = place(&names);
    let ran = place.sweeper(&["run", "m.toml"]);
    assert!([0, 4].contains(&code(&ran)), "{}", text(&ran));
    let rows = rows(&place);
    let row = |name: &str| rows.iter().find(|row| row["backend"] == name).unwrap();
    let (honest, trusted) = (row("honest"), row("trusted"));
    assert_eq!(honest["status"], "ok", "{}", honest["reason"]);
    assert!(honest["flags"].contains("refereed"), "{}", honest["flags"]);
    assert_eq!(trusted["status"], "ok", "{}", trusted["reason"]);
    assert!(
        !trusted["flags"].contains("refereed"),
        "{}",
        trusted["flags"]
    );
    // Not the median: other tests have the processors for most of some kernels' samples.
    let least_ns = |row: &BTreeMap<String, String>| -> f64 { row["min_ns"].parse().unwrap() };
    for (name, status, reason) in expected {
        let row = row(name);
        let mut statuses = status.split('|');
        let why = format!("{name}: {} {}", row["status"], row["reason"]);
        assert!(statuses.any(|status| status == row["status"]), "{why}");
        assert!(
            row["status"] == "ok" || row["reason"].contains(reason),
            "{why}"
        );
        // Who saves work saves nearly all of it.
        if row["status"] == "ok" {
            let ratio = least_ns(row) / least_ns(honest);
            assert!(ratio > 0.1, "{name} takes {ratio} of the honest time");
        }
    }
    assert!(!place.path("written").exists());
    place
}

#[test]
fn work_that_is_left_out_is_wrong_or_gains_nothing() {
    if has_sandbox() {
        assert_rows(&[
            ("by_address", "wrong", "`y` is off by"),
            ("by_a_few_elements", "ok", ""),
            ("every_second", "wrong", "`y` is"),
            ("if_not_done", "ok", ""),
            ("by_thread", "wrong|ok", "`y`"),
            ("before_the_gate", "ok", ""),
        ]);
    }
}

#[test]
fn words_of_the_referee_are_of_no_use() {
    if has_sandbox() {
        assert_rows(&[
            // Where the referee had to wait for a processor, the work was done when it looked.
            ("rings_early", "wrong|ok", "`y`"),
            ("says_other_places", "wrong", "`y` is off by"),
            ("says_impossible_places", "wrong", "not where it says"),
            ("prints", "ok", ""),
        ]);
    }
}

#[test]
fn nothing_outside_is_read_or_written_and_others_go_on() {
    if has_sandbox() {
        assert_rows(&[
            ("reaches_out", "ok", ""),
            ("dies", "crashed", "signal 11"),
            ("leaves", "error", "it ended the process with code 3"),
            ("never_ends", "timeout", ""),
            ("takes_memory", "crashed", "signal 6"),
        ]);
    }
}

/// A compiler reads what its source names.
#[test]
fn a_source_includes_no_file_from_outside() {
    if !has_sandbox() {
        return;
    }
    for attack in [
        "#include \"@FOLDER@/secret\"",
        "__asm__(\".incbin \\\"@FOLDER@/secret\\\"\");",
    ] {
        let place = place(&[]);
        let folder = place.path(".");
        fs::write(place.path("secret"), "int answer = 42;\n").unwrap();
        let line = attack.replace("@FOLDER@", folder.to_str().unwrap());
        for name in ["hacks.c", "trusted.c"] {
            fs::write(place.path(name), format!("{line}\n{TRUSTED}")).unwrap();
        }
        let ran = place.sweeper(&["run", "m.toml"]);
        assert_eq!(code(&ran), 4, "{}", text(&ran));
        for row in rows(&place) {
            let is_trusted = row["backend"] == "trusted";
            let expected = if is_trusted { "ok" } else { "compile_error" };
            assert_eq!(row["status"], expected, "{attack}: {}", row["reason"]);
            assert!(
                is_trusted || row["reason"].contains("secret"),
                "{}",
                row["reason"]
            );
        }
    }
}

/// Includes that the manifest resolves are in the compiler's hands before the sandbox is closed.
#[test]
fn a_source_includes_no_file_beside_its_folder() {
    let place = place(&[]);
    fs::create_dir(place.path("own")).unwrap();
    fs::write(place.path("secret.h"), "").unwrap();
    fs::write(place.path("own/part.h"), "").unwrap();
    let manifest = fs::read_to_string(place.path("m.toml")).unwrap();
    for (key, name, kernel) in [
        ("c = \"own/k.c\"", "own/k.c", TRUSTED),
        ("cuda = \"own/k.cu\"\ngrid = 1\nblock = 1", "own/k.cu", CUDA),
    ] {
        let backend = format!(
            "[backend.k]\nworkload = \"scale\"\n{key}\nentry = \"honest\"\n\
             args = [\"y\", \"x\", {{ i32 = \"n\" }}]\n"
        );
        for (include, trust, is_fine) in [
            ("part.h", "false", true),
            ("../secret.h", "false", false),
            ("../secret.h", "true", true),
        ] {
            let text_of_kernel = format!("#include \"{include}\"\n{kernel}");
            fs::write(place.path(name), text_of_kernel).unwrap();
            let backend = format!("{backend}trust = {trust}\n");
            fs::write(place.path("m.toml"), format!("{manifest}{backend}")).unwrap();
            let ran = place.sweeper(&["check", "m.toml"]);
            let said = text(&ran);
            assert_eq!(code(&ran) == 0, is_fine, "{name} {include} {trust}: {said}");
            assert!(is_fine || said.contains("outside of its folder"), "{said}");
        }
    }
}

#[test]
fn a_source_in_cuda_is_compiled_in_a_sandbox() {
    if !has_sandbox() || nvrtc().is_none() {
        return;
    }
    let place = place(&[]);
    fs::write(place.path("secret"), "").unwrap();
    // Whoever resolves includes does not expand macros; the compiler does.
    let secret = place.path("secret");
    let leak = format!("#define NAME \"{}\"\n#include NAME\n", secret.display());
    fs::write(place.path("honest.cu"), CUDA).unwrap();
    fs::write(place.path("leaks.cu"), format!("{leak}{CUDA}")).unwrap();
    let manifest = fs::read_to_string(place.path("m.toml")).unwrap();
    let (head, _) = manifest.split_once("[backend.honest]").unwrap();
    let backend = |name: &str, file: &str, trust: bool| {
        format!(
            "[backend.{name}]\nworkload = \"scale\"\ncuda = \"{file}\"\nentry = \"honest\"\n\
             args = [\"y\", \"x\", {{ i32 = \"n\" }}]\ngrid = 1\nblock = 1\ntrust = {trust}\n"
        )
    };
    for (file, trust, is_fine) in [
        ("honest.cu", false, true),
        ("leaks.cu", true, true),
        ("leaks.cu", false, false),
    ] {
        let text_of_manifest = format!(
            "{head}{}[case.scale]\nworkload = \"scale\"\ngrid = {{ n = 100 }}\n\
             [device]\nuse = \"cuda\"\n",
            backend("k", file, trust)
        );
        fs::write(place.path("m.toml"), text_of_manifest).unwrap();
        let ran = place.sweeper(&["compile", "--arch", "sm_90", "m.toml"]);
        let said = text(&ran);
        assert_eq!(code(&ran) == 0, is_fine, "{file} {trust}: {said}");
        assert!(is_fine || said.contains("secret"), "{said}");
    }
}

#[test]
fn candidates_in_c_have_verdicts() {
    if !has_sandbox() {
        return;
    }
    let place = place(&[]);
    fs::create_dir(place.path("tried")).unwrap();
    let candidate = |name: &str, body: &str| {
        let text = format!("void honest(float *y, const float *x, int n)\n{{\n    {body}\n}}\n");
        fs::write(place.path(&format!("tried/{name}.c")), text).unwrap();
    };
    candidate(
        "fast",
        "for (int i = 0; i < n; i++) y[i] = 2.0f * x[i] + 1.0f;",
    );
    candidate(
        "half",
        "for (int i = 0; i < n; i += 2) y[i] = 2.0f * x[i] + 1.0f;",
    );
    candidate("torn", "for (int i = 0");
    let args = ["referee", "m.toml", "--candidates", "tried", "--reuse"];
    let said = text(&place.sweeper(&args));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    for (line, parts) in lines.iter().zip([
        ["fast", "x as fast as honest"],
        ["half", "`y` is"],
        ["torn", "compile_error"],
    ]) {
        assert!(parts.iter().all(|part| line.contains(part)), "{said}");
    }
}

/// Programs that write the numbers to a hundred, by a shell.
const PROGRAMS: [(&str, &str, &str, &str); 6] = [
    ("honest", "seq 100 > out", "ok", ""),
    ("short", "seq 99 > out", "wrong", "the check"),
    (
        "keeps",
        "cat @FOLDER@/kept > out || seq 100 > out; cp out @FOLDER@/kept || :",
        "ok",
        "",
    ),
    ("tires", "seq 100 > out; touch /tmp/@NAME@ || :", "ok", ""),
    (
        "links",
        "ln -s @FOLDER@/answer out",
        "wrong",
        "it leaves `out`, which is not a file",
    ),
    (
        "reads",
        "cat @FOLDER@/answer > out",
        "error",
        "ended with status 1",
    ),
];

#[test]
fn programs_are_shut_in_and_each_run_is_checked() {
    if !has_sandbox() {
        return;
    }
    let mut manifest = "schema = 1
[workload.numbers]
[case.numbers]
workload = \"numbers\"
[device]
use = \"cpu\"
[measure]
repeats = 5
"
    .to_owned();
    for (name, ..) in PROGRAMS {
        manifest += &format!(
            "[backend.{name}]
workload  = \"numbers\"
command   = [\"sh\", \"{name}.sh\"]
directory = \"{{scratch}}\"
check     = {{ command = [\"cmp\", \"out\", \"answer\"] }}
trust     = false
"
        );
    }
    let place = Place::new(&manifest);
    let folder = place.path(".");
    let folder = folder.canonicalize().unwrap();
    let manifest = manifest
        .replace("\"answer\"", &format!("{:?}", folder.join("answer")))
        .replace("\"sh\", \"", &format!("\"sh\", \"{}/", folder.display()));
    fs::write(place.path("m.toml"), manifest).unwrap();
    let answer: String = (1..=100).map(|number| format!("{number}\n")).collect();
    fs::write(place.path("answer"), answer).unwrap();
    let mark = folder.to_string_lossy().replace('/', "-");
    for (name, script, ..) in PROGRAMS {
        let script = script.replace("@FOLDER@", folder.to_str().unwrap());
        let script = script.replace("@NAME@", &mark);
        fs::write(place.path(&format!("{name}.sh")), script).unwrap();
    }
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&place);
    for (name, _, status, reason) in PROGRAMS {
        let row = rows.iter().find(|row| row["backend"] == name).unwrap();
        assert_eq!(row["status"], status, "{name}: {}", row["reason"]);
        assert!(row["reason"].contains(reason), "{name}: {}", row["reason"]);
        assert!(
            status != "ok" || row["flags"].contains("refereed"),
            "{name}"
        );
    }
    assert!(!place.path("kept").exists());
    assert!(!PathBuf::from(format!("/tmp/{mark}")).exists());
}
