//! From kernels-to-be to a program: generated kernels and calls, launches, and memory for values.

mod buffers;
mod rounded;
mod steps;

pub(super) use steps::placeless;

use std::collections::{BTreeMap, BTreeSet};

use super::body::Source;
use super::epilogue::{self, Epilogue};
use super::lower::Loops;
use super::order::{launches, side_of};
use super::panels::{self, Panels};
use super::plan::{Members, Plan, Side, TaskId};
use super::{Policy, Request, attention, library, single_pass};
use crate::codegen::{self, Generated, Partials};
use crate::graph::{NodeId, Op};
use crate::nest::{Bounds, Nest};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{Phase, Refusal, Target};
use sweeper_program::{Activation, BufferId, KernelId, Library, Order, Precision, Program, Step};

/// A kernel of the plan, made.
enum Made {
    /// One kernel, of one nest or of several.
    Loops(Vec<Loops>, Generated, KernelId),
    /// After each panel of a product.
    Panels(Box<Loops>, Generated, KernelId, Box<Panels>),
    /// Nothing: it is done with its only reader.
    Elsewhere,
    /// A call, its operands, the number of zeros of its bias, and the node that it yields.
    Call(Library, Vec<library::Lies>, usize, NodeId),
    Scatter(NodeId, Vec<library::Lies>),
    Attention(Box<attention::Call>, KernelId),
    /// Attention by a library.
    Fused(Box<attention::Fused>),
}

/// Memory that a step needs, and how it uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Of(Source),
    /// An operand of attention as its kernels read it.
    Packed(NodeId, attention::Packing),
    /// Zeros, as many as the largest call adds.
    Zeros,
    /// Scratch of the call or the attention at this position.
    Scratch(usize),
}

/// A place in memory: a buffer, the first element, and the number of elements.
#[derive(Clone, Copy, Debug)]
struct Place {
    buffer: BufferId,
    start: usize,
    len: usize,
}

/// A program, and when its nodes are computed.
pub(super) struct Assembled {
    pub(super) program: Program,
    /// For nodes that launches of the timed steps compute, the number of steps up to that launch.
    pub(super) ends: BTreeMap<NodeId, usize>,
}

/// The program of a plan.
///
/// # Errors
/// The reason why the target can't run it.
pub(super) fn assemble(plan: &Plan, request: &Request<'_>) -> Result<Assembled, Refusal> {
    let mut assembly = Assembly {
        plan,
        request,
        program: Program::default(),
        kernels: vec![],
        partial_counts: BTreeMap::new(),
        places: BTreeMap::new(),
        forms: rounded::Forms::default(),
        rounded: BTreeSet::new(),
        stored_rounded: BTreeSet::new(),
        packed: BTreeSet::new(),
    };
    let order = launches(plan);
    assembly.forms = assembly.forms(&order);
    let made = assembly.make_all(&order)?;
    assembly.place(&order, &made);
    let mut ends = BTreeMap::new();
    for (position, (launch, made)) in order.iter().zip(&made).enumerate() {
        let steps = assembly
            .steps(position, made)
            .map_err(|reason| assembly.refusal(launch, &reason))?;
        match assembly.is_prologue(launch) {
            true => assembly.program.prologue.extend(steps),
            false => {
                assembly.program.steps.extend(steps);
                let tasks = launch.iter().flat_map(|&at| &plan.clusters[at].tasks);
                let nodes = tasks.map(|&task| plan.tasks[task].node);
                ends.extend(nodes.map(|node| (node, assembly.program.steps.len())));
            }
        }
    }
    // The first launch has no launch of the program before it to overlap, and would start half a
    // microsecond later.
    for steps in [&mut assembly.program.prologue, &mut assembly.program.steps] {
        if let Some(Step::Launch { geometry, .. }) = steps.first_mut() {
            geometry.overlaps = false;
        }
    }
    assembly.results();
    if request.policy == Policy::Compiled && !assembly.program.is_chain() {
        assembly.program.order = Order::ByData;
    }
    let mistake = |reason| Refusal::Unavailable(format!("a mistake of this program: {reason}"));
    assembly.program.validate().map_err(mistake)?;
    Ok(Assembled {
        program: assembly.program,
        ends,
    })
}

/// A kernel that was generated.
struct Held {
    /// Nests of the kernel, without names.
    nests: Vec<(Nest, Bounds)>,
    /// The partials of a single-pass reduction.
    partials: Vec<Partials>,
    generated: Generated,
    kernel: KernelId,
}

struct Assembly<'a> {
    plan: &'a Plan,
    request: &'a Request<'a>,
    program: Program,
    kernels: Vec<Held>,
    /// The number of partials of each cross-block reduction that are in memory of the program.
    partial_counts: BTreeMap<NodeId, usize>,
    places: BTreeMap<Need, Place>,
    /// The forms in which launches read nodes.
    forms: rounded::Forms,
    /// Nodes that are in memory in bf16: kernels store them so, or a step has made a copy.
    rounded: BTreeSet<NodeId>,
    /// Nodes that kernels store in bf16.
    stored_rounded: BTreeSet<NodeId>,
    /// Operands that a step has packed.
    packed: BTreeSet<Need>,
}

impl Assembly<'_> {
    fn make_all(&mut self, order: &[Vec<usize>]) -> Result<Vec<Made>, Refusal> {
        let in_prologue = order.iter().filter(|launch| self.is_prologue(launch));
        let in_prologue = in_prologue.count();
        let mut made = Vec::with_capacity(order.len());
        for launch in order {
            // No other launch is where this one is: before the program's steps, or among them.
            let is_only = match self.is_prologue(launch) {
                true => in_prologue == 1,
                false => order.len() - in_prologue == 1,
            };
            let launch = self.make(launch, is_only)?;
            self.stored_rounded.extend(rounded::stored_rounded(&launch));
            made.push(launch);
        }
        let positions = order.iter().enumerate();
        let alone: BTreeMap<usize, usize> = positions
            .filter_map(|(position, launch)| match launch[..] {
                [at] => Some((at, position)),
                _ => None,
            })
            .collect();
        for (reader, (home, task)) in panels::find(self.plan, self.request) {
            let (Some(&reader), Some(&home)) = (alone.get(&reader), alone.get(&home)) else {
                continue;
            };
            if let Made::Loops(loops, generated, kernel) = &made[reader]
                && let [loops] = &loops[..]
                && let Some(panels) = panels::panels(self.plan, task, loops)
            {
                let loops = Box::new(loops.clone());
                let panels = Box::new(panels);
                made[reader] = Made::Panels(loops, generated.clone(), *kernel, panels);
                made[home] = Made::Elsewhere;
            }
        }
        Ok(made)
    }

    fn make(&mut self, launch: &[usize], is_only: bool) -> Result<Made, Refusal> {
        if let [at] = launch {
            let tasks = &self.plan.clusters[*at].tasks;
            if let Some(&task) = tasks.iter().find(|&&task| self.plan.is_call(task)) {
                return self.make_call(task, tasks);
            }
        }
        let loops = launch.iter().map(|&at| self.loops(at));
        let mut loops = loops.collect::<Result<Vec<Loops>, _>>()?;
        let is_single_pass = self.plan.is_single_pass(launch);
        match (is_single_pass, loops.last_mut()) {
            (true, Some(last)) => {
                let row = single_pass::in_one_row(last);
                *last = row.ok_or_else(|| self.refusal(launch, "there is no nest"))?;
            }
            _ => sort_nests(&mut loops),
        }
        let mut nests = self.bounded(&loops, is_single_pass, is_only);
        if let Some(&last) = nests.last() {
            nests.resize(self.plan.places(launch), last);
        }
        let partials = match &loops[..] {
            [first, last] if is_single_pass => single_pass::partials(first, last),
            _ => vec![],
        };
        let (generated, kernel) = self
            .generated(&nests, &partials)
            .map_err(|reason| self.refusal(launch, &reason))?;
        // Partials of a single-pass reduction are memory of its kernel.
        for loops in loops.iter().filter(|_| !is_single_pass) {
            for memory in loops.memory.iter().filter(|memory| memory.is_written) {
                if let Source::Partials(node) = memory.source {
                    self.partial_counts
                        .insert(node, generated.partial_count(&loops.extents));
                }
            }
        }
        Ok(Made::Loops(loops, generated, kernel))
    }

    /// The nests of a kernel, with the bounds of all its launches.
    fn bounded<'l>(
        &self,
        loops: &'l [Loops],
        is_single_pass: bool,
        is_only_launch: bool,
    ) -> Vec<(&'l Nest, Bounds)> {
        let is_in_place = loops.iter().any(|loops| self.is_in_place(loops));
        let is_finalizer = |at: usize| is_single_pass && at + 1 == loops.len();
        let nests = loops.iter().enumerate().map(|(at, loops)| {
            let bounds = Bounds {
                columns: self.bound(loops),
                is_only_launch,
                is_in_place,
                ..Bounds::default()
            };
            if is_finalizer(at) {
                // The number of partials is not known yet.
                return (&loops.nest, bounds);
            }
            let launch = steps::placeless(loops);
            let known = codegen::known(&loops.nest, bounds, &launch, self.request.target);
            (&loops.nest, known)
        });
        let mut nests: Vec<(&Nest, Bounds)> = nests.collect();
        if !is_single_pass {
            // Equal nests share their text for all sizes.
            let all = nests.clone();
            for (nest, bounds) in &mut nests {
                let own = nameless(nest);
                let equal = all.iter().filter(|(other, _)| nameless(other) == own);
                let equal: Vec<&Bounds> = equal.map(|(_, bounds)| bounds).collect();
                let least = equal.iter().map(|bounds| bounds.alignment).min();
                bounds.alignment = least.unwrap_or_default();
                bounds.keeps_rows = equal.iter().all(|bounds| bounds.keeps_rows);
                bounds.is_single_row = equal.iter().all(|bounds| bounds.is_single_row);
            }
        }
        nests
    }

    /// Whether a nest stores results in the memory of given tensors.
    fn is_in_place(&self, loops: &Loops) -> bool {
        let mut written = loops.memory.iter().filter(|memory| memory.is_written);
        written.any(|memory| match memory.source {
            Source::Node(id) => self.plan.in_place.contains_key(&id),
            Source::Rounded(_) | Source::Partials(_) => false,
        })
    }

    /// The loops of a generated kernel. Nests that combine partials come after the nests that store
    /// them.
    fn loops(&self, at: usize) -> Result<Loops, Refusal> {
        let cluster = &self.plan.clusters[at];
        let outputs = self.plan.outputs(&cluster.tasks, &[at]);
        let loops = self.plan.loops(&cluster.members(), &outputs);
        let mut loops = loops.ok_or_else(|| self.refusal(&[at], "there is no nest"))?;
        if loops.combines_partials {
            loops.extents.rows[0] = self.partial_count_of(&loops);
        }
        self.store_rounded(&mut loops)
            .map_err(|reason| self.refusal(&[at], &reason))?;
        Ok(loops)
    }

    /// The number of partials of each reduction that a kernel combines; 1 where it is not known
    /// yet.
    fn partial_count_of(&self, loops: &Loops) -> u64 {
        let mut counts = loops
            .memory
            .iter()
            .filter_map(|memory| match memory.source {
                Source::Partials(node) => self.partial_counts.get(&node),
                Source::Node(_) | Source::Rounded(_) => None,
            });
        counts.next().copied().unwrap_or(1) as u64
    }

    fn refusal(&self, launch: &[usize], reason: &str) -> Refusal {
        let nodes = launch.iter().flat_map(|&at| &self.plan.clusters[at].tasks);
        let nodes: Vec<String> = nodes
            .map(|&task| self.plan.tasks[task].node.to_string())
            .collect();
        Refusal::Unavailable(format!("kernel of {}: {reason}", nodes.join(", ")))
    }

    /// The bound of a kernel's columns, where all dimensions that they are made of have one.
    fn bound(&self, loops: &Loops) -> Option<u64> {
        let bound = |extent: usize| {
            let listed = self.request.canonical.iter();
            let listed = listed.filter(|(held, _)| *held == extent);
            listed.map(|&(_, bound)| bound).max()
        };
        let extents = loops.column_extents.iter().copied();
        let long: Vec<usize> = extents.filter(|&extent| extent > 1).collect();
        if long.is_empty() {
            return None;
        }
        let all = bound(loops.extents.columns as usize);
        all.or_else(|| long.into_iter().map(bound).product())
    }

    /// The kernel of some nests, which is made once.
    fn generated(
        &mut self,
        nests: &[(&Nest, Bounds)],
        partials: &[Partials],
    ) -> Result<(Generated, KernelId), String> {
        let nameless = nests.iter().map(|&(nest, bounds)| (nameless(nest), bounds));
        let nameless: Vec<(Nest, Bounds)> = nameless.collect();
        let mut kernels = self.kernels.iter();
        let held = kernels.find(|held| held.nests == nameless && held.partials == partials);
        if let Some(held) = held {
            return Ok((held.generated.clone(), held.kernel));
        }
        let generated = match nests {
            &[first, last] if !partials.is_empty() => {
                Generated::single_pass([first, last], partials, self.request.target)?
            }
            nests => Generated::horizontal(nests, self.request.target)?,
        };
        // Nests that differ in bounds may have one text.
        let kernel = self.kernel_once(generated.kernel());
        self.kernels.push(Held {
            nests: nameless,
            partials: partials.to_vec(),
            generated: generated.clone(),
            kernel,
        });
        Ok((generated, kernel))
    }

    fn make_call(&mut self, task: TaskId, tasks: &Members) -> Result<Made, Refusal> {
        let node = self.plan.tasks[task].node;
        let unreadable = || {
            let op = self.plan.graph.node(node).op.name();
            Refusal::Unavailable(format!("operands of {node} {op} can't be read as they lie"))
        };
        if self.plan.graph.node(node).op == Op::ScatterAdd {
            let operands = self.plan.graph.node(node).operands.iter();
            let lies = operands.map(|&operand| library::dense(self.plan, operand));
            let lies = lies.collect::<Option<_>>().ok_or_else(unreadable)?;
            return Ok(Made::Scatter(node, lies));
        }
        let precision = self.request.precision;
        if *self.request.target == Target::Cpu && precision != Precision::F32 {
            let name = precision.name();
            let reason = format!("products in {name} are computed on GPUs only");
            return Err(Refusal::Unavailable(reason));
        }
        if let Op::Attention(_) = self.plan.graph.node(node).op {
            let call = attention::Call::new(self.plan, tasks, self.request);
            let mut call = call.ok_or_else(unreadable)?;
            if self.request.by_library {
                let read = |id| self.forms.stored(id);
                let fused = attention::Fused::new(&call, self.plan, read)?;
                return Ok(Made::Fused(Box::new(fused)));
            }
            call.store_rounded(|id| self.forms.stored(id));
            call.read_in_place(|id| self.operand_of_attention(id).1 == Dtype::Bf16);
            let kernel = self.kernel_once(call.kernel(self.request.target));
            return Ok(Made::Attention(Box::new(call), kernel));
        }
        let (mut call, mut lies) =
            library::call(self.plan, node, precision).ok_or_else(unreadable)?;
        let Epilogue {
            scale,
            bias,
            activation,
        } = epilogue::of_cluster(self.plan, tasks, task);
        let mut zeros = 0;
        match &mut call {
            Library::Matmul(call) => {
                call.scale = scale;
                (call.has_bias, call.activation) = (bias.is_some(), activation);
            }
            Library::Conv2d(call) => {
                // cuDNN has one function for both.
                if bias.is_none() && activation != Activation::None {
                    zeros = call.channels_out;
                }
                (call.has_bias, call.activation) = (bias.is_some() || zeros > 0, activation);
            }
            Library::Attention(_) => {}
        }
        lies.extend(bias);
        // The call yields its last operation.
        let yields = tasks
            .last()
            .map_or(node, |&task| self.plan.tasks[task].node);
        if let Library::Matmul(call) = &mut call {
            call.stores = self.plan.dtype_in_memory(yields);
        }
        Ok(Made::Call(call, lies, zeros, yields))
    }

    fn is_prologue(&self, launch: &[usize]) -> bool {
        match side_of(self.plan, launch) {
            Side::Setup => true,
            Side::Forward => self.request.phase == Phase::Backward,
            Side::Backward => false,
        }
    }
}

/// A nest without its name.
pub(super) fn nameless(nest: &Nest) -> Nest {
    Nest {
        name: String::new(),
        ..nest.clone()
    }
}

/// Orders the nests of a kernel: nests that combine partials first, since their blocks are few and
/// take longest, and equal nests next to each other.
fn sort_nests(all: &mut [Loops]) {
    let nests: Vec<Nest> = all.iter().map(|loops| nameless(&loops.nest)).collect();
    all.sort_by_cached_key(|loops| {
        let own = nameless(&loops.nest);
        let first = nests.iter().position(|nest| *nest == own);
        (!loops.combines_partials, first)
    });
}
