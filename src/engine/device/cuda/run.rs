//! Queues the steps of a program in the stream.

use std::borrow::Cow;
use std::ops::Range;

use cudarc::driver::{result, sys};
use sweeper_program::{
    Arg, Dtype, Element, Geometry, KernelId, Order, Program, Step, View, with_element_type,
};

use super::calls::Callable;
use super::context::Context;
use super::driver::{During, Fault};
use super::graph::{Graph, Node, Recording};
use super::module::Function;
use super::timing::Timer;

/// Queues one program whose buffers have addresses.
pub struct Runner<'a> {
    context: &'a Context,
    program: &'a Program,
    functions: &'a [Callable],
    addresses: &'a [u64],
}

impl<'a> Runner<'a> {
    /// A runner; `addresses` has one for each buffer, `functions` one for each kernel.
    ///
    /// The program was validated: every view lies inside its buffer in every iteration, and
    /// [`check_launches`] had no complaint.
    pub fn new(
        context: &'a Context,
        program: &'a Program,
        functions: &'a [Callable],
        addresses: &'a [u64],
    ) -> Self {
        Runner {
            context,
            program,
            functions,
            addresses,
        }
    }

    /// Runs the program `iterations` times; the time of the timed steps alone, in nanoseconds.
    ///
    /// Up to `per_span` iterations share a pair of events, unless something that is not timed comes
    /// before each of them: a prologue, or a flush of the cache.
    ///
    /// With a `graph` of the timed steps, it is launched in their place.
    ///
    /// # Errors
    /// A refused launch, or an error of a kernel.
    pub fn sample(
        &self,
        timer: &mut Timer,
        plan: Spans,
        graph: Option<&Graph>,
    ) -> Result<f64, Fault> {
        let apart = timer.flushes() || !self.program.prologue.is_empty();
        let most = if apart { 1 } else { plan.per_span.max(1) };
        let mut left = plan.iterations;
        let mut elapsed_ns = 0.0;
        while left > 0 {
            let now = left.min(most);
            self.steps(&self.program.prologue, &mut Vec::new())?;
            elapsed_ns += timer.span(plan.gated, || {
                (0..now).try_for_each(|_| match graph {
                    None => self.timed_steps(),
                    Some(graph) => graph.launch(),
                })
            })?;
            left -= now;
        }
        Ok(elapsed_ns)
    }

    /// Queues the prologue.
    ///
    /// # Errors
    /// A refused launch.
    pub fn prologue(&self) -> Result<(), Fault> {
        self.steps(&self.program.prologue, &mut Vec::new())
    }

    /// Queues some of the timed steps.
    ///
    /// # Errors
    /// A refused launch.
    pub fn part(&self, steps: Range<usize>) -> Result<(), Fault> {
        self.steps(&self.program.steps[steps], &mut Vec::new())
    }

    /// Queues the timed steps once.
    ///
    /// # Errors
    /// A refused launch.
    pub fn timed_steps(&self) -> Result<(), Fault> {
        self.steps(&self.program.steps, &mut Vec::new())
    }

    /// Queues the timed steps into a graph: in turn, or each behind those whose memory it shares.
    ///
    /// # Errors
    /// A refused launch, or the driver's.
    pub fn record(&self, recording: &Recording<'_>) -> Result<(), Fault> {
        let is_unused = |kernel: KernelId, arg| match &self.functions[kernel.0] {
            Callable::Product(product) => product.ignores(arg),
            _ => false,
        };
        let dependencies = match self.program.order {
            Order::InTurn => None,
            Order::ByData => self.program.dependencies(self.addresses, is_unused),
        };
        let Some(dependencies) = dependencies else {
            return self.timed_steps();
        };
        // The nodes that each step ends with.
        let mut ends: Vec<Vec<Node>> = Vec::with_capacity(dependencies.len());
        for (step, waits) in self.program.steps.iter().zip(&dependencies) {
            let nodes = waits.iter().flat_map(|&before| &ends[before]).copied();
            recording.after(nodes.collect())?;
            let step = self.overlapping(step, waits);
            self.steps(std::slice::from_ref(&*step), &mut Vec::new())?;
            ends.push(recording.last()?);
        }
        Ok(())
    }

    /// A step of a graph, where it waits for these steps: it may begin before the end of one launch
    /// of a kernel of ours, and of nothing else.
    fn overlapping<'s>(&self, step: &'s Step, waits: &[usize]) -> Cow<'s, Step> {
        let is_own = |step: &Step| match step {
            Step::Launch { kernel, .. } => {
                matches!(self.functions[kernel.0], Callable::Function(_))
            }
            _ => false,
        };
        let mut step = Cow::Borrowed(step);
        let can = matches!(waits, [before] if is_own(&self.program.steps[*before]));
        if let Step::Launch { geometry, .. } = &*step
            && geometry.overlaps
            && !can
            && let Step::Launch { geometry, .. } = step.to_mut()
        {
            geometry.overlaps = false;
        }
        step
    }

    fn steps(&self, steps: &[Step], iterations: &mut Vec<i64>) -> Result<(), Fault> {
        for step in steps {
            match step {
                Step::Launch {
                    kernel,
                    geometry,
                    args,
                } => match &self.functions[kernel.0] {
                    Callable::Function(function) => {
                        self.launch(*kernel, *function, *geometry, args, iterations)?;
                    }
                    Callable::Product(product) => {
                        let stream = self.context.stream().cast();
                        product.launch(&self.operands(args, iterations), stream)?;
                    }
                    Callable::Convolution(convolution) => {
                        convolution.launch(&self.operands(args, iterations))?;
                    }
                    Callable::Attention(attention) => {
                        attention.launch(&self.operands(args, iterations))?;
                    }
                },
                Step::Copy { from, to } => self.copy(from, to, iterations)?,
                Step::Fill { view, value } => self.fill(view, *value, iterations)?,
                Step::Repeat { count, body } => {
                    iterations.push(0);
                    for iteration in 0..*count as i64 {
                        if let Some(last) = iterations.last_mut() {
                            *last = iteration;
                        }
                        self.steps(body, iterations)?;
                    }
                    iterations.pop();
                }
            }
        }
        Ok(())
    }

    fn launch(
        &self,
        kernel: KernelId,
        function: Function,
        geometry: Geometry,
        args: &[Arg],
        iterations: &[i64],
    ) -> Result<(), Fault> {
        let mut cells: Vec<u64> = args.iter().map(|arg| self.cell(arg, iterations)).collect();
        let launched = function.launch(self.context.stream(), &geometry, &mut cells);
        launched.map_err(|fault| fault.of_kernel(self.program.kernels[kernel.0].name()))
    }

    /// Addresses of a library's operands.
    fn operands(&self, args: &[Arg], iterations: &[i64]) -> Vec<u64> {
        let cells = args.iter().map(|arg| self.cell(arg, iterations));
        cells.collect()
    }

    fn address(&self, view: &View, iterations: &[i64]) -> (u64, Dtype) {
        let dtype = self.program.buffers[view.buffer.0].dtype;
        let offset = view.offset.at(iterations) as u64 * dtype.size_bytes() as u64;
        (self.addresses[view.buffer.0] + offset, dtype)
    }

    fn cell(&self, arg: &Arg, iterations: &[i64]) -> u64 {
        match arg {
            Arg::Read(view) | Arg::Write(view) => self.address(view, iterations).0,
            Arg::Int(index) => index.at(iterations) as u64,
            Arg::Float(value) => u64::from(value.to_bits()),
            Arg::Scalar(scalar) => scalar.bits(),
        }
    }

    #[expect(unsafe_code, reason = "a call of the driver")]
    fn copy(&self, from: &View, to: &View, iterations: &[i64]) -> Result<(), Fault> {
        let (source, dtype) = self.address(from, iterations);
        let (destination, _) = self.address(to, iterations);
        let bytes = from.len * dtype.size_bytes();
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both views lie inside their buffers (`Program::validate`), which have one type.
        unsafe { result::memcpy_dtod_async(destination, source, bytes, self.context.stream()) }
            .during("copying")
    }

    #[expect(unsafe_code, reason = "calls of the driver")]
    fn fill(&self, view: &View, value: f64, iterations: &[i64]) -> Result<(), Fault> {
        let (address, dtype) = self.address(view, iterations);
        let (len, stream) = (view.len, self.context.stream());
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the view lies inside its buffer (`Program::validate`), and has `len` elements of
        // the size of the pattern.
        unsafe {
            match pattern(dtype, value) {
                Pattern::Byte(byte) => sys::cuMemsetD8Async(address, byte, len, stream),
                Pattern::Half(half) => sys::cuMemsetD16Async(address, half, len, stream),
                Pattern::Word(word) => sys::cuMemsetD32Async(address, word, len, stream),
                Pattern::Words(low, high) if low == high => {
                    sys::cuMemsetD32Async(address, low, 2 * len, stream)
                }
                Pattern::Words(low, high) => {
                    match sys::cuMemsetD2D32Async(address, 8, low, 1, len, stream) {
                        sys::CUresult::CUDA_SUCCESS => {
                            sys::cuMemsetD2D32Async(address + 4, 8, high, 1, len, stream)
                        }
                        refused => refused,
                    }
                }
            }
        }
        .result()
        .during("filling")
    }
}

/// How often a sample runs a program, and how.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    /// Iterations in all.
    pub iterations: u32,
    /// Iterations between two events, at most.
    pub per_span: u32,
    /// Hold the device back until all of a span is queued.
    pub gated: bool,
}

/// The bits of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// 8 bits.
    Byte(u8),
    /// 16 bits.
    Half(u16),
    /// 32 bits.
    Word(u32),
    /// 64 bits, low before high.
    Words(u32, u32),
}

fn pattern(dtype: Dtype, value: f64) -> Pattern {
    let element = with_element_type!(dtype, T => Element::data(vec![T::from_f64(value)]));
    match *element.bytes() {
        [byte] => Pattern::Byte(byte),
        [low, high] => Pattern::Half(u16::from_ne_bytes([low, high])),
        [a, b, c, d] => Pattern::Word(u32::from_ne_bytes([a, b, c, d])),
        ref bytes => {
            let bits = bytes.try_into().map_or(0, u64::from_ne_bytes);
            Pattern::Words(bits as u32, (bits >> 32) as u32)
        }
    }
}

/// Checks that every launch hands its kernel as many arguments as it takes, and lets kernels have
/// the shared memory and clusters that their launches want.
///
/// # Errors
/// A sentence that names the kernel, or the driver's.
pub fn check_launches(program: &Program, functions: &[Callable]) -> Result<(), Fault> {
    let mut launches = Vec::new();
    collect(&program.prologue, &mut launches);
    collect(&program.steps, &mut launches);
    for (position, function) in functions.iter().enumerate() {
        // Arguments of libraries were checked when the call was prepared.
        let Callable::Function(function) = function else {
            continue;
        };
        let name = program.kernels[position].name();
        let own = launches.iter().filter(|(kernel, ..)| kernel.0 == position);
        let (mut shared_bytes, mut cluster) = (0, 1);
        for (_, geometry, arguments) in own {
            let misfit = misfit(arguments, function.parameter_bytes());
            if let Some(misfit) = misfit {
                return Err(Fault::refused(format!("`{name}` {misfit}")));
            }
            shared_bytes = geometry.shared_bytes.max(shared_bytes);
            cluster = geometry.cluster.max(cluster);
        }
        let allowed = function.allow(shared_bytes, cluster);
        allowed.map_err(|fault| fault.of_kernel(name))?;
    }
    Ok(())
}

/// How arguments differ from the parameters of a kernel, in words.
fn misfit(arguments: &[Arg], parameter_bytes: &[usize]) -> Option<String> {
    let (given, taken) = (arguments.len(), parameter_bytes.len());
    if given != taken {
        return Some(format!("takes {taken} arguments, a launch has {given}"));
    }
    let pairs = arguments.iter().zip(parameter_bytes).enumerate();
    let mut misfits = pairs.filter_map(|(at, (argument, &taken))| {
        let (given, what) = match argument {
            Arg::Read(_) | Arg::Write(_) => (size_of::<u64>(), "an address".to_owned()),
            Arg::Scalar(scalar) => {
                let dtype = scalar.dtype();
                (dtype.size_bytes(), format!("a number of type {dtype}"))
            }
            // Kernels of this build take cells.
            Arg::Int(_) | Arg::Float(_) => return None,
        };
        let number = at + 1;
        (given != taken).then(|| {
            format!("takes {taken} bytes as argument {number}, and gets {what} of {given}")
        })
    });
    misfits.next()
}

/// All launches of some steps, each once: kernel, geometry and arguments.
fn collect<'p>(steps: &'p [Step], launches: &mut Vec<(KernelId, Geometry, &'p [Arg])>) {
    for step in steps {
        match step {
            Step::Launch {
                kernel,
                geometry,
                args,
            } => launches.push((*kernel, *geometry, args)),
            Step::Repeat { body, .. } => collect(body, launches),
            Step::Copy { .. } | Step::Fill { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_sizes_of_parameters() {
        let view = View::new(sweeper_program::BufferId(0), 0.into(), 4);
        let number = |dtype| Arg::Scalar(sweeper_program::Scalar::real(dtype, 1.0));
        let arguments = [Arg::Read(view.clone()), number(Dtype::F32)];
        assert_eq!(misfit(&arguments, &[8, 4]), None);
        let double = [Arg::Read(view), number(Dtype::F64)];
        let complaint = |arguments: &[Arg], taken: &[usize]| misfit(arguments, taken).unwrap();
        assert_eq!(
            complaint(&double, &[8, 4]),
            "takes 4 bytes as argument 2, and gets a number of type f64 of 8"
        );
        assert_eq!(
            complaint(&arguments, &[4, 4]),
            "takes 4 bytes as argument 1, and gets an address of 8"
        );
        assert_eq!(
            complaint(&arguments, &[8, 4, 8]),
            "takes 3 arguments, a launch has 2"
        );
    }

    #[test]
    fn elements_are_bits() {
        assert_eq!(pattern(Dtype::Bf16, -1.0), Pattern::Half(0xbf80));
        assert_eq!(pattern(Dtype::F32, -1.0), Pattern::Word(0xbf80_0000));
        assert_eq!(pattern(Dtype::I32, -2.0), Pattern::Word(0xffff_fffe));
        assert_eq!(pattern(Dtype::I8, -2.0), Pattern::Byte(0xfe));
        assert_eq!(pattern(Dtype::F16, -1.0), Pattern::Half(0xbc00));
        assert_eq!(pattern(Dtype::F64, 1.0), Pattern::Words(0, 0x3ff0_0000));
        assert_eq!(
            pattern(Dtype::I64, -1.0),
            Pattern::Words(u32::MAX, u32::MAX)
        );
    }
}
