//! Factors of products in bf16 that generated kernels store as such, with their f32 elements or in
//! their place.

use std::collections::{BTreeMap, BTreeSet};

use super::{Assembly, Made, Need};
use crate::fuse::attention::Stored;
use crate::fuse::body::Source;
use crate::fuse::lower::{Loops, Memory};
use crate::fuse::memory::Lifetime;
use crate::fuse::plan::{Members, Origin};
use crate::fuse::{Policy, attention, bf16, library};
use crate::graph::{NodeId, Op};
use crate::nest::{Operand, OperandId, Store};
use sweeper_program::Precision;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::Target;

/// Nodes by the form in which other launches read their elements.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// In bf16, as factors of products.
    rounded: BTreeSet<NodeId>,
    /// In f32.
    exact: BTreeSet<NodeId>,
}

impl Forms {
    /// The forms in which the kernel that computes a node stores it.
    pub(super) fn stored(&self, id: NodeId) -> Stored {
        match (self.rounded.contains(&id), self.exact.contains(&id)) {
            (false, _) => Stored::Exact,
            (true, false) => Stored::Rounded,
            (true, true) => Stored::Both,
        }
    }
}

impl Assembly<'_> {
    /// The forms in which launches read nodes. Nothing is rounded by the kernel that computes it
    /// where each operation is to be a launch.
    pub(super) fn forms(&self, order: &[Vec<usize>]) -> Forms {
        let mut forms = Forms::default();
        let is_compiled = self.request.policy == Policy::Compiled;
        let is_cpu = *self.request.target == Target::Cpu;
        if self.request.precision != Precision::Bf16 || !is_compiled || is_cpu {
            return forms;
        }
        for &at in order.iter().flatten() {
            self.add_forms(at, &mut forms);
        }
        let results = self.plan.wanted.iter();
        forms.exact.extend(
            results.filter_map(|&output| match self.plan.origin(output) {
                Origin::Made(id) | Origin::Given(id) => Some(id),
                Origin::Number(_) => None,
            }),
        );
        forms
    }

    /// Whether a node is in memory in bf16, or all parts of a concatenation are.
    pub(super) fn is_rounded(&self, id: NodeId) -> bool {
        let is_there = |id: &NodeId| self.rounded.contains(id) || self.plan.in_bf16.contains(id);
        is_there(&id) || (!self.plan.is_given(id) && self.plan.bases(id).iter().all(is_there))
    }

    /// The node that is rounded where one is to be: the concatenation of given tensors of which it
    /// is part, if that is read in bf16, too.
    pub(super) fn rounded_as(&self, id: NodeId) -> NodeId {
        let part = self.plan.parts.get(&id).filter(|_| self.plan.is_given(id));
        let whole = part.map(|part| part.whole);
        let whole = whole.filter(|whole| self.forms.rounded.contains(whole));
        whole.unwrap_or(id)
    }

    /// Given tensors, and concatenations of such, that are rounded in each run: by few launches,
    /// when the first of them is read.
    pub(super) fn rounded_together(&self) -> Vec<NodeId> {
        let is_together =
            |&&node: &&NodeId| self.plan.is_given(node) && !self.is_rounded_once(node);
        let all = self.forms.rounded.iter().map(|&id| self.rounded_as(id));
        let all: BTreeSet<NodeId> = all.collect();
        all.iter().filter(is_together).copied().collect()
    }

    /// Has copies that are made together be in use from the first reader of any on.
    pub(super) fn round_together(&self, used: &mut BTreeMap<Need, (Lifetime, Dtype)>) {
        let together = self.rounded_together();
        let need = |node: &NodeId| Need::Of(Source::Rounded(*node));
        let from = together.iter().filter_map(|node| used.get(&need(node)));
        let Some(from) = from.map(|(lifetime, _)| lifetime.from).min() else {
            return;
        };
        for node in &together {
            if let Some((lifetime, _)) = used.get_mut(&need(node)) {
                lifetime.from = from;
            }
        }
    }

    fn add_forms(&self, at: usize, forms: &mut Forms) {
        let tasks = &self.plan.clusters[at].tasks;
        let call = tasks.iter().find(|&&task| self.plan.is_call(task));
        let Some(&task) = call else {
            let read = self.loops(at).map(|loops| loops.memory).unwrap_or_default();
            let read = read.iter().filter(|memory| !memory.is_written);
            let read = read.filter_map(|memory| match memory.source {
                Source::Node(id) => Some(id),
                Source::Rounded(_) | Source::Partials(_) => None,
            });
            forms.exact.extend(read.flat_map(|id| self.plan.bases(id)));
            return;
        };
        let node = self.plan.tasks[task].node;
        let precision = self.request.precision;
        let rounded = match self.plan.graph.node(node).op {
            Op::ScatterAdd => vec![],
            Op::Attention(_) => self.rounded_for_attention(tasks),
            _ => library::call(self.plan, node, precision)
                .map(|(call, lies)| bf16::rounded(self.plan, &call, &lies))
                .unwrap_or_default(),
        };
        // Further operands, such as biases, are read as they are.
        let bases = tasks.iter().flat_map(|&task| {
            let operands = self
                .plan
                .graph
                .node(self.plan.tasks[task].node)
                .operands
                .iter();
            operands.map(|&operand| self.plan.base(operand))
        });
        let exact = bases.filter(|base| !rounded.contains(base));
        forms
            .exact
            .extend(exact.flat_map(|base| self.plan.bases(base)));
        forms
            .rounded
            .extend(rounded.into_iter().flat_map(|base| self.stored_as(base)));
    }

    /// The nodes that are stored as a factor: the parts of a concatenation that is computed. One of
    /// given tensors is rounded as a whole.
    fn stored_as(&self, base: NodeId) -> Vec<NodeId> {
        match self.plan.is_given(base) {
            true => vec![base],
            false => self.plan.bases(base),
        }
    }

    /// Matrices of attention that are computed, and for a library those that are given, too:
    /// kernels of ours round these themselves.
    fn rounded_for_attention(&self, tasks: &Members) -> Vec<NodeId> {
        let by_library = self.request.by_library;
        let is_read =
            |at: usize| at < attention::MATRICES || (by_library && attention::is_matrix(at));
        let nodes = tasks.iter().map(|&task| self.plan.tasks[task].node);
        let operands = nodes.flat_map(|id| {
            let operands = self.plan.graph.node(id).operands.iter().enumerate();
            operands.filter(|&(at, _)| is_read(at))
        });
        let bases = operands.map(|(_, &operand)| self.plan.base(operand));
        let mut bases: Vec<NodeId> = bases.collect();
        bases.retain(|&id| {
            let is_given = matches!(self.plan.graph.node(id).op, Op::Input(_));
            (by_library || !is_given) && !self.plan.in_bf16.contains(&id)
        });
        bases
    }

    /// Has a kernel store factors of bf16 products in bf16, and in f32 only values with other
    /// readers.
    ///
    /// # Errors
    /// A sentence, for a part of a concatenation that can't be stored so: its neighbours are.
    pub(super) fn store_rounded(&self, loops: &mut Loops) -> Result<(), String> {
        for at in 0..loops.nest.stores.len() {
            let store = loops.nest.stores[at];
            let memory = &loops.memory[store.operand.0];
            let Source::Node(id) = memory.source else {
                continue;
            };
            let stored = self.forms.stored(id);
            if stored == Stored::Exact {
                continue;
            }
            if !loops.nest.may_round(&store) {
                if self.plan.parts.contains_key(&id) {
                    return Err(format!("{id}, part of a concatenation, can't be rounded"));
                }
                continue;
            }
            let rounded = Memory {
                source: Source::Rounded(id),
                ..memory.clone()
            };
            let operand = Operand {
                dtype: Dtype::Bf16,
                ..loops.nest.operands[store.operand.0].clone()
            };
            match stored {
                Stored::Both => {
                    let value = store.value;
                    let operand_id = OperandId(loops.nest.operands.len());
                    loops.nest.operands.push(operand);
                    loops.memory.push(rounded);
                    loops.nest.stores.push(Store {
                        operand: operand_id,
                        value,
                    });
                }
                Stored::Exact | Stored::Rounded => {
                    loops.memory[store.operand.0] = rounded;
                    loops.nest.operands[store.operand.0] = operand;
                }
            }
        }
        Ok(())
    }
}

/// Nodes that a launch stores in bf16.
pub(super) fn stored_rounded(made: &Made) -> Vec<NodeId> {
    let source = |memory: &Memory| memory.source;
    let sources: Vec<Source> = match made {
        Made::Loops(all, ..) => {
            let memory = all.iter().flat_map(|loops| &loops.memory);
            memory.map(source).collect()
        }
        Made::Panels(loops, ..) => loops.memory.iter().map(source).collect(),
        Made::Attention(call, _) => call.stores().collect(),
        Made::Fused(fused) => fused.stores.clone(),
        Made::Elsewhere | Made::Call(..) | Made::Scatter(..) => vec![],
    };
    let rounded = sources.into_iter().filter_map(|source| match source {
        Source::Rounded(id) => Some(id),
        Source::Node(_) | Source::Partials(_) => None,
    });
    rounded.collect()
}
