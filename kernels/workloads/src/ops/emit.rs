//! How a backend writes programs of these operations.

use super::cuda;
use sweeper_program::builtin::Builtin;
use sweeper_program::{
    Arg, Binding, BufferId, Dtype, Geometry, Index, Kernel, KernelId, Program, Role, Step, Target,
    View,
};

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

    /// This operand from element `start` of its view.
    pub fn from(mut self, start: Index) -> Self {
        self.start = start;
        self
    }

    /// Number of elements that the loops touch, or none if it depends on iterations twice: an
    /// element that a step of 0 repeats counts once.
    fn touched(&self, extents: &[Index; 4]) -> Option<Index> {
        let pairs = extents.iter().zip(&self.steps);
        let mut touched = Index::fixed(1);
        for (extent, _) in pairs.filter(|(_, step)| !step.is_zero()) {
            touched = extent.clone().product(touched)?;
        }
        Some(touched)
    }

    /// The view, with the number of elements that the loops touch, if this number does not depend
    /// on iterations twice.
    fn read(&self, extents: &[Index; 4]) -> View {
        let view = self.view.clone();
        match self.touched(extents) {
            Some(touched) => view.touching(touched),
            None => view,
        }
    }

    fn args(self) -> impl Iterator<Item = Arg> {
        std::iter::once(self.start).chain(self.steps).map(Arg::Int)
    }
}

/// Number of elements of a tensor, if its extents don't depend on iterations twice.
fn product(extents: &[Index; 4]) -> Option<Index> {
    let mut extents = extents.iter();
    extents.try_fold(Index::fixed(1), |all, extent| extent.clone().product(all))
}

/// A program that is being written, one operation after another.
///
/// On a CPU operations are builtins; on a GPU each is a small kernel, launched as often.
#[derive(Debug, Default)]
pub struct Emitter {
    program: Program,
    is_cuda: bool,
    /// Operations that have been launched.
    known: Vec<(&'static str, KernelId)>,
    steps: Vec<Step>,
    /// Steps before each loop that is open.
    outside: Vec<Vec<Step>>,
}

impl Emitter {
    /// An empty program for a target. [`Emitter::default`] is for a CPU.
    pub fn new(target: &Target) -> Self {
        Emitter {
            is_cuda: matches!(target, Target::Cuda { .. }),
            ..Emitter::default()
        }
    }

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
        let geometry = if self.is_cuda {
            cuda::geometry(&builtin, &args)
        } else {
            Geometry::blocks(1)
        };
        self.steps.push(Step::Launch {
            kernel,
            geometry,
            args,
        });
    }

    fn kernel(&mut self, builtin: Builtin) -> KernelId {
        let mut known = self.known.iter();
        if let Some(&(_, kernel)) = known.find(|(name, _)| *name == builtin.name) {
            return kernel;
        }
        let kernel = self.program.kernel(if self.is_cuda {
            Kernel::Compiled(cuda::kernel(&builtin))
        } else {
            Kernel::Builtin(builtin)
        });
        self.known.push((builtin.name, kernel));
        kernel
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
        let mut args = Vec::with_capacity(17);
        args.push(Arg::Read(a.read(&extents)));
        args.push(Arg::Read(b.read(&extents)));
        args.push(Arg::Write(match product(&extents) {
            Some(all) => out.touching(all),
            None => out,
        }));
        args.extend(extents.into_iter().map(Arg::Int));
        args.extend(a.args());
        args.extend(b.args());
        self.launch(builtin, args);
    }

    /// Launches an operation from one operand to another: [`super::ADD_IN_PLACE`] and its like, and
    /// [`super::COPY`].
    pub fn onto(&mut self, builtin: Builtin, extents: [Index; 4], from: Strided, to: Strided) {
        let mut args = Vec::with_capacity(16);
        args.push(Arg::Read(from.read(&extents)));
        let is_updated = builtin != super::COPY;
        args.push(Arg::Write(match to.touched(&extents) {
            Some(touched) if is_updated => to.view.clone().updating(touched),
            Some(touched) => to.view.clone().touching(touched),
            None => to.view.clone(),
        }));
        args.extend(extents.into_iter().map(Arg::Int));
        args.extend(from.args());
        args.extend(to.args());
        self.launch(builtin, args);
    }

    /// Launches an operation on `count` elements in place.
    pub fn in_place(&mut self, builtin: Builtin, x: View, count: Index) {
        let x = x.updating(count.clone());
        self.launch(builtin, vec![Arg::Write(x), Arg::Int(count)]);
    }

    /// Launches a reduction: extents are outer, first, kept, last.
    pub fn reduce(&mut self, builtin: Builtin, x: View, out: View, extents: [Index; 4]) {
        let [outer, _, kept, _] = &extents;
        let mut args = Vec::with_capacity(6);
        args.push(Arg::Read(match product(&extents) {
            Some(all) => x.touching(all),
            None => x,
        }));
        args.push(Arg::Write(match outer.clone().product(kept.clone()) {
            Some(sums) => out.touching(sums),
            None => out,
        }));
        args.extend(extents.into_iter().map(Arg::Int));
        self.launch(builtin, args);
    }

    /// Sets all elements.
    pub fn fill(&mut self, view: View, value: f64) {
        self.steps.push(Step::Fill { view, value });
    }

    /// Begins a loop: steps until [`Emitter::close_loop`] are its body.
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

    /// Ends the prologue: steps so far belong to it.
    pub fn end_prologue(&mut self) {
        self.program.prologue = std::mem::take(&mut self.steps);
    }

    /// The program.
    pub fn finish(mut self) -> Program {
        self.program.steps = self.steps;
        self.program
    }
}
