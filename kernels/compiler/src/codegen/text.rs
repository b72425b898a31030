//! Writing source text: lines, blocks, numbers, names.

use crate::nest::{Nest, Over, Value, ValueId};
use sweeper_program::tensor::Dtype;

/// Lines with indentation.
#[derive(Default)]
pub(super) struct Text {
    text: String,
    depth: usize,
}

impl Text {
    /// A line.
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !line.is_empty() {
            let depth = if line.starts_with('#') { 0 } else { self.depth };
            (0..depth).for_each(|_| self.text.push_str("    "));
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Lines, each indented.
    pub(super) fn lines(&mut self, lines: impl IntoIterator<Item = impl AsRef<str>>) {
        lines.into_iter().for_each(|line| self.line(line));
    }

    /// A line that opens a block: ` {` is added to it, if there is anything.
    pub(super) fn open(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        let space = if line.is_empty() { "" } else { " " };
        self.line(format!("{line}{space}{{"));
        self.depth += 1;
    }

    /// Closes the innermost block.
    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// Closes the innermost block, with more behind the brace.
    pub(super) fn close_with(&mut self, rest: &str) {
        self.depth -= 1;
        self.line(format!("}}{rest}"));
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// A number as a literal of type float, in C and in CUDA C++. Numbers without a literal are given
/// by `bits`, the name of a function from bits to float.
pub(super) fn literal(number: f64, bits: &str) -> String {
    let number = number as f32;
    if number.is_finite() {
        format!("{number:?}f")
    } else {
        format!("{bits}(0x{:08x}u)", number.to_bits())
    }
}

/// The word of a value in names: its operation.
fn word(value: &Value) -> &'static str {
    match value {
        Value::Load { .. } => "x",
        Value::Constant(_) => "constant",
        Value::Scalar(_) => "scalar",
        Value::Column => "column",
        Value::Row(_) => "index",
        Value::Unary(unary, _) => unary.name(),
        Value::Binary(binary, ..) => binary.name(),
        Value::Select(..) => "select",
        Value::Cast(..) => "cast",
        Value::Reduce { reduction, .. } => reduction.name(),
    }
}

/// The name of a value in generated text.
pub(super) fn name(nest: &Nest, id: ValueId) -> String {
    format!("{}_{}", word(&nest.values[id.0]), id.0)
}

/// The name of an operand's pointer.
pub(super) fn operand(nest: &Nest, at: usize) -> String {
    let kind = if nest.operands[at].is_written {
        "out"
    } else {
        "in"
    };
    format!("{kind}{at}")
}

/// The type of elements, in both languages; `long` names 64-bit whole numbers.
pub(super) fn element(dtype: Dtype, long: &'static str) -> &'static str {
    match dtype {
        Dtype::I64 => long,
        // Bits of a number: bf16.h.
        Dtype::Bf16 => "unsigned short",
        _ => "float",
    }
}

/// The words of a nest's operations, for a comment and for the names of files and functions.
/// Functions of one element that any loop may have come after the words that tell nests apart.
pub(super) fn words(nest: &Nest) -> Vec<&'static str> {
    let mut words: Vec<&'static str> = Vec::new();
    let mut add = |word| {
        if !words.contains(&word) {
            words.push(word);
        }
    };
    for value in &nest.values {
        match value {
            Value::Reduce {
                over, reduction, ..
            } => add(match (reduction, over) {
                (crate::graph::op::Reduction::Sum, Over::Columns) => "row_sum",
                (crate::graph::op::Reduction::Sum, Over::Rows) => "column_sum",
                (crate::graph::op::Reduction::Sum, Over::All) => "total",
                (crate::graph::op::Reduction::Max, Over::Columns) => "row_max",
                (crate::graph::op::Reduction::Max, Over::Rows) => "column_max",
                (crate::graph::op::Reduction::Max, Over::All) => "greatest",
            }),
            Value::Unary(unary, _) => add(unary.name()),
            Value::Select(..) => add("select"),
            _ => {}
        }
    }
    for value in &nest.values {
        if let Value::Binary(binary, ..) = value {
            add(binary.name());
        }
    }
    if words.is_empty() {
        words.push("copy");
    }
    words
}
