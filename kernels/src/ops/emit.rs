//! How a backend writes programs of these operations.

use crate::builtin::Builtin;
use crate::program::{Arg, Binding, BufferId, Geometry, Index, Kernel, KernelId, Role, Step, View};
use crate::{Dtype, Program};

/// An operand of an elementwise operation: a view, where in it to start, and its steps.
#[derive(Clone, Debug)]
pub struct Strided {
    /// Memory.
    pub view: View,
    /// First element, counted from the view's start.
    pub start: Index,
    /// Elements from one iteration to the next, outermost loop first.
    pub steps: [Index; 4],
}

impl Strided {
    /// An operand that starts where its view does.
    pub fn new(view: View, steps: [Index; 4]) -> Self {
        Strided {
            view,
            start: Index::fixed(0),
            steps,
        }
    }

    /// The same operand from element `start` of its view.
    pub fn from(mut self, start: Index) -> Self {
        self.start = start;
        self
    }

    fn args(self) -> impl Iterator<Item = Arg> {
        std::iter::once(self.start).chain(self.steps).map(Arg::Int)
    }
}

/// A program that is being written, one operation after another.
#[derive(Debug, Default)]
pub struct Emitter {
    program: Program,
    steps: Vec<Step>,
    /// Steps before each loop that is open.
    outside: Vec<Vec<Step>>,
}

impl Emitter {
    /// Adds a buffer.
    pub fn buffer(
        &mut self,
        name: impl Into<std::borrow::Cow<'static, str>>,
        dtype: Dtype,
        len: usize,
        role: Role,
        binding: Binding,
    ) -> BufferId {
        self.program.buffer(name, dtype, len, role, binding)
    }

    /// The whole of a buffer.
    pub fn all(&self, buffer: BufferId) -> View {
        self.program.all(buffer)
    }

    /// Launches an operation with these arguments.
    pub fn launch(&mut self, builtin: Builtin, args: Vec<Arg>) {
        let kernel = self.kernel(builtin);
        self.steps.push(Step::Launch {
            kernel,
            geometry: Geometry::blocks(1),
            args,
        });
    }

    fn kernel(&mut self, builtin: Builtin) -> KernelId {
        let kernel = Kernel::Builtin(builtin);
        let known = self
            .program
            .kernels
            .iter()
            .position(|known| *known == kernel);
        known.map_or_else(|| self.program.kernel(kernel), KernelId)
    }

    /// Launches an operation of two operands and a dense result: [`super::ADD`] and its like.
    pub fn binary(
        &mut self,
        builtin: Builtin,
        extents: [Index; 4],
        a: Strided,
        b: Strided,
        out: View,
    ) {
        // Exact, because a plan makes millions of these lists.
        let mut args = Vec::with_capacity(3 + 4 + 5 + 5);
        args.push(Arg::Read(a.view.clone()));
        args.push(Arg::Read(b.view.clone()));
        args.push(Arg::Write(out));
        args.extend(extents.into_iter().map(Arg::Int));
        args.extend(a.args());
        args.extend(b.args());
        self.launch(builtin, args);
    }

    /// Launches an operation from one operand to another: [`super::ADD_IN_PLACE`] and its like, and
    /// [`super::COPY`].
    pub fn onto(&mut self, builtin: Builtin, extents: [Index; 4], from: Strided, to: Strided) {
        let mut args = Vec::with_capacity(2 + 4 + 5 + 5);
        args.push(Arg::Read(from.view.clone()));
        args.push(Arg::Write(to.view.clone()));
        args.extend(extents.into_iter().map(Arg::Int));
        args.extend(from.args());
        args.extend(to.args());
        self.launch(builtin, args);
    }

    /// Launches an operation on `count` elements in place.
    pub fn in_place(&mut self, builtin: Builtin, x: View, count: Index) {
        self.launch(builtin, vec![Arg::Write(x), Arg::Int(count)]);
    }

    /// Launches a reduction: extents are outer, first, kept, last.
    pub fn reduce(&mut self, builtin: Builtin, x: View, out: View, extents: [Index; 4]) {
        let mut args = Vec::with_capacity(2 + 4);
        args.push(Arg::Read(x));
        args.push(Arg::Write(out));
        args.extend(extents.into_iter().map(Arg::Int));
        self.launch(builtin, args);
    }

    /// Sets all elements.
    pub fn fill(&mut self, view: View, value: f64) {
        self.steps.push(Step::Fill { view, value });
    }

    /// What is written until [`Emitter::close_loop`] is the body of a loop.
    pub fn open_loop(&mut self) {
        self.outside.push(std::mem::take(&mut self.steps));
    }

    /// Ends the innermost open loop, which runs `count` times.
    pub fn close_loop(&mut self, count: usize) {
        let outside = self.outside.pop().unwrap_or_default();
        let body = std::mem::replace(&mut self.steps, outside);
        self.steps.push(Step::Repeat {
            count: count as u64,
            body,
        });
    }

    /// Makes what was written so far the prologue.
    pub fn end_prologue(&mut self) {
        self.program.prologue = std::mem::take(&mut self.steps);
    }

    /// The program.
    pub fn finish(mut self) -> Program {
        self.program.steps = self.steps;
        self.program
    }
}
