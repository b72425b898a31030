//! The oracle as a program for a GPU: the launches of `definition.cu`.

use std::borrow::Cow;

use crate::semicrf::compiled::given;
use crate::semicrf::sizes::{Semiring, Sizes};
use sweeper_program::headers::CUDA_H;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{DeviceOracle, Phase, TensorSpec};
use sweeper_program::{
    Arg, Binding, BufferId, Geometry, Index, Kernel, KernelSource, Language, Program, Role,
    SourceFile, Step,
};

static SOURCE: &[SourceFile] = &[
    SourceFile::embedded("definition.cu", include_str!("definition.cu")),
    CUDA_H,
];

const THREADS: u32 = 128;

/// Numbers of an unfinished sum.
const SUM_NUMBERS: usize = 3;

/// The oracle of `phase`.
pub(in crate::semicrf) fn oracle(sizes: &Sizes, phase: Phase) -> DeviceOracle {
    let mut builder = Builder::new(sizes, phase);
    builder.scan();
    builder.totals();
    if phase.has_gradients() {
        match sizes.semiring {
            Semiring::Max => builder.best_segments(),
            Semiring::Log | Semiring::Entropy => builder.marginals(),
        }
    }
    let answers = sizes.outputs(phase).into_iter().map(|spec| TensorSpec {
        dtype: Dtype::F64,
        ..spec
    });
    DeviceOracle {
        answers: answers.collect(),
        program: builder.program,
    }
}

struct Builder {
    sizes: Sizes,
    program: Program,
    lengths: BufferId,
    scores: Vec<BufferId>,
    /// 1 for prefixes alone, 2 with suffixes.
    roles: usize,
    logs: BufferId,
    /// Entropies, for the entropy semiring.
    entropies: Option<BufferId>,
    /// First greatest terms, of the max semiring.
    best: Option<BufferId>,
    value: BufferId,
    entropy: Option<BufferId>,
    /// Gradients of scores, or of cumulative scores, transition and bias.
    gradients: Vec<BufferId>,
}

fn int(value: usize) -> Arg {
    Arg::Int(Index::fixed(value as i64))
}

impl Builder {
    fn new(sizes: &Sizes, phase: Phase) -> Self {
        let mut program = Program::default();
        let given = given(sizes, &mut program);
        let (&lengths, scores) = given.split_last().unwrap_or((&BufferId(0), &[]));
        let is_max = sizes.semiring == Semiring::Max;
        let is_entropy = sizes.semiring == Semiring::Entropy;
        let roles = if phase.has_gradients() && !is_max {
            2
        } else {
            1
        };
        let table = roles * sizes.b * (sizes.last_end() + 1) * sizes.c;
        let mut buffer = |name: &str, dtype, len, binding| {
            program.buffer(name.to_owned(), dtype, len, Role::Workspace, binding)
        };
        let logs = buffer("logs", Dtype::F64, table, Binding::Scratch);
        let entropies =
            is_entropy.then(|| buffer("entropies", Dtype::F64, table, Binding::Scratch));
        let best = is_max.then(|| buffer("best", Dtype::I64, table, Binding::Scratch));
        let of_values = match phase {
            Phase::Backward => Binding::Scratch,
            Phase::Forward | Phase::Both | Phase::Step => Binding::Result,
        };
        let value = buffer("value", Dtype::F64, sizes.b, of_values.clone());
        let entropy = is_entropy.then(|| buffer("entropy", Dtype::F64, sizes.b, of_values));
        let specs = match phase.has_gradients() {
            true => sizes.score_specs("grad_"),
            false => vec![],
        };
        let gradient = |spec: &TensorSpec| {
            let len = spec.elements() as usize;
            buffer(&spec.name, Dtype::F64, len, Binding::Result)
        };
        let gradients = specs.iter().map(gradient).collect();
        Builder {
            sizes: *sizes,
            lengths,
            scores: scores.to_vec(),
            roles,
            logs,
            entropies,
            best,
            value,
            entropy,
            gradients,
            program,
        }
    }

    fn read(&self, buffer: BufferId) -> Arg {
        Arg::Read(self.program.all(buffer))
    }

    fn write(&self, buffer: BufferId) -> Arg {
        Arg::Write(self.program.all(buffer))
    }

    fn read_if(&self, buffer: Option<BufferId>) -> Arg {
        buffer.map_or(int(0), |buffer| self.read(buffer))
    }

    fn write_if(&self, buffer: Option<BufferId>) -> Arg {
        buffer.map_or(int(0), |buffer| self.write(buffer))
    }

    fn scratch(&mut self, name: &'static str, len: usize) -> BufferId {
        self.program
            .buffer(name, Dtype::F64, len, Role::Workspace, Binding::Scratch)
    }

    /// `PROBLEM` of the kernels.
    fn problem(&self) -> Vec<Arg> {
        let sizes = &self.sizes;
        let semiring = match sizes.semiring {
            Semiring::Log => 0,
            Semiring::Max => 1,
            Semiring::Entropy => 2,
        };
        let numbers = [
            sizes.b,
            sizes.t,
            sizes.k,
            sizes.c,
            sizes.longest(),
            sizes.first_duration_index(),
            usize::from(!sizes.is_decomposed()),
            usize::from(sizes.transition_per_duration),
            semiring,
        ];
        let mut args: Vec<Arg> = numbers.into_iter().map(int).collect();
        args.push(self.read(self.lengths));
        args.push(self.read(self.scores[0]));
        args.push(self.read_if(self.scores.get(1).copied()));
        args.push(self.read_if(self.scores.get(2).copied()));
        args
    }

    /// `TABLES` of the kernels.
    fn tables(&self) -> [Arg; 4] {
        [
            self.read(self.logs),
            self.read_if(self.entropies),
            self.read(self.value),
            self.read_if(self.entropy),
        ]
    }

    /// A launch with a thread for each of `threads`, of the problem and `args`.
    fn launch(
        &mut self,
        entry: &'static str,
        threads: usize,
        args: impl IntoIterator<Item = Arg>,
    ) -> Step {
        let kernel = self.program.kernel(Kernel::Compiled(KernelSource {
            language: Language::Cuda,
            files: Cow::Borrowed(SOURCE),
            entry: Cow::Borrowed(entry),
            defines: Vec::new(),
            options: Vec::new(),
            user: None,
        }));
        let blocks = threads.div_ceil(THREADS as usize) as u32;
        Step::Launch {
            kernel,
            geometry: Geometry::linear(blocks, THREADS),
            args: self.problem().into_iter().chain(args).collect(),
        }
    }

    fn fill(&self, buffer: BufferId) -> Step {
        let view = self.program.all(buffer);
        Step::Fill { view, value: 0.0 }
    }

    /// The tables, boundary by boundary. All ways of no segment weigh 1: a logarithm and an entropy
    /// of 0.
    fn scan(&mut self) {
        let Sizes { b, c, .. } = self.sizes;
        let sums = self.roles * b * c;
        let terms = sums * self.sizes.longest();
        let parts = self.scratch("parts", SUM_NUMBERS * terms);
        for table in [Some(self.logs), self.entropies].into_iter().flatten() {
            let fill = self.fill(table);
            self.program.steps.push(fill);
        }
        let step = || [Arg::Int(Index::affine(1, 0, 1)), int(self.roles)];
        let partial = step().into_iter().chain([
            self.read(self.logs),
            self.read_if(self.entropies),
            self.write(parts),
        ]);
        let finish = step().into_iter().chain([
            self.read(parts),
            self.write(self.logs),
            self.write_if(self.entropies),
            self.write_if(self.best),
        ]);
        let (partial, finish): (Vec<Arg>, Vec<Arg>) = (partial.collect(), finish.collect());
        let body = vec![
            self.launch("partial_sums", terms, partial),
            self.launch("finish_sums", sums, finish),
        ];
        let count = self.sizes.last_end() as u64;
        self.program.steps.push(Step::Repeat { count, body });
    }

    fn totals(&mut self) {
        let args = [
            self.read(self.logs),
            self.read_if(self.entropies),
            self.write(self.value),
            self.write_if(self.entropy),
        ];
        let step = self.launch("totals", self.sizes.b, args);
        self.program.steps.push(step);
    }

    /// Gradients from the marginals of edges.
    fn marginals(&mut self) {
        let len = |builder: &Self, buffer: BufferId| builder.program.buffers[buffer.0].len;
        if let &[grad_edge] = self.gradients.as_slice() {
            let args = self.tables().into_iter().chain([self.write(grad_edge)]);
            let args: Vec<Arg> = args.collect();
            let step = self.launch("edge_gradients", len(self, grad_edge), args);
            self.program.steps.push(step);
            return;
        }
        let grad_cum_scores = self.gradients[0];
        let args = self.tables().into_iter();
        let args: Vec<Arg> = args.chain([self.write(grad_cum_scores)]).collect();
        let boundaries = self.launch("boundary_gradients", len(self, grad_cum_scores), args);
        let segments = self.segments();
        let args = self.tables().into_iter();
        let args: Vec<Arg> = args.chain([self.write(segments)]).collect();
        let sums = self.launch("segment_gradients", len(self, segments), args);
        self.program.steps.extend([boundaries, sums]);
        self.shared_gradients(segments);
    }

    /// Sums over all segments with a duration and labels, a sequence each.
    fn segments(&mut self) -> BufferId {
        let Sizes { b, c, .. } = self.sizes;
        self.scratch("segments", b * self.sizes.longest() * c * c)
    }

    /// Gradients of the tensors that sequences share.
    fn shared_gradients(&mut self, segments: BufferId) {
        for (at, entry) in [(1, "transition_gradients"), (2, "bias_gradients")] {
            let gradient = self.gradients[at];
            let threads = self.program.buffers[gradient.0].len;
            let args = [self.read(segments), self.write(gradient)];
            let step = self.launch(entry, threads, args);
            self.program.steps.push(step);
        }
    }

    /// Gradients of the best score.
    fn best_segments(&mut self) {
        let grad_scores = self.gradients[0];
        let segments = self.sizes.is_decomposed().then(|| self.segments());
        for buffer in [Some(grad_scores), segments].into_iter().flatten() {
            let fill = self.fill(buffer);
            self.program.steps.push(fill);
        }
        let args = [
            self.read(self.logs),
            self.read_if(self.best),
            self.write(grad_scores),
            self.write_if(segments),
        ];
        let step = self.launch("best_segments", self.sizes.b, args);
        self.program.steps.push(step);
        if let Some(segments) = segments {
            self.shared_gradients(segments);
        }
    }
}
