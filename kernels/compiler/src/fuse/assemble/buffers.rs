//! Memory for everything that kernels read and write.

use std::collections::{BTreeMap, BTreeSet};

use super::{Assembly, Made, Need, Place};
use crate::fuse::body::Source;
use crate::fuse::lower::{Loops, Memory};
use crate::fuse::memory::{Lifetime, Region};
use crate::fuse::order::side_of;
use crate::fuse::parts::Part;
use crate::fuse::plan::Origin;
use crate::fuse::{attention, bf16};
use crate::graph::{NodeId, Op};
use sweeper_program::tensor::Dtype;
use sweeper_program::{Binding, Buffer, BufferId, Index, Library, Role, Rows, Step, View};

/// Values, and when they are in use.
type Stretches = Vec<(Need, Lifetime)>;

impl Assembly<'_> {
    fn needs_of_loops(&self, loops: &Loops) -> Vec<(Need, usize, Dtype)> {
        let of = |memory: &Memory| match memory.source {
            Source::Node(id) => {
                let node = self.plan.graph.node(id);
                let dtype = self.plan.dtype_in_memory(id);
                Some((Need::Of(memory.source), node.elements(), dtype))
            }
            Source::Rounded(id) => {
                let elements = self.plan.graph.node(id).elements();
                Some((Need::Of(Source::Rounded(id)), elements, Dtype::Bf16))
            }
            Source::Partials(id) => {
                let len = self.partial_counts.get(&id)? * self.plan.graph.node(id).elements();
                Some((Need::Of(memory.source), len, Dtype::F32))
            }
        };
        loops.memory.iter().filter_map(of).collect()
    }

    /// Scratch memory of the call at a position, if it needs any.
    fn scratch(&self, position: usize, call: &Library) -> Option<(Need, usize, Dtype)> {
        let scratch = call.scratch(self.request.target);
        (scratch > 0).then_some((Need::Scratch(position), scratch, Dtype::F32))
    }

    /// Memory of attention: its operands are read where they are packed, and not again.
    fn needs_of_attention(
        &self,
        call: &attention::Call,
        packed: &mut BTreeSet<Need>,
    ) -> Vec<(Need, usize, Dtype)> {
        let elements = |id: NodeId| self.plan.graph.node(id).elements();
        let stored = call.stores().map(|source| {
            let (id, dtype) = match source {
                Source::Rounded(id) => (id, Dtype::Bf16),
                Source::Node(id) | Source::Partials(id) => (id, self.plan.dtype_in_memory(id)),
            };
            (Need::Of(source), elements(id), dtype)
        });
        let mut needs: Vec<_> = stored.collect();
        let mut read: Vec<usize> = call.reads_itself().collect();
        for held in &call.packs() {
            let need = Need::Packed(held.node, held.packing);
            needs.push((need, held.elements, held.dtype));
            if packed.insert(need) {
                read.extend(held.operands(call));
            }
        }
        needs.extend(read.into_iter().map(|at| {
            let id = call.reads[at].lies.base;
            let (source, dtype) = self.operand_of_attention(id);
            (Need::Of(source), elements(id), dtype)
        }));
        needs
    }

    /// Memory of attention by a library: operands are read in bf16, and as they are where they are
    /// rounded from that; results are stored in bf16, and copied to what is read in f32.
    fn needs_of_fused(
        &self,
        position: usize,
        fused: &attention::Fused,
    ) -> Vec<(Need, usize, Dtype)> {
        let of = |source: Source| {
            let (id, dtype) = match source {
                Source::Rounded(id) => (id, Dtype::Bf16),
                Source::Node(id) | Source::Partials(id) => (id, self.plan.dtype_in_memory(id)),
            };
            let elements = self.plan.graph.node(id).elements();
            (Need::Of(source), elements, dtype)
        };
        let rounded = fused.rounded.iter().filter(|&&id| !self.is_rounded(id));
        let exact = rounded.chain(&fused.widened).map(|&id| Source::Node(id));
        let operands = (0..fused.reads.len()).map(|at| fused.source(at));
        let sources = operands.chain(fused.stores.iter().copied()).chain(exact);
        sources
            .map(of)
            .chain(self.scratch(position, &fused.call))
            .collect()
    }

    /// Memory that the step at a position uses, with its elements and type; `packed` are the
    /// operands that steps before it have packed.
    fn needs(
        &self,
        position: usize,
        made: &Made,
        packed: &mut BTreeSet<Need>,
    ) -> Vec<(Need, usize, Dtype)> {
        let of_node = |id: NodeId| {
            let node = self.plan.graph.node(id);
            let dtype = self.plan.dtype_in_memory(id);
            (Need::Of(Source::Node(id)), node.elements(), dtype)
        };
        match made {
            Made::Elsewhere => vec![],
            Made::Loops(all, ..) => {
                let needs = all.iter().map(|loops| self.needs_of_loops(loops));
                needs.flatten().collect()
            }
            Made::Panels(loops, _, _, panels) => {
                let mut needs = self.needs_of_loops(loops);
                for (need, len, _) in &mut needs {
                    if *need == Need::Of(Source::Node(panels.product)) {
                        *len = panels.rows * panels.elements[0];
                    }
                }
                needs.extend(panels.factors.iter().map(|lies| of_node(lies.base)));
                needs.extend(self.scratch(position, &panels.call));
                needs
            }
            Made::Call(call, lies, _, node) => {
                let rounded = bf16::rounded(self.plan, call, lies);
                // Values that a kernel has stored in bf16 are not rounded from f32.
                let is_stored = |id: &NodeId| rounded.contains(id) && self.is_rounded(*id);
                let bases = lies.iter().map(|lies| lies.base);
                let mut needs: Vec<_> = bases.filter(|id| !is_stored(id)).map(of_node).collect();
                needs.extend(rounded.iter().map(|&id| {
                    let elements = self.plan.graph.node(id).elements();
                    (Need::Of(Source::Rounded(id)), elements, Dtype::Bf16)
                }));
                needs.push(of_node(*node));
                needs.extend(self.scratch(position, call));
                needs
            }
            Made::Attention(call, _) => {
                let mut needs = self.needs_of_attention(call, packed);
                let words = call.words(self.request.target).all;
                if words > 0 {
                    needs.push((Need::Scratch(position), words, Dtype::I64));
                }
                needs
            }
            Made::Fused(fused) => self.needs_of_fused(position, fused),
            Made::Scatter(node, lies) => {
                let operands = lies.iter().map(|lies| of_node(lies.base));
                operands.chain([of_node(*node)]).collect()
            }
        }
    }

    /// Gives memory to all values: given tensors, results, values kept from one pass to the other,
    /// and the rest where it is used again.
    pub(super) fn place(&mut self, order: &[Vec<usize>], made: &[Made]) {
        self.place_given();
        self.place_results();
        self.place_zeros(made);
        self.rounded = self.stored_rounded.clone();
        let mut packed = BTreeSet::new();
        let mut used: BTreeMap<Need, (Lifetime, Dtype)> = BTreeMap::new();
        for (position, made) in made.iter().enumerate() {
            for (need, len, dtype) in self.needs(position, made, &mut packed) {
                let (need, len) = self.whole(need, len);
                let first = Lifetime {
                    from: position,
                    to: position,
                    len,
                };
                used.entry(need).or_insert((first, dtype)).0.to = position;
            }
        }
        used.retain(|need, _| !self.places.contains_key(need));
        self.round_together(&mut used);
        let crosses = |lifetime: &Lifetime| {
            let [first, last] =
                [lifetime.from, lifetime.to].map(|at| side_of(self.plan, &order[at]));
            first < last
        };
        let mut passing: BTreeMap<Dtype, Stretches> = BTreeMap::new();
        let mut saved: BTreeMap<Dtype, Stretches> = BTreeMap::new();
        for (need, (lifetime, dtype)) in used {
            let into = match need {
                Need::Of(Source::Rounded(id)) if self.is_rounded_once(id) => {
                    self.place_alone(need, lifetime, dtype);
                    continue;
                }
                _ if crosses(&lifetime) => &mut saved,
                _ => &mut passing,
            };
            into.entry(dtype).or_default().push((need, lifetime));
        }
        for dtype in [Dtype::F32, Dtype::I64, Dtype::Bf16] {
            let of = |all: &mut BTreeMap<_, _>| all.remove(&dtype).unwrap_or_default();
            self.place_stretches(dtype, of(&mut saved), of(&mut passing));
        }
    }

    /// The memory that a value is part of, with its elements; or the value's own.
    fn whole(&self, need: Need, len: usize) -> (Need, usize) {
        match self.part(need) {
            Some(part) if !self.places.contains_key(&need) => {
                let elements = self.plan.graph.node(part.whole).elements();
                (self.whole_of(need, part), elements)
            }
            _ => (need, len),
        }
    }

    /// The concatenation of which a value is part, in the value's form.
    fn whole_of(&self, need: Need, part: &Part) -> Need {
        Need::Of(match need {
            Need::Of(Source::Rounded(_)) => Source::Rounded(part.whole),
            Need::Of(Source::Node(id)) if self.plan.in_bf16.contains(&id) => {
                Source::Rounded(part.whole)
            }
            _ => Source::Node(part.whole),
        })
    }

    fn part(&self, need: Need) -> Option<&Part> {
        match need {
            Need::Of(Source::Node(id) | Source::Rounded(id)) => self.plan.parts.get(&id),
            _ => None,
        }
    }

    /// A copy of a tensor in bf16 that is there for both passes.
    fn place_alone(&mut self, need: Need, lifetime: Lifetime, dtype: Dtype) {
        let (name, role) = (self.name(need), Role::Input);
        let (len, start) = (lifetime.len, 0);
        let buffer = self
            .program
            .buffer(name, dtype, len, role, Binding::Scratch);
        self.places.insert(need, Place { buffer, start, len });
    }

    /// Values of a type that are saved from one pass to the other, and others: these go where saved
    /// ones are no longer or not yet needed, as far as there is room.
    fn place_stretches(&mut self, dtype: Dtype, saved: Stretches, passing: Stretches) {
        let lifetimes = |all: &Stretches| -> Vec<Lifetime> {
            all.iter().map(|(_, lifetime)| *lifetime).collect()
        };
        let (mut of_saved, mut of_others) = (Region::default(), Region::default());
        let starts = of_saved.place(&lifetimes(&saved));
        let found = of_saved.fill(&lifetimes(&passing));
        let (mut here, mut others) = (Stretches::new(), Stretches::new());
        let mut starts_here = starts;
        here.extend(saved);
        for (stretch, start) in passing.into_iter().zip(found) {
            match start {
                Some(start) => {
                    here.push(stretch);
                    starts_here.push(start);
                }
                None => others.push(stretch),
            }
        }
        let starts = of_others.place(&lifetimes(&others));
        self.place_region(Role::Saved, dtype, of_saved.len(), (here, starts_here));
        self.place_region(Role::Workspace, dtype, of_others.len(), (others, starts));
    }

    /// A buffer of `len` elements, and stretches of it with their first elements.
    fn place_region(
        &mut self,
        role: Role,
        dtype: Dtype,
        len: usize,
        (stretches, starts): (Stretches, Vec<usize>),
    ) {
        if stretches.is_empty() {
            return;
        }
        let name = match dtype {
            Dtype::F32 => role.name().to_owned(),
            _ => format!("{}_{dtype}", role.name()),
        };
        let buffer = self
            .program
            .buffer(name, dtype, len, role, Binding::Scratch);
        for ((need, lifetime), start) in stretches.into_iter().zip(starts) {
            let len = lifetime.len;
            self.places.insert(need, Place { buffer, start, len });
        }
    }

    fn name(&self, need: Need) -> String {
        match need {
            Need::Of(Source::Node(id)) => format!("{id} {}", self.plan.graph.node(id).op.name()),
            Need::Of(Source::Partials(id)) => format!("partials of {id}"),
            Need::Of(Source::Rounded(id)) => {
                format!("{id} {} in bf16", self.plan.graph.node(id).op.name())
            }
            Need::Packed(id, packing) => format!("{id} packed by {}", packing.name()),
            Need::Zeros => "zeros".to_owned(),
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
        self.place_given_together();
    }

    /// Concatenations of given tensors, which are to lie one after another.
    fn place_given_together(&mut self) {
        for whole in self.plan.concatenations() {
            let parts = self.plan.bases(whole);
            let place = |part: &NodeId| self.places.get(&Need::Of(Source::Node(*part)));
            let Some(places) = parts.iter().map(place).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let buffers: Vec<BufferId> = places.iter().map(|place| place.buffer).collect();
            let place = Place {
                buffer: buffers[0],
                start: 0,
                len: self.plan.graph.node(whole).elements(),
            };
            self.places.insert(Need::Of(Source::Node(whole)), place);
            self.program.adjacent.push(buffers);
        }
    }

    /// Zeros that calls add, written before the program's steps.
    fn place_zeros(&mut self, made: &[Made]) {
        let zeros = made.iter().map(|made| match made {
            Made::Call(_, _, zeros, _) => *zeros,
            _ => 0,
        });
        let len = zeros.max().unwrap_or(0);
        if len == 0 {
            return;
        }
        let (role, start) = (Role::Workspace, 0);
        let buffer = self
            .program
            .buffer("zeros", Dtype::F32, len, role, Binding::Scratch);
        self.places
            .insert(Need::Zeros, Place { buffer, start, len });
        let view = self.program.all(buffer);
        self.program.prologue.push(Step::Fill { view, value: 0.0 });
    }

    fn place_results(&mut self) {
        for &output in &self.plan.wanted {
            let result = &self.plan.graph.outputs()[output];
            let node = self.plan.graph.node(result.node);
            let (len, start) = (node.elements(), 0);
            let origin = self.plan.origin(output);
            if let Origin::Made(id) = origin
                && let Some(given) = self.updated(output, id)
            {
                let result = result.name.clone().into();
                self.program.buffers[given.buffer.0].binding = Binding::Updated { result };
                self.places.insert(Need::Of(Source::Node(id)), given);
                continue;
            }
            let buffer = self.program.buffer(
                result.name.clone(),
                node.dtype,
                len,
                result.role,
                Binding::Result,
            );
            if let Origin::Made(id) = origin {
                let need = Need::Of(Source::Node(id));
                self.places
                    .entry(need)
                    .or_insert(Place { buffer, start, len });
            }
        }
    }

    /// The memory of a given tensor that a result takes, which is stored as `node`.
    fn updated(&self, output: usize, node: NodeId) -> Option<Place> {
        let given = *self.plan.in_place.get(&node)?;
        let updates = self.plan.graph.outputs()[output].updates;
        let need = Need::Of(Source::Node(given));
        self.places
            .get(&need)
            .copied()
            .filter(|_| updates == Some(given))
    }

    /// Results that no kernel writes: numbers, given tensors, and results that have another name
    /// already.
    pub(super) fn results(&mut self) {
        for &output in &self.plan.wanted {
            let name = &self.plan.graph.outputs()[output].name;
            let mut buffers = self.program.buffers.iter();
            let is_own =
                |buffer: &Buffer| buffer.binding == Binding::Result && buffer.name == *name;
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

    pub(super) fn view_of(&self, need: Need) -> View {
        if let Some(place) = self.places.get(&need) {
            return View::new(place.buffer, Index::from(place.start), place.len);
        }
        match self.part(need) {
            Some(part) => {
                let view = self.view(self.whole_of(need, part), part.start, part.span());
                match part.run < part.step {
                    true => view.in_rows(Rows {
                        len: part.run,
                        step: part.step,
                    }),
                    false => view,
                }
            }
            None => unreachable!("memory was given to all that is needed"),
        }
    }

    pub(super) fn view(&self, need: Need, start: usize, span: usize) -> View {
        let whole = self.view_of(need);
        let at = whole.offset.fixed_value().unwrap_or(0) + start as i64;
        let rows = whole.rows.filter(|rows| start.is_multiple_of(rows.step));
        View {
            rows,
            ..View::new(whole.buffer, Index::fixed(at), span)
        }
    }
}
