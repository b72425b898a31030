//! The source in Python that makes a definition's inputs, of tensors in files and by chance.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::schema::{Definition, PROBABILITIES, SAMPLING};
use sweeper_model::toml_text::string;

/// The function of such a source.
pub(super) const GENERATE: &str = "generate_input";

/// Inputs that are in files: paths and names of tensors there.
pub(super) type Stored = BTreeMap<String, (String, String)>;

/// The source. `stored` has the inputs in files for each value of the parameter `line`.
pub(super) fn source(definition: &Definition, line: &str, stored: &[Stored]) -> String {
    let mut out = format!(
        "\"\"\"Inputs of {}: tensors of files, and others by chance as FlashInfer-Bench draws them.

Written by `sweeper import flashinfer`.
\"\"\"

import json

import numpy as np

# Of each workload the inputs that are in files, with the file and the name of the tensor there.
WORKLOADS = [
",
        definition.name
    );
    write_stored(&mut out, stored);
    let axes = definition.axes.0.iter().map(|(name, _)| name.as_str());
    let inputs = || definition.inputs.0.iter();
    let numbers = inputs().filter(|(_, input)| input.shape.is_none());
    let numbers = numbers.map(|(name, _)| name.as_str());
    let parameters: Vec<&str> = axes.chain(numbers).chain([line, "seed"]).collect();
    let _ = write!(
        out,
        "]


def {GENERATE}({}):
    stored = WORKLOADS[{line}]
    random = np.random.default_rng(seed)
    types = {{
",
        parameters.join(", ")
    );
    for (name, input) in inputs() {
        let Some(shape) = &input.shape else { continue };
        let shape: String = shape.iter().map(|axis| format!("{axis}, ")).collect();
        let (name, dtype) = (string(name), string(&input.dtype));
        let _ = writeln!(out, "        {name}: ({dtype}, ({})),", shape.trim_end());
    }
    out.push_str(
        "    }
    made = {
        name: read(*stored[name]) if name in stored else drawn(random, dtype, shape)
        for name, (dtype, shape) in types.items()
    }
",
    );
    if definition.op_type == SAMPLING && definition.inputs.get(PROBABILITIES).is_some() {
        let name = string(PROBABILITIES);
        let _ = write!(
            out,
            "    if {name} not in stored:
        weights = np.exp(made[{name}].astype(np.float32))
        made[{name}] = (weights / weights.sum(-1, keepdims=True)).astype(made[{name}].dtype)
"
        );
    }
    out.push_str(FUNCTIONS);
    out
}

/// Writes the files of each workload.
fn write_stored(out: &mut String, stored: &[Stored]) {
    for inputs in stored {
        if inputs.is_empty() {
            out.push_str("    {},\n");
            continue;
        }
        out.push_str("    {\n");
        for (name, (path, key)) in inputs {
            let (name, path, key) = (string(name), string(path), string(key));
            let _ = writeln!(out, "        {name}: ({path}, {key}),");
        }
        out.push_str("    },\n");
    }
}

/// The functions that it calls.
const FUNCTIONS: &str = r#"    return made


def drawn(random, dtype, shape):
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.startswith("int"):
        end = 128 if dtype == "int8" else 1024
        return random.integers(-end, end, shape).astype(dtype)
    # bf16, which NumPy lacks, is rounded from this f32.
    kept = np.float16 if dtype == "float16" else np.float32
    return random.standard_normal(shape, np.float32).astype(kept)


def read(path, key):
    """A tensor of a file of safetensors."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(length))[key]
        first, end = head["data_offsets"]
        file.seek(8 + length + first)
        held = file.read(end - first)
    types = {"F32": "f4", "F16": "f2", "BF16": "u2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "BOOL": "?"}
    array = np.frombuffer(held, types[head["dtype"]]).reshape(head["shape"])
    if head["dtype"] == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array
"#;
