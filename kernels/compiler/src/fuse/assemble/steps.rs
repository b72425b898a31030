//! Launches and calls.

use super::{Assembly, Made, Need};
use crate::codegen::Generated;
use crate::fuse::attention::Packed;
use crate::fuse::body::Source;
use crate::fuse::library::Lies;
use crate::fuse::lower::{Loops, Memory};
use crate::fuse::panels::Panels;
use crate::fuse::{attention, bf16, scatter};
use crate::graph::NodeId;
use crate::nest::{self, Launch};
use sweeper_program::tensor::Dtype;
use sweeper_program::{Arg, BufferId, Geometry, Index, Kernel, KernelId, Library, Step, View};

/// The element at `start` for row 0, `step` further for each row.
fn from(row: &Index, step: usize, start: i64) -> Index {
    row.clone().times(step as i64).shifted(start)
}

/// A view of which so many elements are touched at most.
fn of_elements(view: View, elements: usize) -> View {
    match elements < view.len {
        true => view.touching(Index::from(elements)),
        false => view,
    }
}

impl Assembly<'_> {
    /// The steps of a kernel of the plan.
    ///
    /// # Errors
    /// A sentence where sizes are too large for a launch.
    pub(super) fn steps(&mut self, position: usize, made: &Made) -> Result<Vec<Step>, String> {
        Ok(match made {
            Made::Loops(loops, generated, kernel) => {
                let launches: Vec<Launch> = loops.iter().map(|own| self.launch(own)).collect();
                generated.launches(*kernel, &launches)?
            }
            Made::Elsewhere => vec![],
            Made::Panels(loops, generated, kernel, panels) => {
                let scratch = Need::Scratch(position);
                let scratch = self
                    .places
                    .contains_key(&scratch)
                    .then(|| self.view_of(scratch));
                self.panels(loops, generated, *kernel, panels, scratch)?
            }
            Made::Call(call, lies, zeros, node) => {
                self.call_steps(position, call, (lies, *zeros, *node))
            }
            Made::Attention(call, kernel) => self.attention(position, call, *kernel),
            Made::Fused(fused) => self.fused(position, fused),
            Made::Scatter(node, lies) => {
                let views: Vec<View> = lies
                    .iter()
                    .map(|lies| self.view(Need::Of(Source::Node(lies.base)), lies.start, lies.span))
                    .collect();
                let out = self.view_of(Need::Of(Source::Node(*node)));
                let sizes = scatter::Sizes::of(&self.plan.graph, *node);
                let kernel = self.kernel_once(scatter::kernel(self.request.target));
                vec![scatter::launch(
                    kernel,
                    sizes,
                    views,
                    out,
                    self.request.target,
                )]
            }
        })
    }

    /// A call of a library, after copies of its factors in its number format.
    fn call_steps(
        &mut self,
        position: usize,
        call: &Library,
        (lies, zeros, node): (&[Lies], usize, NodeId),
    ) -> Vec<Step> {
        let rounded = bf16::rounded(self.plan, call, lies);
        let mut steps = self.round(&rounded);
        let read = lies.iter().enumerate().map(|(at, lies)| {
            let need = match at < 2 && rounded.contains(&lies.base) {
                true => Need::Of(Source::Rounded(lies.base)),
                false => Need::Of(Source::Node(lies.base)),
            };
            let view = self.view(need, lies.start, lies.span);
            Arg::Read(match call {
                Library::Matmul(call) if at < 2 => of_elements(view, call.factor_elements()[at]),
                _ => view,
            })
        });
        let mut args: Vec<Arg> = read.collect();
        if zeros > 0 {
            args.push(Arg::Read(self.view(Need::Zeros, 0, zeros)));
        }
        args.push(Arg::Write(self.view_of(Need::Of(Source::Node(node)))));
        let scratch = Need::Scratch(position);
        let scratch = self
            .places
            .contains_key(&scratch)
            .then(|| self.view_of(scratch));
        args.extend(scratch.map(|view| self.scratch_of(call, view)));
        steps.push(self.call(*call, args));
        steps
    }

    /// A launch, after launches that pack those of its operands that are not packed yet, or a step
    /// that fills with zeros what must be of its scratch memory.
    fn attention(
        &mut self,
        position: usize,
        call: &attention::Call,
        kernel: KernelId,
    ) -> Vec<Step> {
        let packs = call.packs();
        let need = |packed: &Packed| Need::Packed(packed.node, packed.packing);
        let mut missing = packs.clone();
        missing.retain(|packed| self.packed.insert(need(packed)));
        let operand = |at: usize| {
            let lies = call.reads[at].lies;
            let (source, dtype) = self.operand_of_attention(lies.base);
            let view = self.view(Need::Of(source), lies.start, lies.span);
            (of_elements(view, call.elements(at, self.plan)), dtype)
        };
        let packed = |packed: &Packed| self.view_of(need(packed));
        let made = attention::pack(call, &missing, operand, packed);
        let of_packs = packs.iter().map(packed).collect();
        let written = call.stores().map(|source| self.view_of(Need::Of(source)));
        let words = call.words(self.request.target);
        let scratch = Need::Scratch(position);
        let zeros = (words.zeros > 0).then(|| self.view(scratch, 0, words.zeros));
        let all = (words.all > 0).then(|| self.view_of(scratch));
        let written = written.chain(all).collect();
        let args = call.args(self.request.target, of_packs, |at| operand(at).0, written);
        let mut steps: Vec<Step> = made.into_iter().map(|made| self.launch_of(made)).collect();
        steps.extend(zeros.map(|view| Step::Fill { view, value: 0.0 }));
        steps.push(Step::Launch {
            kernel,
            geometry: call.geometry(self.request.target),
            args,
        });
        steps
    }

    /// Attention by a library, between copies of its operands in bf16 and of its results in f32.
    fn fused(&mut self, position: usize, fused: &attention::Fused) -> Vec<Step> {
        let mut steps = self.round(&fused.rounded);
        let read = fused.reads.iter().enumerate().map(|(at, lies)| {
            let need = Need::Of(fused.source(at));
            let elements = self.plan.graph.node(lies.base).elements();
            Arg::Read(of_elements(
                self.view(need, lies.start, lies.span),
                elements,
            ))
        });
        let stored = fused.stores.iter();
        let written = stored.map(|&source| Arg::Write(self.view_of(Need::Of(source))));
        let scratch = self.scratch_of(&fused.call, self.view_of(Need::Scratch(position)));
        let args = read.chain(written).chain([scratch]).collect();
        steps.push(self.call(fused.call, args));
        let forms = |&id: &NodeId| {
            let view = |source: Source| self.view_of(Need::Of(source));
            (view(Source::Rounded(id)), view(Source::Node(id)))
        };
        let jobs: Vec<(View, View)> = fused.widened.iter().map(forms).collect();
        let widen = bf16::widening(&jobs).into_iter();
        steps.extend(widen.map(|made| self.launch_of(made)));
        steps
    }

    /// The memory that attention reads a node from, and its type: bf16 where there is that.
    pub(super) fn operand_of_attention(&self, id: NodeId) -> (Source, Dtype) {
        match self.stored_rounded.contains(&id) {
            true => (Source::Rounded(id), Dtype::Bf16),
            false => (Source::Node(id), self.plan.dtype_in_memory(id)),
        }
    }

    /// All panels of a product, and a smaller last one. Traffic that panels save is left out: a
    /// panel stays in the cache, and so does the second factor after the first panel.
    fn panels(
        &mut self,
        loops: &Loops,
        generated: &Generated,
        kernel: KernelId,
        panels: &Panels,
        scratch: Option<View>,
    ) -> Result<Vec<Step>, String> {
        let (m, rows) = (panels.count, panels.rows);
        let mut of = |rows: usize, row: Index, is_first: Index| {
            let product = self.panel_product(panels, rows, &row, is_first, scratch.clone());
            let mut launch = self.launch(&Loops {
                extents: panels.extents(rows),
                ..loops.clone()
            });
            for (operand, memory) in launch.operands.iter_mut().zip(&loops.memory) {
                let start = operand.view.offset.fixed_value().unwrap_or(0);
                operand.view.offset = from(&row, panels.row_step(memory), start);
                if memory.source == Source::Node(panels.product) {
                    operand.view = operand.view.clone().touching(Index::from(0));
                }
            }
            let launched = generated.launch(kernel, &launch)?;
            Ok::<_, String>(vec![product, launched])
        };
        let is_first = Index::affine(1, 0, -1).clamped(0, 1);
        let body = of(rows, Index::affine(0, 0, rows as i64), is_first)?;
        let count = m / rows;
        let mut steps = vec![Step::Repeat {
            count: count as u64,
            body,
        }];
        if m % rows > 0 {
            steps.extend(of(m % rows, Index::from(count * rows), Index::from(0))?);
        }
        Ok(steps)
    }

    fn panel_product(
        &mut self,
        panels: &Panels,
        rows: usize,
        row: &Index,
        is_first: Index,
        scratch: Option<View>,
    ) -> Step {
        let (call, span) = panels.call(rows);
        let [elements, step] = panels.elements;
        let [a, b] = panels.factors.map(|lies| {
            let need = Need::Of(Source::Node(lies.base));
            self.view(need, lies.start, lies.span)
        });
        let start = a.offset.fixed_value().unwrap_or(0);
        let a = View::new(a.buffer, from(row, step, start), span);
        let b_elements = is_first.times(b.len as i64);
        let b = b.touching(b_elements);
        let product = self.view(Need::Of(Source::Node(panels.product)), 0, rows * elements);
        let product = product.touching(Index::from(0));
        let args = [Arg::Read(a), Arg::Read(b), Arg::Write(product)];
        let scratch = scratch.map(|view| self.scratch_of(&call, view));
        let args = args.into_iter().chain(scratch);
        self.call(call, args.collect())
    }

    /// Scratch memory of a call, with the number of elements that are known to be written and read
    /// again.
    fn scratch_of(&self, call: &Library, view: View) -> Arg {
        let traffic = call.scratch_traffic(self.request.target);
        Arg::Write(view.updating(Index::from(traffic)))
    }

    fn call(&mut self, call: Library, args: Vec<Arg>) -> Step {
        Step::Launch {
            kernel: self.kernel_once(Kernel::Library(call)),
            geometry: call.geometry(),
            args,
        }
    }

    /// A kernel of the program, added where it is not among them.
    pub(super) fn kernel_once(&mut self, kernel: Kernel) -> KernelId {
        let held = self.program.kernels.iter().position(|held| *held == kernel);
        held.map_or_else(|| self.program.kernel(kernel), KernelId)
    }

    /// Copies of nodes in bf16, where they do not exist yet. Copies of tensors that do not change
    /// are made before the program's steps.
    fn round(&mut self, nodes: &[NodeId]) -> Vec<Step> {
        let mut missing: Vec<NodeId> = nodes.iter().map(|&id| self.rounded_as(id)).collect();
        missing.retain(|&node| !self.is_rounded(node));
        // Most products of a program: what is rounded together is not looked for again.
        if missing.is_empty() {
            return vec![];
        }
        let together = self.rounded_together();
        if missing.iter().any(|node| together.contains(node)) {
            missing.extend(together);
        }
        missing.retain(|&node| self.rounded.insert(node));
        let (once, each): (Vec<NodeId>, Vec<NodeId>) = missing
            .into_iter()
            .partition(|&node| self.is_rounded_once(node));
        let once = self.round_all(&once);
        self.program.prologue.extend(once);
        self.round_all(&each)
    }

    fn round_all(&mut self, nodes: &[NodeId]) -> Vec<Step> {
        let view = |source: Source| self.view_of(Need::Of(source));
        let jobs: Vec<(View, View)> = nodes
            .iter()
            .map(|&node| (view(Source::Node(node)), view(Source::Rounded(node))))
            .collect();
        let made = bf16::launches(&jobs).into_iter();
        made.map(|made| self.launch_of(made)).collect()
    }

    fn launch_of(&mut self, (kernel, geometry, args): (Kernel, Geometry, Vec<Arg>)) -> Step {
        Step::Launch {
            kernel: self.kernel_once(kernel),
            geometry,
            args,
        }
    }

    /// Whether a node is rounded to bf16 once: given tensors that no training changes.
    pub(super) fn is_rounded_once(&self, node: NodeId) -> bool {
        self.plan.is_given(node) && !self.request.phase.is_one_span()
    }

    fn launch(&self, loops: &Loops) -> Launch {
        launch(loops, |memory| self.operand(loops, memory))
    }

    fn operand(&self, loops: &Loops, memory: &Memory) -> View {
        let need = Need::Of(memory.source);
        match memory.source {
            Source::Partials(id) if self.partial_counts.contains_key(&id) => self.view_of(need),
            // Memory of the kernel itself.
            Source::Partials(_) => View::new(BufferId(0), Index::fixed(0), 0),
            Source::Node(_) | Source::Rounded(_) => {
                let (span, touched) = (memory.span(&loops.extents), memory.touched(&loops.extents));
                let view = self.view(need, memory.start, span);
                match touched == span {
                    true => view,
                    false => view.touching(Index::from(touched)),
                }
            }
        }
    }
}

/// A launch of loops whose memory is where `view` says.
fn launch(loops: &Loops, view: impl Fn(&Memory) -> View) -> Launch {
    let operand = |memory: &Memory| nest::Memory {
        view: view(memory),
        rows: memory.rows.iter().map(|&step| step as i64).collect(),
        columns: memory.columns as i64,
        index_step: memory.index_step as i64,
    };
    Launch {
        extents: loops.extents.clone(),
        operands: loops.memory.iter().map(operand).collect(),
        scalars: loops.scalars.clone(),
    }
}

/// The launch before values have places, as if each operand had memory of its own: all values begin
/// at a multiple of more than four elements.
pub(in super::super) fn placeless(loops: &Loops) -> Launch {
    let own = |memory: &Memory| View::new(BufferId(0), Index::from(memory.start), memory.len);
    launch(loops, own)
}
