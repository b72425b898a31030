//! From kernels-to-be to a program: generated kernels and calls, launches, and memory for values.

use std::collections::BTreeMap;

use super::body::Source;
use super::lower::{Loops, Memory};
use super::memory::{Lifetime, place};
use super::order::{order, side};
use super::plan::{Origin, Plan, Side};
use super::{Request, library, scatter};
use crate::codegen::Generated;
use crate::graph::{NodeId, Op};
use crate::nest::{self, Bounds, Launch, Nest};
use crate::program::{
    Arg, Binding, BufferId, Index, Kernel, KernelId, Library, Precision, Program, Role, Step, View,
};
use crate::tensor::Dtype;
use crate::workload::{Phase, Refusal, Target};

/// A kernel of the plan, made.
enum Made {
    Loops(Box<Loops>, Generated, KernelId),
    Call(Library, Vec<library::Lies>, NodeId),
    Scatter(NodeId, Vec<library::Lies>),
}

/// Memory that a step needs, and how it uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Of(Source),
    /// Scratch of the call at this position.
    Scratch(usize),
}

/// Where memory is: a buffer, the first element, and how many.
#[derive(Clone, Copy, Debug)]
struct Place {
    buffer: BufferId,
    start: usize,
    len: usize,
}

/// The program of a plan.
///
/// # Errors
/// What the target can't do.
pub(super) fn assemble(plan: &Plan, request: &Request<'_>) -> Result<Program, Refusal> {
    let mut assembly = Assembly {
        plan,
        request,
        program: Program::default(),
        kernels: vec![],
        parts: BTreeMap::new(),
        places: BTreeMap::new(),
    };
    let order = order(plan);
    let made = order.iter().enumerate();
    let made: Vec<Made> = made
        .map(|(_, &at)| assembly.make(at))
        .collect::<Result<_, _>>()?;
    assembly.place(&order, &made);
    for (position, (at, made)) in order.iter().zip(&made).enumerate() {
        let steps = assembly.steps(position, made)?;
        match assembly.is_prologue(*at) {
            true => assembly.program.prologue.extend(steps),
            false => assembly.program.steps.extend(steps),
        }
    }
    assembly.results();
    let mistake = |reason| Refusal::Unavailable(format!("a mistake of this program: {reason}"));
    assembly.program.validate().map_err(mistake)?;
    Ok(assembly.program)
}

struct Assembly<'a> {
    plan: &'a Plan,
    request: &'a Request<'a>,
    program: Program,
    /// Kernels that were generated, without names.
    kernels: Vec<(Nest, Bounds, Generated, KernelId)>,
    /// Of each last reduction, the number of parts.
    parts: BTreeMap<NodeId, usize>,
    places: BTreeMap<Need, Place>,
}

impl Assembly<'_> {
    fn make(&mut self, at: usize) -> Result<Made, Refusal> {
        let cluster = &self.plan.clusters[at];
        if let Some(&task) = cluster.tasks.iter().find(|&&task| self.plan.is_call(task)) {
            return self.make_call(self.plan.tasks[task].node);
        }
        let outputs = self.plan.outputs(&cluster.tasks, &[at]);
        let loops = self.plan.loops(&cluster.members(), &outputs);
        let mut loops = loops.ok_or_else(|| self.refusal(at, "there is no nest"))?;
        if loops.is_of_parts {
            let parts = loops
                .memory
                .iter()
                .filter_map(|memory| match memory.source {
                    Source::Parts(node) => self.parts.get(&node),
                    Source::Node(_) => None,
                });
            loops.extents.rows[0] = parts.copied().next().unwrap_or(1) as u64;
        }
        let bounds = self.bounds(&loops);
        let (generated, kernel) = self
            .generated(&loops.nest, bounds)
            .map_err(|reason| self.refusal(at, &reason))?;
        for memory in loops.memory.iter().filter(|memory| memory.is_written) {
            if let Source::Parts(node) = memory.source {
                self.parts.insert(node, generated.parts(&loops.extents));
            }
        }
        Ok(Made::Loops(Box::new(loops), generated, kernel))
    }

    fn refusal(&self, at: usize, reason: &str) -> Refusal {
        let nodes = self.plan.clusters[at].tasks.iter();
        let nodes: Vec<String> = nodes
            .map(|&task| self.plan.tasks[task].node.to_string())
            .collect();
        Refusal::Unavailable(format!("kernel of {}: {reason}", nodes.join(", ")))
    }

    /// Bounds of a kernel's columns, where all dimensions that they are made of have one.
    fn bounds(&self, loops: &Loops) -> Bounds {
        let bound = |extent: usize| {
            let listed = self.request.canonical.iter();
            let listed = listed.filter(|(held, _)| *held == extent);
            listed.map(|&(_, bound)| bound).max()
        };
        let all = bound(loops.extents.columns as usize);
        let each = || {
            let extents = loops.column_extents.iter().filter(|&&extent| extent > 1);
            extents.map(|&extent| bound(extent)).product()
        };
        Bounds {
            columns: all.or_else(each),
        }
    }

    fn generated(&mut self, nest: &Nest, bounds: Bounds) -> Result<(Generated, KernelId), String> {
        let nameless = Nest {
            name: String::new(),
            ..nest.clone()
        };
        let mut held = self.kernels.iter();
        let held = held.find(|(held, own, _, _)| *held == nameless && *own == bounds);
        if let Some((_, _, generated, kernel)) = held {
            return Ok((generated.clone(), *kernel));
        }
        let generated = Generated::new(nest, bounds, self.request.target)?;
        let kernel = self.program.kernel(generated.kernel());
        self.kernels
            .push((nameless, bounds, generated.clone(), kernel));
        Ok((generated, kernel))
    }

    fn make_call(&self, node: NodeId) -> Result<Made, Refusal> {
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
        let (call, lies) = library::call(self.plan, node, precision).ok_or_else(unreadable)?;
        Ok(Made::Call(call, lies, node))
    }

    fn is_prologue(&self, at: usize) -> bool {
        match side(self.plan, at) {
            Side::Setup => true,
            Side::Forward => self.request.phase == Phase::Backward,
            Side::Backward => false,
        }
    }

    /// Memory that the step at a position uses, with its elements and type.
    fn needs(&self, position: usize, made: &Made) -> Vec<(Need, usize, Dtype)> {
        let of_node = |id: NodeId| {
            let node = self.plan.graph.node(id);
            (Need::Of(Source::Node(id)), node.elements(), node.dtype)
        };
        match made {
            Made::Loops(loops, ..) => loops
                .memory
                .iter()
                .map(|memory| match memory.source {
                    Source::Node(id) => of_node(id),
                    Source::Parts(id) => {
                        let parts = self.parts.get(&id).copied().unwrap_or(1);
                        let len = parts * self.plan.graph.node(id).elements();
                        (Need::Of(memory.source), len, Dtype::F32)
                    }
                })
                .collect(),
            Made::Call(call, lies, node) => {
                let mut needs: Vec<_> = lies.iter().map(|lies| of_node(lies.base)).collect();
                needs.push(of_node(*node));
                if let (Library::Conv2d(call), Target::Cpu) = (call, self.request.target) {
                    needs.push((Need::Scratch(position), call.scratch(), Dtype::F32));
                }
                needs
            }
            Made::Scatter(node, lies) => {
                let operands = lies.iter().map(|lies| of_node(lies.base));
                operands.chain([of_node(*node)]).collect()
            }
        }
    }

    /// Gives memory to everything: given tensors, results, what is kept from one pass to the other, and
    /// the rest in one buffer that is used again and again.
    fn place(&mut self, order: &[usize], made: &[Made]) {
        self.place_given();
        self.place_results();
        let mut used: BTreeMap<Need, (Lifetime, Dtype)> = BTreeMap::new();
        for (position, made) in made.iter().enumerate() {
            for (need, len, dtype) in self.needs(position, made) {
                let first = Lifetime {
                    from: position,
                    to: position,
                    len,
                };
                used.entry(need).or_insert((first, dtype)).0.to = position;
            }
        }
        used.retain(|need, _| !self.places.contains_key(need));
        let crosses = |lifetime: &Lifetime| {
            let (first, last) = (order[lifetime.from], order[lifetime.to]);
            side(self.plan, first) != side(self.plan, last)
        };
        let (kept, passing): (Vec<_>, Vec<_>) = used
            .into_iter()
            .partition(|(_, (lifetime, _))| crosses(lifetime));
        for (need, (lifetime, dtype)) in kept {
            let name = self.name(need);
            let (len, role) = (lifetime.len, Role::Saved);
            let buffer = self
                .program
                .buffer(name, dtype, len, role, Binding::Scratch);
            let start = 0;
            self.places.insert(need, Place { buffer, start, len });
        }
        for (name, dtype) in [("workspace", Dtype::F32), ("workspace_i64", Dtype::I64)] {
            let of_type = passing.iter().filter(|(_, (_, held))| *held == dtype);
            let of_type: Vec<(Need, Lifetime)> = of_type
                .map(|(need, (lifetime, _))| (*need, *lifetime))
                .collect();
            self.place_passing(name, dtype, &of_type);
        }
    }

    fn place_passing(&mut self, name: &'static str, dtype: Dtype, passing: &[(Need, Lifetime)]) {
        if passing.is_empty() {
            return;
        }
        let lifetimes: Vec<Lifetime> = passing.iter().map(|(_, lifetime)| *lifetime).collect();
        let (starts, all) = place(&lifetimes);
        let role = Role::Workspace;
        let buffer = self
            .program
            .buffer(name, dtype, all, role, Binding::Scratch);
        for ((need, lifetime), start) in passing.iter().zip(starts) {
            let len = lifetime.len;
            self.places.insert(*need, Place { buffer, start, len });
        }
    }

    fn name(&self, need: Need) -> String {
        match need {
            Need::Of(Source::Node(id)) => format!("{id} {}", self.plan.graph.node(id).op.name()),
            Need::Of(Source::Parts(id)) => format!("parts of {id}"),
            Need::Scratch(position) => format!("scratch of step {position}"),
        }
    }

    /// Given tensors that are read.
    fn place_given(&mut self) {
        let live = self.plan.live();
        for given in self.plan.graph.given() {
            let node = self.plan.graph.node(given.node);
            let Op::Input(name) = &node.op else { continue };
            if !live[given.node.index()] {
                continue;
            }
            let (len, start) = (node.elements(), 0);
            let buffer =
                self.program
                    .buffer(name.clone(), node.dtype, len, given.role, Binding::Given);
            let need = Need::Of(Source::Node(given.node));
            self.places.insert(need, Place { buffer, start, len });
        }
    }

    fn place_results(&mut self) {
        for &output in &self.plan.wanted {
            let result = &self.plan.graph.outputs()[output];
            let node = self.plan.graph.node(result.node);
            let (len, start) = (node.elements(), 0);
            let buffer = self.program.buffer(
                result.name.clone(),
                node.dtype,
                len,
                result.role,
                Binding::Result,
            );
            if let Origin::Made(id) = self.plan.origin(output) {
                let need = Need::Of(Source::Node(id));
                self.places
                    .entry(need)
                    .or_insert(Place { buffer, start, len });
            }
        }
    }

    /// Results that no kernel writes: numbers, given tensors, and what has another name already.
    fn results(&mut self) {
        for &output in &self.plan.wanted {
            let name = &self.plan.graph.outputs()[output].name;
            let mut buffers = self.program.buffers.iter();
            let is_own = |buffer: &crate::program::Buffer| {
                buffer.binding == Binding::Result && buffer.name == *name
            };
            let Some(buffer) = buffers.position(is_own) else {
                continue;
            };
            let to = self.program.all(BufferId(buffer));
            let step = match self.plan.origin(output) {
                Origin::Number(value) => Step::Fill { view: to, value },
                Origin::Given(id) | Origin::Made(id) => {
                    let from = self.view_of(Need::Of(Source::Node(id)));
                    if from.buffer == to.buffer {
                        continue;
                    }
                    Step::Copy { from, to }
                }
            };
            self.program.steps.push(step);
        }
    }

    fn view_of(&self, need: Need) -> View {
        match self.places.get(&need) {
            Some(place) => View::new(place.buffer, Index::from(place.start), place.len),
            None => unreachable!("memory was given to all that is needed"),
        }
    }

    fn view(&self, need: Need, start: usize, span: usize) -> View {
        let whole = self.view_of(need);
        let at = whole.offset.fixed_value().unwrap_or(0) + start as i64;
        View::new(whole.buffer, Index::fixed(at), span)
    }

    fn steps(&mut self, position: usize, made: &Made) -> Result<Vec<Step>, Refusal> {
        match made {
            Made::Loops(loops, generated, kernel) => {
                let launch = self.launch(loops);
                Ok(vec![generated.launch(*kernel, &launch)])
            }
            Made::Call(call, lies, node) => {
                let read = lies.iter().map(|lies| {
                    let need = Need::Of(Source::Node(lies.base));
                    Arg::Read(self.view(need, lies.start, lies.span))
                });
                let mut args: Vec<Arg> = read.collect();
                args.push(Arg::Write(self.view_of(Need::Of(Source::Node(*node)))));
                if self.places.contains_key(&Need::Scratch(position)) {
                    args.push(Arg::Write(self.view_of(Need::Scratch(position))));
                }
                Ok(vec![self.call(*call, args)])
            }
            Made::Scatter(node, lies) => {
                let views: Vec<View> = lies
                    .iter()
                    .map(|lies| self.view(Need::Of(Source::Node(lies.base)), lies.start, lies.span))
                    .collect();
                let out = self.view_of(Need::Of(Source::Node(*node)));
                let sizes = scatter::Sizes::of(&self.plan.graph, *node);
                let kernel = scatter::kernel(self.request.target);
                let mut kernels = self.program.kernels.iter();
                let held = kernels.position(|held| *held == kernel);
                let kernel = match held {
                    Some(at) => KernelId(at),
                    None => self.program.kernel(kernel),
                };
                Ok(vec![scatter::launch(
                    kernel,
                    sizes,
                    views,
                    out,
                    self.request.target,
                )])
            }
        }
    }

    fn call(&mut self, call: Library, args: Vec<Arg>) -> Step {
        let kernel = Kernel::Library(call);
        let held = self.program.kernels.iter().position(|held| *held == kernel);
        let kernel = match held {
            Some(at) => KernelId(at),
            None => self.program.kernel(kernel),
        };
        Step::Launch {
            kernel,
            geometry: call.geometry(),
            args,
        }
    }

    fn launch(&self, loops: &Loops) -> Launch {
        let memory = loops
            .memory
            .iter()
            .map(|memory| self.operand(loops, memory));
        Launch {
            extents: loops.extents.clone(),
            operands: memory.collect(),
            scalars: loops.scalars.clone(),
        }
    }

    fn operand(&self, loops: &Loops, memory: &Memory) -> nest::Memory {
        let need = Need::Of(memory.source);
        let steps = || memory.rows.iter().map(|&step| step as i64).collect();
        let view = match memory.source {
            Source::Parts(_) => self.view_of(need),
            Source::Node(_) => {
                let (span, touched) = (memory.span(&loops.extents), memory.touched(&loops.extents));
                let view = self.view(need, memory.start, span);
                match touched == span {
                    true => view,
                    false => view.touching(Index::from(touched)),
                }
            }
        };
        nest::Memory {
            view,
            rows: steps(),
            columns: memory.columns as i64,
            index_step: memory.index_step as i64,
        }
    }
}
