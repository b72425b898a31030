//! The keys of declared workloads and backends as JSON Schema.

use serde_json::{Value, json};
use sweeper_program::Dtype;

use crate::files::python::ArrayLibrary;
use crate::grammar::json::{described, expression, list, named, object, one_of, string, whole};
use crate::user::check::Products;
use crate::user::command_declaration::StandardOutput;

/// The schema of `[workload.X]`.
pub(crate) fn workload() -> Value {
    let input = object(
        json!({
            "dtype": dtype(),
            "shape": shape(),
            "fill": described(fill(), "its elements; about normal where it is not said"),
        }),
        &["shape"],
    );
    let initial = json!({ "anyOf": [{ "type": "number" }, string()] });
    let output = object(
        json!({
            "dtype": dtype(),
            "shape": shape(),
            "init": described(
                initial,
                "its contents before each run: `poison`, a number, or the input that it is a copy of",
            ),
        }),
        &["shape"],
    );
    object(
        json!({
            "about": described(string(), "one line for people"),
            "params": described(named(parameter()), "parameters of the problem"),
            "inputs": described(named(input), "tensors that are given"),
            "inputs_from": described(
                inputs_from(),
                "a function in Python that makes the inputs, from the parameters and `seed`",
            ),
            "outputs": described(named(output), "tensors that are computed"),
            "files": described(named(string()), "files that commands read"),
            "kernelbench": described(
                string(),
                "a problem of KernelBench, whose `Model` is the reference, relative to the manifest",
            ),
            "args": described(
                json!({ "type": "array" }),
                "arguments of `kernelbench`'s model; the inputs in their order",
            ),
            "digests": described(named(string()), "written by runs: what each file was"),
            "check": check(),
            "work": object(
                json!({
                    "flops": described(expression(), "useful floating-point operations"),
                    "bytes": described(
                        expression(),
                        "bytes that must be moved; each tensor once where it is not said",
                    ),
                }),
                &[],
            ),
        }),
        &[],
    )
}

fn inputs_from() -> Value {
    let function = object(
        json!({
            "python": source_in_python(),
            "entry": described(string(), "the function"),
            "digests": digests(),
        }),
        &["python", "entry"],
    );
    json!({ "anyOf": [described(string(), "FILE.py:FUNCTION"), function] })
}

/// What `check.judge` may hold.
fn judge() -> Value {
    let about =
        "name of a function of inputs, outputs and right outputs, each a dictionary of arrays";
    object(
        json!({
            "python": source_in_python(),
            "entry": described(string(), about),
            "kwargs": described(json!({ "type": "object" }), "further arguments by name"),
            "bound": described(
                json!({ "type": "number", "minimum": 0 }),
                "the greatest distance that is right, where it returns a distance",
            ),
            "digests": digests(),
        }),
        &["python", "entry"],
    )
}

fn digests() -> Value {
    described(named(string()), "digest of each file, which runs write")
}

/// A source in Python.
fn source_in_python() -> Value {
    described(string(), "source in Python, relative to the manifest")
}

fn check() -> Value {
    let expressions = json!({ "anyOf": [expression(), named(expression())] });
    let function = object(
        json!({
            "python": source_in_python(),
            "entry": described(string(), "name of a function over arrays"),
            "arrays": described(
                one_of(&ArrayLibrary::NAMES.map(|(name, _)| name)),
                "the library whose arrays it takes; what the source imports where it is not said",
            ),
            "args": described(json!({ "type": "array" }), "arguments; the inputs in their order"),
            "returns": described(list(string()), "its results; the outputs in their order"),
            "digests": digests(),
        }),
        &["python", "entry"],
    );
    let elementwise = object(json!({ "expr": expressions }), &["expr"]);
    let backend = described(
        string(),
        "a backend of the manifest that computes this workload",
    );
    let about = "its text is compiled with `double` for `float`";
    let in_f64 = described(one_of(&["f64"]), about);
    let peer = json!({ "backend": backend, "dtype": in_f64 });
    let peer = object(peer, &["backend"]);
    let path = "a file of safetensors with the outputs; parameters may stand in braces";
    let file = json!({ "file": described(string(), path), "digests": digests() });
    let file = object(file, &["file"]);
    let reference =
        json!({ "anyOf": [one_of(&["none", "model"]), elementwise, function, peer, file] });
    let norm = json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 });
    let tolerance = json!({
        "anyOf": [one_of(&["derived", "exact"]), norm.clone(), named(norm)],
    });
    let mut check = object(
        json!({
            "reference": described(
                reference,
                "the right answer: expressions or a function in f64, a backend, a file, or `none`",
            ),
            "judge": described(judge(), "a function in Python that judges, in place of a tolerance"),
            "tolerance": described(tolerance, "relative L2 norm; derived where it is not said"),
            "products": described(
                one_of(&Products::NAMES.map(|(name, _)| name)),
                "what factors of products may be rounded to; PyTorch multiplies so on a GPU",
            ),
        }),
        &[],
    );
    // A judge may know by itself what is right.
    check["anyOf"] = json!([{ "required": ["reference"] }, { "required": ["judge"] }]);
    check
}

fn parameter() -> Value {
    let bounds = |kind: &str| json!({ "type": "array", "items": { "type": kind }, "minItems": 2, "maxItems": 2 });
    object(
        json!({
            "int": bounds("integer"),
            "float": bounds("number"),
            "choice": list(string()),
            "bool": { "const": true },
            "default": { "type": ["string", "number", "boolean"] },
        }),
        &[],
    )
}

fn dtype() -> Value {
    let names = Dtype::ALL.iter().map(|dtype| dtype.name());
    let names: Vec<&str> = names.chain(["dtype"]).collect();
    described(
        one_of(&names),
        "type of the elements; that of the case where it is not said",
    )
}

fn shape() -> Value {
    described(list(expression()), "extents, outermost first")
}

fn fill() -> Value {
    let two =
        json!({ "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 });
    let form = json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": false,
        "properties": {
            "normal": two, "uniform": two, "integers": two, "arange": two,
            "constant": { "type": "number" },
            "choice": { "type": "array", "items": { "type": "number" }, "minItems": 1 },
            "expr": expression(),
            "sorted": { "$ref": "#/$defs/fill" },
        },
    });
    json!({ "anyOf": [one_of(&["normal", "permutation"]), { "type": "number" }, form] })
}

/// Definitions that these schemas refer to.
pub(crate) fn definitions() -> [(&'static str, Value); 1] {
    [("fill", fill())]
}

/// The schema of `[backend.Y]`.
pub(crate) fn backend() -> Value {
    let rule = object(
        json!({ "that": expression(), "reason": string() }),
        &["that"],
    );
    let mut backend = json!({
        "workload": described(string(), "the problem that it computes"),
        "like": described(string(), "a backend of the manifest that has all other keys"),
        "about": described(string(), "one line for people"),
        "digests": described(named(string()), "written by runs: what each file was"),
        "phases": described(
            list(string()),
            "the phases that it computes; forward where it is not said",
        ),
        "mutates": described(list(string()), "inputs that it overwrites: it gets copies"),
        "tune": described(
            named(json!({ "$ref": "#/$defs/axis" })),
            "values that change the implementation and not the problem",
        ),
        "sample": described(
            whole(1),
            "how many configurations are measured: the first, and others by chance",
        ),
        "race": described(
            json!({ "type": "boolean" }),
            "a configuration that is clearly slower than the best takes no more samples",
        ),
        "trust": described(
            json!({ "type": "boolean" }),
            "false: code of a stranger, in a sandbox and by a clock that it can't reach",
        ),
        "tolerance_factor": described(
            json!({ "type": "number", "minimum": 1, "maximum": 1000 }),
            "by how much less exact than the workload's tolerances it may be",
        ),
        "require": described(
            list(json!({ "anyOf": [string(), rule] })),
            "what must hold for a configuration to be measured",
        ),
    });
    for part in [kernels(), launch(), command(), function()] {
        if let (Value::Object(backend), Value::Object(part)) = (&mut backend, part) {
            backend.extend(part);
        }
    }
    let mut backend = object(backend, &[]);
    // A backend that is like another has the other's workload.
    backend["anyOf"] = json!([{ "required": ["workload"] }, { "required": ["like"] }]);
    backend
}

/// The keys of a backend that is a source, beside those of a launch.
fn kernels() -> Value {
    let scratch = object(
        json!({
            "dtype": dtype(),
            "shape": shape(),
            "init": { "type": "number" },
        }),
        &["shape"],
    );
    json!({
        "cuda": described(string(), "source for NVRTC, relative to the manifest"),
        "c": described(string(), "source for the C compiler, relative to the manifest"),
        "include": described(list(string()), "folders of includes"),
        "options": described(list(string()), "options of the compiler"),
        "libs": described(list(string()), "libraries to link, such as `m`"),
        "defines": described(named(expression()), "macros, from expressions"),
        "constants": described(
            named(string()),
            "variables in __constant__ memory, and the inputs that are copied there",
        ),
        "scratch": described(named(scratch), "memory of its own"),
        "launch": described(list(object(launch(), &["entry", "args"])), "several launches"),
    })
}

/// The keys of a backend that is a program.
fn command() -> Value {
    let texts = || list(string());
    let metric = object(
        json!({
            "regex": described(string(), "the last match in a text: its first group, or all of it"),
            "json": described(string(), "a pointer into a document; `*[key=value]` finds in a list"),
            "bytes": described(json!({ "const": true }), "the size of a file"),
            "from": described(one_of(&["stdout", "stderr"]), "standard output where it is not said"),
            "file": described(string(), "the file that is read instead"),
            "unit": described(string(), "its unit, for people"),
            "better": described(one_of(&["lower", "higher"]), "which of two values is better"),
        }),
        &[],
    );
    let measured = object(
        json!({
            "metric": described(string(), "a metric"),
            "as": described(expression(), "seconds of a run; the metric where it is not said"),
        }),
        &["metric"],
    );
    let time = json!({ "anyOf": [one_of(&["wall", "user", "system", "cpu"]), measured] });
    let check = object(
        json!({
            "command": described(texts(), "a command that must succeed"),
            "file": described(string(), "the file that has the digest"),
            "sha256": described(string(), "64 hex digits, or `files.NAME` of the workload"),
        }),
        &[],
    );
    json!({
        "command": described(texts(), "a program and its arguments; there is no shell"),
        "directory": described(string(), "where it runs; the manifest's folder if not said"),
        "sources": described(
            list(string()),
            "files that it is made of; those that first arguments name if not said",
        ),
        "env": described(named(string()), "variables of its environment"),
        "stdin": described(string(), "the file that it reads as standard input"),
        "stdout": described(
            json!({ "enum": StandardOutput::NAMES.map(|(name, _)| name) }),
            "where its standard output goes; for all commands of a workload a file if one is read",
        ),
        "prepare": described(
            json!({ "anyOf": [texts(), { "type": "array", "items": texts() }] }),
            "commands before each run, untimed",
        ),
        "exit": described(
            json!({ "anyOf": [whole(0), { "type": "array", "items": whole(0) }] }),
            "exit statuses of success; 0 where it is not said",
        ),
        "metrics": described(named(metric), "values that are read after each run"),
        "time": described(time, "the time of a run; `wall` where it is not said"),
        "check": described(check, "what a run must have done"),
    })
}

/// The keys of a function in Python, beside `entry` and `args`.
fn function() -> Value {
    let autograd = object(
        json!({
            "of": list(string()),
            "incoming": list(string()),
            "by": named(string()),
        }),
        &["of", "by"],
    );
    json!({
        "python": described(string(), "source in Python, relative to the manifest"),
        "module": described(string(), "module of an installed package or below `[python] path`, or the name that `python` is imported by"),
        "kernelbench": described(
            string(),
            "`model`, that of the workload, or a file with `ModelNew`, relative to the manifest",
        ),
        "optional": described(
            json!({ "type": "boolean" }),
            "true where the source may be missing: its rows are `unavailable` then",
        ),
        "load": described(
            one_of(&["all", "definitions"]),
            "`definitions` leaves out what a file does when it is imported",
        ),
        "arrays": described(
            one_of(&["numpy", "torch", "cupy", "jax"]),
            "the library whose arrays it takes; what the source imports where it is not said",
        ),
        "kwargs": described(json!({ "type": "object" }), "arguments by name"),
        "returns": described(list(string()), "names of the outputs that it returns"),
        "torch_compile": described(json!({ "type": "object" }), "options of torch.compile"),
        "deterministic": described(
            json!({ "type": "boolean" }),
            "false where results differ from run to run by rounding",
        ),
        "autograd": described(autograd, "gradients that PyTorch derives"),
    })
}

/// The schema of `[python]`.
pub(crate) fn python() -> Value {
    object(
        json!({
            "exe": described(string(), "the interpreter; `python3` where it is not said"),
            "path": described(list(string()), "folders of modules, relative to the manifest"),
        }),
        &[],
    )
}

fn launch() -> Value {
    let argument = json!({ "type": ["string", "object", "number", "boolean", "array"] });
    let extents = json!({ "anyOf": [
        expression(),
        { "type": "array", "items": expression(), "minItems": 1, "maxItems": 3 },
    ] });
    json!({
        "entry": described(string(), "the function, or an instance of a template"),
        "args": described(
            json!({ "type": "array", "items": argument }),
            "names of tensors; numbers, for kernels with their types such as { i32 = \"n\" }",
        ),
        "grid": described(extents.clone(), "blocks"),
        "block": described(extents, "threads of a block"),
        "shared": described(expression(), "dynamic shared memory of a block in bytes"),
        "cluster": described(expression(), "blocks of a cluster along x"),
    })
}
