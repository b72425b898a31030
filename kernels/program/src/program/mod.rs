//! The central idea: an implementation yields a [`Program`], a device runs it.
//!
//! A program is plain data. Launches per iteration, bytes moved, memory by category, the kernels to
//! compile: all of it follows without running anything, and without expanding a loop.

mod attention;
mod foreign;
mod index;
mod library;
mod order;
mod scalar;
mod source;
mod validate;
mod view;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::builtin::Builtin;
use crate::tensor::Dtype;

pub use attention::{Attention, AttentionPass, Heads};
pub use foreign::{Foreign, Runner};
pub use index::{Index, Term};
pub use library::{Activation, Conv2d, ConvPass, Library, Matmul, Matrix, Precision, Scale};
pub use order::Order;
pub use scalar::Scalar;
pub use source::{KernelSource, Language, SourceFile, UserOptions};
pub use view::{Rows, Touched, View};

/// The purpose of a buffer's memory, as memory reports group it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Given data that is not a potential or a parameter.
    Input,
    /// Results of a forward pass.
    Output,
    /// Results of a backward pass.
    Gradient,
    /// Scores of edges, given or materialised on the way.
    Potentials,
    /// State of a dynamic programme.
    DpState,
    /// Kept by the forward pass for the backward pass.
    Saved,
    /// Temporary.
    Workspace,
    /// Weights of a model.
    Parameter,
    /// State of an optimizer.
    Optimizer,
}

impl Role {
    /// All roles, in the order in which they are listed.
    pub const ALL: [Role; 9] = [
        Role::Input,
        Role::Output,
        Role::Gradient,
        Role::Potentials,
        Role::DpState,
        Role::Saved,
        Role::Workspace,
        Role::Parameter,
        Role::Optimizer,
    ];

    /// The word of files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Input => "input",
            Role::Output => "output",
            Role::Gradient => "gradient",
            Role::Potentials => "potentials",
            Role::DpState => "dp_state",
            Role::Saved => "saved",
            Role::Workspace => "workspace",
            Role::Parameter => "parameter",
            Role::Optimizer => "optimizer",
        }
    }
}

/// Where the contents of a buffer come from and go to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// Filled before the program runs with the problem's input tensor of the same name; not
    /// written.
    Given,
    /// A given tensor that the steps write: afterwards it is the result of another name. A device
    /// restores what was given before each run, untimed, so that all runs compute the same.
    Updated {
        /// Name of the result.
        result: Cow<'static, str>,
    },
    /// Read after the program ran, as the result of the same name; poisoned before.
    Result,
    /// The program's own; its contents before the program runs are undefined.
    Scratch,
    /// A variable of a kernel's source, such as an array in `__constant__` memory. The prologue
    /// copies a tensor there before each run, untimed. GPUs alone have such.
    Symbol {
        /// The kernel; all functions of its source see the variable.
        kernel: KernelId,
        /// The C++ name expression of its address, such as `&filter`, one of those that the source
        /// is asked for.
        name: Cow<'static, str>,
    },
}

/// A stretch of device memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Buffer {
    /// Name; for given buffers and results the tensor's.
    pub name: Cow<'static, str>,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Number of elements.
    pub len: usize,
    /// Its purpose.
    pub role: Role,
    /// Where its contents come from and go to.
    pub binding: Binding,
}

impl Buffer {
    /// Whether it holds an input tensor of the problem before the program runs.
    pub fn is_given(&self) -> bool {
        matches!(self.binding, Binding::Given | Binding::Updated { .. })
    }

    /// The name of the result that it holds after the program ran, if it holds one.
    pub fn result(&self) -> Option<&str> {
        match &self.binding {
            Binding::Result => Some(&self.name),
            Binding::Updated { result } => Some(result),
            Binding::Given | Binding::Scratch | Binding::Symbol { .. } => None,
        }
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.len as u64 * self.dtype.size_bytes() as u64
    }
}

/// A buffer of a program, by position in [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct BufferId(pub usize);

/// A kernel of a program, by position in [`Program::kernels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct KernelId(pub usize);

/// How a step's work is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    /// A named function of this crate: nothing to compile or cache.
    Builtin(Builtin),
    /// Compiled ahead, through the kernel cache.
    Compiled(KernelSource),
    /// A call of a library that is not ours.
    Library(Library),
    /// Work of another process, which reads and writes its arguments as a whole.
    Foreign(Foreign),
}

impl Kernel {
    /// The name under which the kernel is shown.
    pub fn name(&self) -> &str {
        match self {
            Kernel::Builtin(builtin) => builtin.name,
            Kernel::Library(library) => library.name(),
            Kernel::Compiled(source) => &source.entry,
            Kernel::Foreign(foreign) => &foreign.name,
        }
    }

    /// The source that is compiled for it, if there is one.
    pub fn source(&self) -> Option<&KernelSource> {
        match self {
            Kernel::Builtin(_) | Kernel::Library(_) | Kernel::Foreign(_) => None,
            Kernel::Compiled(source) => Some(source),
        }
    }
}

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Arg {
    /// Memory that is only read.
    Read(View),
    /// Memory that is written, and may be read. It overlaps no other argument of the launch, but
    /// for an updated buffer: of that the launch may read the same view, each element before it
    /// writes it.
    Write(View),
    /// A whole number.
    Int(Index),
    /// A real number.
    Float(f32),
    /// A number of a stated type, for a kernel that was not written for 64-bit cells.
    Scalar(Scalar),
}

impl Arg {
    /// Of a parameter that a launch does not use: a null pointer, or zero.
    pub const UNUSED: Arg = Arg::Int(Index::fixed(0));
}

/// The shape of a launch. A CPU runs `grid[0]` independent blocks and ignores the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Blocks of a cluster along x; 1 for none.
    pub cluster: u32,
    /// Whether blocks may start while the launch before is at its end: the kernel itself waits for
    /// all that was launched before, before it reads or writes anything (programmatic dependent
    /// launch, from sm_90 on).
    pub overlaps: bool,
}

impl Geometry {
    /// `blocks` independent pieces of work, for a CPU.
    pub const fn blocks(blocks: u32) -> Self {
        Geometry {
            grid: [blocks, 1, 1],
            block: [1, 1, 1],
            shared_bytes: 0,
            cluster: 1,
            overlaps: false,
        }
    }

    /// `blocks` blocks of `threads` threads along x.
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Geometry {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            cluster: 1,
            overlaps: false,
        }
    }
}

/// One thing a device does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Step {
    /// Runs a kernel.
    Launch {
        /// The kernel.
        kernel: KernelId,
        /// Its geometry.
        geometry: Geometry,
        /// Its arguments.
        args: Vec<Arg>,
    },
    /// Copies elements; the views have equal lengths and types and do not overlap.
    Copy {
        /// Source.
        from: View,
        /// Destination.
        to: View,
    },
    /// Sets every element to one value.
    Fill {
        /// Destination.
        view: View,
        /// The value, converted to the buffer's type.
        value: f64,
    },
    /// Runs `body` `count` times.
    Repeat {
        /// Iterations.
        count: u64,
        /// Steps of an iteration.
        body: Vec<Step>,
    },
}

/// Bytes of which the lengths of adjacent buffers are multiples: all buffers begin at such
/// addresses on a GPU.
pub const ADJACENT_ALIGNMENT: usize = 256;

/// How one phase of one problem is computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// All memory that is used.
    pub buffers: Vec<Buffer>,
    /// Given buffers that lie one after another without a gap, so that a view of one may reach into
    /// those behind it. The length of each is a multiple of [`ADJACENT_ALIGNMENT`] bytes. GPUs
    /// alone have such.
    pub adjacent: Vec<Vec<BufferId>>,
    /// All kernels that are launched.
    pub kernels: Vec<Kernel>,
    /// Run untimed before each sample: restores what steps change, or a forward pass.
    pub prologue: Vec<Step>,
    /// Run and timed.
    pub steps: Vec<Step>,
    /// The order of the timed steps.
    pub order: Order,
}

/// Totals of the work of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Kernels launched, copies and fills included.
    pub launches: u64,
    /// Of these, calls of libraries that are not ours.
    #[serde(default, rename = "library_launches")]
    pub calls: u64,
    /// Bytes that are read, of elements that are touched.
    pub read_bytes: u64,
    /// Bytes that are written.
    pub written_bytes: u64,
}

impl Program {
    /// Adds a buffer.
    pub fn buffer(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        dtype: Dtype,
        len: usize,
        role: Role,
        binding: Binding,
    ) -> BufferId {
        self.buffers.push(Buffer {
            name: name.into(),
            dtype,
            len,
            role,
            binding,
        });
        BufferId(self.buffers.len() - 1)
    }

    /// Adds a kernel.
    pub fn kernel(&mut self, kernel: Kernel) -> KernelId {
        self.kernels.push(kernel);
        KernelId(self.kernels.len() - 1)
    }

    /// The whole of a buffer.
    pub fn all(&self, buffer: BufferId) -> View {
        View::new(buffer, Index::fixed(0), self.buffers[buffer.0].len)
    }

    /// The buffers of given tensors that the steps write.
    pub fn updated(&self) -> impl Iterator<Item = &Buffer> {
        let is_updated = |buffer: &&Buffer| matches!(buffer.binding, Binding::Updated { .. });
        self.buffers.iter().filter(is_updated)
    }

    /// Bytes of all buffers, by role.
    pub fn memory_by_role(&self) -> BTreeMap<Role, u64> {
        let mut bytes = BTreeMap::new();
        for buffer in &self.buffers {
            *bytes.entry(buffer.role).or_insert(0) += buffer.size_bytes();
        }
        bytes
    }

    /// Bytes of all buffers.
    pub fn memory_bytes(&self) -> u64 {
        self.buffers.iter().map(Buffer::size_bytes).sum()
    }

    /// The kernels that need a compiler.
    pub fn compiled(&self) -> impl Iterator<Item = &KernelSource> {
        self.kernels.iter().filter_map(Kernel::source)
    }

    /// Whether the user wrote some of its kernels.
    pub fn has_kernels_of_the_user(&self) -> bool {
        self.compiled().any(|source| source.user.is_some())
    }

    /// The kernel that another process runs, if this is a program of one.
    pub fn foreign(&self) -> Option<&Foreign> {
        self.kernels.iter().find_map(|kernel| match kernel {
            Kernel::Foreign(foreign) => Some(foreign),
            _ => None,
        })
    }

    /// Who runs the program, where the device itself does not.
    pub fn runner(&self) -> Option<Runner> {
        match self.foreign() {
            Some(foreign) => Some(foreign.runner),
            None => self.is_untrusted().then_some(Runner::Referee),
        }
    }

    /// Whether nobody trusts it: it runs in a sandbox.
    pub fn is_untrusted(&self) -> bool {
        let user = |source: &KernelSource| source.user.as_ref().is_some_and(|it| it.is_untrusted);
        let foreign = self.foreign().is_some_and(|foreign| foreign.is_untrusted);
        foreign || self.compiled().any(user)
    }

    /// The sources to compile: each once, whichever of its functions are called.
    pub fn sources(&self) -> Vec<&KernelSource> {
        KernelSource::distinct(self.compiled())
    }

    /// For each kernel, where its source is among [`Program::sources`]; builtins have none.
    pub fn source_positions(&self) -> Vec<Option<usize>> {
        let sources = self.sources();
        let position = |kernel: &Kernel| {
            let source = kernel.source()?;
            sources.iter().position(|held| held.same_source(source))
        };
        self.kernels.iter().map(position).collect()
    }

    /// The work of the timed steps.
    pub fn totals(&self) -> Totals {
        self.totals_of(&self.steps, &[])
    }

    /// The work of `steps` in all iterations of the loops around them, which have `counts`
    /// iterations. By multiplication and sums in closed form: loops are not run.
    pub fn totals_of(&self, steps: &[Step], counts: &[u64]) -> Totals {
        let mut totals = Totals::default();
        self.add_totals(steps, &mut counts.to_vec(), &mut totals);
        totals
    }

    fn add_totals(&self, steps: &[Step], counts: &mut Vec<u64>, totals: &mut Totals) {
        for step in steps {
            totals.launches += match step {
                Step::Repeat { count, body } => {
                    counts.push(*count);
                    self.add_totals(body, counts, totals);
                    counts.pop();
                    0
                }
                _ => counts.iter().product(),
            };
            match step {
                Step::Repeat { .. } => {}
                Step::Launch { kernel, args, .. } => {
                    if matches!(self.kernels.get(kernel.0), Some(Kernel::Library(_))) {
                        totals.calls += counts.iter().product::<u64>();
                    }
                    self.add_arguments(args, counts, totals);
                }
                Step::Copy { from, to } => {
                    totals.read_bytes += self.view_bytes(from, counts);
                    totals.written_bytes += self.view_bytes(to, counts);
                }
                Step::Fill { view, .. } => totals.written_bytes += self.view_bytes(view, counts),
            }
        }
    }

    fn add_arguments(&self, args: &[Arg], counts: &[u64], totals: &mut Totals) {
        for arg in args {
            match arg {
                Arg::Read(view) => totals.read_bytes += self.view_bytes(view, counts),
                Arg::Write(view) => {
                    let bytes = self.view_bytes(view, counts);
                    let updated = view.touched.as_ref();
                    if updated.is_some_and(|touched| touched.is_updated) {
                        totals.read_bytes += bytes;
                    }
                    totals.written_bytes += bytes;
                }
                Arg::Int(_) | Arg::Float(_) | Arg::Scalar(_) => {}
            }
        }
    }

    /// Bytes of a view that are touched in all iterations.
    fn view_bytes(&self, view: &View, counts: &[u64]) -> u64 {
        let elements = match &view.touched {
            Some(touched) => u64::try_from(touched.elements.sum(counts)).unwrap_or(0),
            None => counts.iter().product::<u64>() * view.len as u64,
        };
        elements * self.buffers[view.buffer.0].dtype.size_bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looped(count: u64, offset: Index) -> Program {
        let mut program = Program::default();
        let state = program.buffer("state", Dtype::F32, 12, Role::DpState, Binding::Scratch);
        let view = View::new(state, offset, 4);
        let body = vec![Step::Fill { view, value: 0.0 }];
        program.steps = vec![Step::Repeat { count, body }];
        program
    }

    #[test]
    fn totals_multiply_loops() {
        let program = looped(1000, Index::fixed(8));
        let totals = program.totals();
        assert_eq!((totals.launches, totals.written_bytes), (1000, 16_000));
        assert_eq!(program.memory_bytes(), 48);
        assert_eq!(program.memory_by_role(), [(Role::DpState, 48)].into());
    }

    #[test]
    fn totals_count_what_is_touched() {
        let mut program = Program::default();
        let x = program.buffer("x", Dtype::F32, 100, Role::Input, Binding::Given);
        let y = program.buffer("y", Dtype::F64, 100, Role::Output, Binding::Result);
        let kernel = KernelId(0);
        let every = Index::affine(1, 0, 1).clamped(1, 3);
        let args = vec![
            Arg::Read(program.all(x).touching(every.clone())),
            Arg::Write(program.all(y).updating(every)),
        ];
        let body = vec![Step::Launch {
            kernel,
            geometry: Geometry::blocks(1),
            args,
        }];
        program.steps = vec![Step::Repeat { count: 5, body }];
        // 1 + 2 + 3 + 3 + 3 elements; the written ones are read, too.
        let expected = Totals {
            launches: 5,
            calls: 0,
            read_bytes: 12 * 4 + 12 * 8,
            written_bytes: 12 * 8,
        };
        assert_eq!(program.totals(), expected);
    }

    #[test]
    fn validation_finds_the_iteration_that_leaves_the_buffer() {
        assert_eq!(looped(3, Index::affine(0, 0, 4)).validate(), Ok(()));
        let complaint = looped(4, Index::affine(0, 0, 4)).validate().unwrap_err();
        assert_eq!(
            complaint,
            "views of 4 elements from 0 to 12 of `state`, which has 12"
        );
        assert!(
            looped(3, Index::affine(0, 1, 4))
                .validate()
                .unwrap_err()
                .contains("needs 2 loops")
        );
    }

    #[test]
    fn views_reach_into_adjacent_buffers() {
        let mut program = Program::default();
        let [a, b] = [("a", Binding::Given), ("b", Binding::Given)]
            .map(|(name, binding)| program.buffer(name, Dtype::F32, 64, Role::Parameter, binding));
        let out = program.buffer("out", Dtype::F32, 65, Role::Output, Binding::Result);
        program.steps = vec![Step::Copy {
            from: View::new(a, Index::fixed(63), 65),
            to: program.all(out),
        }];
        assert!(program.validate().is_err());
        program.adjacent = vec![vec![a, b]];
        assert_eq!(program.validate(), Ok(()));
        program.adjacent = vec![vec![b, a]];
        assert!(program.validate().is_err());
        program.adjacent = vec![vec![a, out]];
        let complaint = program.validate().unwrap_err();
        assert_eq!(complaint, "`out` can not lie behind another buffer");
    }

    #[test]
    fn given_buffers_are_not_written() {
        let mut program = Program::default();
        let edge = program.buffer("edge", Dtype::F32, 4, Role::Potentials, Binding::Given);
        program.steps = vec![Step::Fill {
            view: program.all(edge),
            value: 0.0,
        }];
        assert_eq!(
            program.validate().unwrap_err(),
            "`edge` is given, and written"
        );
    }
}
