//! Every key of `[workload.X]`, `[backend.Y]` and `[python]`.

use serde_json::{Value, json};
use sweeper_program::Dtype;

use super::problem::OWN_KERNELS;
use crate::files::python::ArrayLibrary;
use crate::grammar::json::{one_of, words};
use crate::grammar::keys::{Key, Takes, keys, table};
use crate::user::check::Products;
use crate::user::command_declaration::StandardOutput;
use crate::user::python::declaration::Load;

keys! {
    /// `[workload.X]`.
    WORKLOAD {
        "about": Text, "one line for people";
        "params": Named(&Table(PARAMETER)), "parameters of the problem";
        "inputs": Named(&Table(INPUT)), "tensors that are given";
        "inputs_from": Either(&[Text, Table(MAKER)]),
            "a function in Python, `FILE.py:FUNCTION` or a table, that makes the inputs, from the \
             parameters and `seed`";
        "outputs": Named(&Table(OUTPUT)), "tensors that are computed";
        "files": Named(&Path), "files that commands read";
        "kernelbench": Path,
            "a problem of KernelBench, whose `Model` is the reference, relative to the manifest";
        "args": ARRAY, "arguments of `kernelbench`'s model; the inputs in their order";
        "digests": Named(&Text), "written by runs: what each file was";
        "check": Table(CHECK), "what is right";
        "require": Word(&[OWN_KERNELS]),
            "functions that call kernels of libraries on a GPU are `refused`";
        "work": Table(WORK), "useful work, for rates";
    }

    PARAMETER {
        "int": Schema(|| pair("integer")), "the least and the most of a whole number";
        "float": Schema(|| pair("number")), "the least and the most of a number";
        "choice": List(&Text), "words";
        "bool": TRUE, "true or false";
        "default": Scalar, "its value where a case gives none";
    }

    INPUT {
        "dtype": DTYPE, "type of the elements; that of the case where it is not said";
        "shape" (needed): List(&Expression), "extents, outermost first";
        "fill": Schema(|| json!({ "$ref": "#/$defs/fill" })),
            "its elements; about normal where it is not said";
    }

    OUTPUT {
        "dtype": DTYPE, "type of the elements; that of the case where it is not said";
        "shape" (needed): List(&Expression), "extents, outermost first";
        "init": Either(&[Number, Text]),
            "its contents before each run: `poison`, a number, or the input that it is a copy of";
    }

    MAKER {
        "python" (needed): Path, "source in Python, relative to the manifest";
        "entry" (needed): Text, "the function";
        "digests": Named(&Text), "digest of each file, which runs write";
    }

    CHECK {
        "reference": Either(&[
            Word(&["none", "model"]), Table(ELEMENTWISE), Table(REFERENCE), Table(PEER), Table(FILE),
        ]),
            "the right answer: expressions or a function in f64, a backend, a file, or `none`";
        "judge": Table(JUDGE), "a function in Python that judges, in place of a tolerance";
        "tolerance": Either(&[Word(&["derived", "exact"]), NORM, Named(&NORM)]),
            "relative L2 norm; derived where it is not said";
        "products": Schema(words::<Products>),
            "what factors of products may be rounded to; PyTorch multiplies so on a GPU";
    }

    ELEMENTWISE {
        "expr" (needed): Either(&[Expression, Named(&Expression)]), "the value of an element";
    }

    /// A reference in Python.
    REFERENCE {
        "python" (needed): Path, "source in Python, relative to the manifest";
        "entry" (needed): Text, "name of a function over arrays";
        "arrays": LIBRARY,
            "the library whose arrays it takes; what the source imports where it is not said";
        "args": ARRAY, "arguments; the inputs in their order";
        "returns": List(&Text), "its results; the outputs in their order";
        "digests": Named(&Text), "digest of each file, which runs write";
    }

    PEER {
        "backend" (needed): Text, "a backend of the manifest that computes this workload";
        "dtype": Word(&["f64"]), "its text is compiled with `double` for `float`";
    }

    /// Files with right outputs.
    FILE {
        "file" (needed): Path,
            "a file of safetensors with the outputs; parameters may stand in braces";
        "digests": Named(&Text), "digest of each file, which runs write";
    }

    JUDGE {
        "python" (needed): Path, "source in Python, relative to the manifest";
        "entry" (needed): Text,
            "name of a function of inputs, outputs and right outputs, each a dictionary of arrays";
        "kwargs": OBJECT, "further arguments by name";
        "bound": Schema(|| json!({ "type": "number", "minimum": 0 })),
            "the greatest distance that is right, where it returns a distance";
        "digests": Named(&Text), "digest of each file, which runs write";
    }

    WORK {
        "flops": Expression, "useful floating-point operations";
        "bytes": Expression, "bytes that must be moved; each tensor once where it is not said";
    }

    /// `[backend.Y]`, of whatever kind.
    BACKEND {
        "workload": Text, "the problem that it computes";
        "like": Text, "a backend of the manifest that has all other keys";
        "about": Text, "one line for people";
        "digests": Named(&Text), "written by runs: what each file was";
        "phases": List(&Text), "the phases that it computes; forward where it is not said";
        "mutates": List(&Text), "inputs that it overwrites: it gets copies";
        "tune": Named(&Axis), "values that change the implementation and not the problem";
        "sample": Whole(1), "how many configurations are measured: the first, and others by chance";
        "race": Flag,
            "a configuration that is clearly slower than the best takes no more samples";
        "trust": Flag,
            "false: code of a stranger, in a sandbox and by a clock that it can't reach";
        "libraries": Flag,
            "true: it may call libraries although its problem requires own kernels";
        "tolerance_factor": Schema(|| json!({ "type": "number", "minimum": 1, "maximum": 1000 })),
            "by how much less exact than the workload's tolerances it may be";
        "require": List(&Either(&[Text, Table(REQUIREMENT)])),
            "what must hold for a configuration to be measured";
    }

    REQUIREMENT {
        "that" (needed): Expression, "the condition";
        "reason": Text, "why, for people";
    }

    /// Of a backend that is a source, beside those of a launch.
    KERNELS {
        "cuda": Path, "source for NVRTC, relative to the manifest";
        "c": Path, "source for the C compiler, relative to the manifest";
        "include": List(&Path), "folders of includes";
        "options": List(&Text), "options of the compiler";
        "libs": List(&Text), "libraries to link, such as `m`";
        "defines": Named(&Expression), "macros, from expressions";
        "constants": Named(&Text),
            "variables in __constant__ memory, and the inputs that are copied there";
        "scratch": Named(&Table(SCRATCH)), "memory of its own";
        "launch": List(&Table(LAUNCH)), "several launches";
    }

    /// A launch of several, or of the backend itself.
    LAUNCH {
        "entry" (needed): Text, "the function, or an instance of a template";
        "args" (needed): Array(&ARGUMENT),
            "names of tensors; numbers, for kernels with their types such as { i32 = \"n\" }";
        "grid": Schema(extents), "blocks";
        "block": Schema(extents), "threads of a block";
        "shared": Expression, "dynamic shared memory of a block in bytes";
        "cluster": Expression, "blocks of a cluster along x";
    }

    SCRATCH {
        "dtype": DTYPE, "type of the elements; that of the case where it is not said";
        "shape" (needed): List(&Expression), "extents, outermost first";
        "init": Number, "its contents before each run";
    }

    /// Of a backend that is a program.
    COMMAND {
        "command": List(&Text), "a program and its arguments; there is no shell";
        "directory": Path, "where it runs; the manifest's folder if not said";
        "sources": List(&Path),
            "files that it is made of; those that first arguments name if not said";
        "env": Named(&Text), "variables of its environment";
        "stdin": Text, "the file that it reads as standard input";
        "stdout": Schema(words::<StandardOutput>),
            "where its standard output goes; for all commands of a workload a file if one is read";
        "prepare": Either(&[List(&Text), Array(&List(&Text))]), "commands before each run, untimed";
        "exit": List(&Whole(0)), "exit statuses of success; 0 where it is not said";
        "metrics": Named(&Table(METRIC)), "values that are read after each run";
        "time": Either(&[Word(&["wall", "user", "system", "cpu"]), Table(MEASURED)]),
            "the time of a run; `wall` where it is not said";
        "check": Table(COMMAND_CHECK), "what a run must have done";
    }

    METRIC {
        "regex": Text, "the last match in a text: its first group, or all of it";
        "json": Text, "a pointer into a document; `*[key=value]` finds in a list";
        "bytes": TRUE, "the size of a file";
        "from": Word(&["stdout", "stderr"]), "standard output where it is not said";
        "file": Text, "the file that is read instead";
        "unit": Text, "its unit, for people";
        "better": Word(&["lower", "higher"]), "which of two values is better";
    }

    MEASURED {
        "metric" (needed): Text, "a metric";
        "as": Expression, "seconds of a run; the metric where it is not said";
    }

    COMMAND_CHECK {
        "command": List(&Text), "a command that must succeed";
        "file": Text, "the file that has the digest";
        "sha256": Text, "64 hex digits, or `files.NAME` of the workload";
    }

    /// Of a backend that is a function in Python, beside `entry` and `args`.
    FUNCTION {
        "python": Path, "source in Python, relative to the manifest";
        "module": Text,
            "module of an installed package or below `[python] path`, or the name that `python` \
             is imported by";
        "kernelbench": Path,
            "`model`, that of the workload, or a file with `ModelNew`, relative to the manifest";
        "optional": Flag, "true where the source may be missing: its rows are `unavailable` then";
        "load": Schema(words::<Load>),
            "`definitions` leaves out what a file does when it is imported";
        "arrays": LIBRARY,
            "the library whose arrays it takes; what the source imports where it is not said";
        "kwargs": OBJECT, "arguments by name";
        "returns": List(&Text), "names of the outputs that it returns";
        "torch_compile": OBJECT, "options of torch.compile";
        "deterministic": Flag, "false where results differ from run to run by rounding";
        "autograd": Table(AUTOGRAD), "gradients that PyTorch derives";
    }

    AUTOGRAD {
        "of" (needed): List(&Text), "outputs of the call that gradients are of";
        "incoming": List(&Text), "inputs that are the gradients at these; 1 where it is not said";
        "by" (needed): Named(&Text), "inputs, and the outputs that are the gradients by them";
    }

    /// `[python]`.
    PYTHON {
        "exe": Text, "the interpreter; `python3` where it is not said";
        "path": List(&Path), "folders of modules, relative to the manifest";
    }
}

/// The tables whose keys backends have, each of its kind.
pub(crate) const BACKENDS: [&[Key]; 5] = [BACKEND, KERNELS, LAUNCH, COMMAND, FUNCTION];

const ARGUMENT: Takes =
    Takes::Schema(|| json!({ "type": ["string", "object", "number", "boolean", "array"] }));
const ARRAY: Takes = Takes::Schema(|| json!({ "type": "array" }));
const OBJECT: Takes = Takes::Schema(|| json!({ "type": "object" }));
const TRUE: Takes = Takes::Schema(|| json!({ "const": true }));
const LIBRARY: Takes = Takes::Schema(words::<ArrayLibrary>);
const NORM: Takes =
    Takes::Schema(|| json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 }));
const DTYPE: Takes = Takes::Schema(|| {
    let names = Dtype::ALL.iter().map(|dtype| dtype.name());
    one_of(&names.chain(["dtype"]).collect::<Vec<_>>())
});

fn pair(kind: &str) -> Value {
    json!({ "type": "array", "items": { "type": kind }, "minItems": 2, "maxItems": 2 })
}

fn extents() -> Value {
    let several = json!({
        "type": "array", "items": Takes::Expression.schema(), "minItems": 1, "maxItems": 3,
    });
    json!({ "anyOf": [Takes::Expression.schema(), several] })
}

/// The fill of an input, which others refer to.
pub(crate) fn fill() -> Value {
    let form = json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": false,
        "properties": {
            "normal": pair("number"),
            "uniform": pair("number"),
            "integers": pair("number"),
            "arange": pair("number"),
            "constant": { "type": "number" },
            "choice": { "type": "array", "items": { "type": "number" }, "minItems": 1 },
            "expr": Takes::Expression.schema(),
            "sorted": { "$ref": "#/$defs/fill" },
        },
    });
    json!({ "anyOf": [one_of(&["normal", "permutation"]), { "type": "number" }, form] })
}

/// The schema of `[workload.X]`.
pub(crate) fn workload() -> Value {
    let mut workload = table(WORKLOAD);
    // A judge may know by itself what is right.
    workload["properties"]["check"]["anyOf"] =
        json!([{ "required": ["reference"] }, { "required": ["judge"] }]);
    workload
}

/// The schema of `[backend.Y]`. What a source needs, other kinds of backends lack.
pub(crate) fn backend() -> Value {
    let mut backend = table(&BACKENDS.concat());
    // A backend that is like another has the other's workload.
    backend["required"] = json!([]);
    backend["anyOf"] = json!([{ "required": ["workload"] }, { "required": ["like"] }]);
    backend
}
