//! Launches of the kernels of `evaluate.cu`, and the buffers that they use.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use sweeper_program::headers::CUDA_H;
use sweeper_program::tensor::Dtype;
use sweeper_program::{
    Arg, Binding, BufferId, Geometry, Index, Kernel, KernelId, KernelSource, Language, Program,
    Role, SourceFile, Step, View,
};

use super::scratch;
use super::values::{Value, padded};

static SOURCE: &[SourceFile] = &[
    SourceFile::embedded("evaluate.cu", include_str!("evaluate.cu")),
    CUDA_H,
];

const THREADS: u32 = 256;

/// A program in the making. Scratch buffers are used again once no value holds them.
#[derive(Default)]
pub(super) struct Launches {
    program: Program,
    kernels: BTreeMap<&'static str, KernelId>,
    free: BTreeMap<(Dtype, usize), Vec<BufferId>>,
    given: BTreeMap<String, BufferId>,
}

/// Arguments of a launch, in the order of the kernel's parameters.
#[derive(Default)]
pub(super) struct Arguments(Vec<Arg>);

impl Arguments {
    /// The whole of a dense value, written.
    pub(super) fn writing(value: &Value) -> Self {
        Arguments(vec![Arg::Write(view(value))])
    }

    /// A number.
    pub(super) fn int(mut self, value: usize) -> Self {
        self.0.push(Arg::Int(Index::fixed(value as i64)));
        self
    }

    pub(super) fn ints(self, values: &[usize]) -> Self {
        values.iter().fold(self, |all, &value| all.int(value))
    }

    /// A real number of a rounding model, for which f32 is enough.
    pub(super) fn float(mut self, value: f64) -> Self {
        self.0.push(Arg::Float(value as f32));
        self
    }

    /// The number of elements and the extents of a result: `RESULT` of the kernels.
    pub(super) fn result(self, shape: &[usize]) -> Self {
        let elements = shape.iter().product();
        self.int(elements).ints(&padded(shape)[1..])
    }

    /// An operand with its strides: `OPERAND` of the kernels.
    pub(super) fn operand(mut self, value: &Value) -> Self {
        self.0.push(Arg::Read(view(value)));
        self.ints(&value.padded_strides())
    }

    /// A dense operand.
    pub(super) fn dense(mut self, value: &Value) -> Self {
        debug_assert!(value.is_dense());
        self.0.push(Arg::Read(view(value)));
        self
    }
}

fn view(value: &Value) -> View {
    View::new(
        *value.buffer,
        Index::fixed(value.offset() as i64),
        value.span(),
    )
}

impl Launches {
    /// Launches a kernel with a thread for each of `threads` elements.
    pub(super) fn launch(&mut self, entry: &'static str, threads: usize, args: Arguments) {
        let program = &mut self.program;
        let kernel = *self.kernels.entry(entry).or_insert_with(|| {
            program.kernel(Kernel::Compiled(KernelSource {
                language: Language::Cuda,
                files: Cow::Borrowed(SOURCE),
                entry: Cow::Borrowed(entry),
                defines: Vec::new(),
                options: Vec::new(),
                user: None,
            }))
        });
        let blocks = threads.div_ceil(THREADS as usize) as u32;
        program.steps.push(Step::Launch {
            kernel,
            geometry: Geometry::linear(blocks, THREADS),
            args: args.0,
        });
    }

    /// Memory for a value, with undefined contents.
    pub(super) fn acquire(&mut self, dtype: Dtype, shape: &[usize]) -> Value {
        let len = shape.iter().product();
        let free = self.free.entry((dtype, len)).or_default().pop();
        let buffer = free.unwrap_or_else(|| {
            let (role, binding) = scratch();
            let name = format!("value {}", self.program.buffers.len());
            self.program.buffer(name, dtype, len, role, binding)
        });
        Value::dense(buffer, dtype, shape)
    }

    /// Gives a value back; its buffer is free when no view of it is left.
    pub(super) fn release(&mut self, value: Value) {
        let Ok(buffer) = Rc::try_unwrap(value.buffer) else {
            return;
        };
        let held = &self.program.buffers[buffer.0];
        if held.binding == Binding::Scratch {
            let size = (held.dtype, held.len);
            self.free.entry(size).or_default().push(buffer);
        }
    }

    /// All of the memory that a value reads some of.
    pub(super) fn memory_of(&self, value: &Value) -> Value {
        value.memory(self.program.buffers[value.buffer.0].len)
    }

    /// A given tensor: of whole numbers as it is, real ones as f32 that are yet to be widened.
    pub(super) fn given(&mut self, name: &str, dtype: Dtype, shape: &[usize]) -> Value {
        let program = &mut self.program;
        let len = shape.iter().product();
        let given = self.given.entry(name.to_owned()).or_insert_with(|| {
            program.buffer(name.to_owned(), dtype, len, Role::Input, Binding::Given)
        });
        Value::dense(*given, dtype, shape)
    }

    /// A result of f64.
    pub(super) fn result(&mut self, name: &str, shape: &[usize]) -> Value {
        let len = shape.iter().product();
        let buffer = self.program.buffer(
            name.to_owned(),
            Dtype::F64,
            len,
            Role::Output,
            Binding::Result,
        );
        Value::dense(buffer, Dtype::F64, shape)
    }

    /// Sets all elements of a dense value.
    pub(super) fn fill(&mut self, to: &Value, value: f64) {
        let view = view(to);
        self.program.steps.push(Step::Fill { view, value });
    }

    /// Copies a value into a dense one of equal shape.
    pub(super) fn copy_into(&mut self, from: &Value, to: &Value) {
        let entry = match from.dtype {
            Dtype::I64 => "copy_whole",
            _ => "copy",
        };
        let args = Arguments::writing(to).result(to.shape()).operand(from);
        self.launch(entry, to.elements(), args);
    }

    /// The value in row-major order.
    pub(super) fn densely(&mut self, value: Value) -> Value {
        if value.is_dense() {
            return value;
        }
        let dense = self.acquire(value.dtype, value.shape());
        self.copy_into(&value, &dense);
        self.release(value);
        dense
    }

    pub(super) fn into_program(self) -> Program {
        self.program
    }
}
