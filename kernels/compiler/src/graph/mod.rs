//! Tensor operations as a graph: the mathematics of a workload, without kernels or memory.
//!
//! A [`Graph`] is a list of nodes in an order in which they can be computed. Shapes and types are
//! found when a node is added ([`build`]), so that a graph that exists is well-formed; equal nodes
//! of a pass are merged ([`insert`]), but not what is before and behind an [`Op::Barrier`]. Its
//! meaning is its value in f64; differentiation adds the nodes of a backward pass.
//!
//! *Groups* name the nodes that an eager framework computes in one kernel (a layer norm, a
//! softmax). They don't change any value, and the compiler that fuses across operations ignores
//! them.

pub mod op;
mod primitive;
mod error;
mod build;
mod evaluate;
mod layers;
mod differentiate;
mod insert;
pub(crate) mod pattern;
mod simplify;
mod stored;
pub mod on_device;
#[cfg(any(test, feature = "mutate"))]
pub mod mutate;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

use sweeper_program::Role;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::Phase;

pub use differentiate::{Backward, differentiate, saved};
pub use error::GraphError;
pub use evaluate::{
    EvaluateError, Rounding, evaluate, evaluate_nodes, evaluate_rounded, peak_bytes,
};
pub use op::{Attention, AttentionPart, Binary, Convolution, Op, Reduction, Unary};
pub(crate) use stored::may_be_bf16;

/// A node of a graph, by position.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The position in [`Graph::nodes`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "%{}", self.0)
    }
}

/// Nodes that an eager framework computes in one kernel, by position in [`Graph::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupId(pub u32);

/// One operation and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Operands of the node: earlier nodes.
    pub operands: Vec<NodeId>,
    /// Extents of the result, outermost first.
    pub shape: Vec<usize>,
    /// Type of the result: [`Dtype::F32`], or [`Dtype::I64`] for labels and indices.
    pub dtype: Dtype,
    /// The group of the node; a node without a group is a kernel of its own in an eager framework.
    pub group: Option<GroupId>,
}

impl Node {
    /// Number of elements of the result.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The operands that the value is computed from: all but what an [`Op::Barrier`] comes after.
    pub fn sources(&self) -> &[NodeId] {
        match self.op {
            Op::Barrier => &self.operands[..1],
            _ => &self.operands,
        }
    }
}

/// A result of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Name, as in files.
    pub name: String,
    /// The node whose value it is.
    pub node: NodeId,
    /// The role of its memory: [`Role::Output`] or [`Role::Gradient`], or after a step of an
    /// optimizer [`Role::Parameter`] and [`Role::Optimizer`].
    pub role: Role,
    /// The given tensor that it is the next value of: where no reader of that is left, both may
    /// have the same memory.
    pub updates: Option<NodeId>,
}

impl Output {
    /// Whether it is there after a step of an optimizer.
    fn is_of_step(&self) -> bool {
        matches!(self.role, Role::Parameter | Role::Optimizer)
    }
}

/// A given tensor of a graph, with the role of its memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// The node of [`Op::Input`].
    pub node: NodeId,
    /// [`Role::Input`], or [`Role::Parameter`] for weights, which do not change between calls, or
    /// [`Role::Optimizer`] for the state of an optimizer.
    pub role: Role,
}

/// A computation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    nodes: Vec<Node>,
    given: Vec<Given>,
    outputs: Vec<Output>,
    groups: Vec<String>,
    /// The layers whose gradient is known as a whole, by their result.
    #[serde(skip)]
    layers: BTreeMap<NodeId, differentiate::Layer>,
    /// The group that new nodes belong to.
    #[serde(skip)]
    open: Option<GroupId>,
    /// The first node of the pass that nodes are added to.
    #[serde(skip)]
    pass: NodeId,
    /// Whether nodes are simplified before they are added.
    #[serde(skip)]
    simplifies: bool,
    /// All nodes by their hash, ascending: where equal nodes are looked for.
    #[serde(skip)]
    by_hash: HashMap<u64, Vec<NodeId>>,
    /// For each node, whether it depends on parameters and constants alone.
    #[serde(skip)]
    is_of_parameters: Vec<bool>,
}

impl Graph {
    /// A graph without nodes.
    pub fn new() -> Self {
        Graph::default()
    }

    /// All nodes, operands before their users.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The ids of all nodes, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Given tensors, in the order in which they were added.
    pub fn given(&self) -> &[Given] {
        &self.given
    }

    /// Results, in the order in which they were named.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The results of a phase. A graph whose results are gradients and parameters after a step has
    /// the step as [`Phase::Step`]; without gradients the step is part of [`Phase::Both`].
    pub fn results(&self, phase: Phase) -> impl Iterator<Item = &Output> {
        let is_gradient = |output: &Output| output.role == Role::Gradient;
        let has_own_step = self.outputs.iter().any(is_gradient);
        self.outputs.iter().filter(move |output| match phase {
            Phase::Forward => output.role == Role::Output,
            Phase::Backward => output.role != Role::Output,
            Phase::Both => !(has_own_step && output.is_of_step()),
            Phase::Step => output.is_of_step(),
        })
    }

    /// Names of the groups.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Makes a node a result.
    pub fn output(&mut self, name: impl Into<String>, node: NodeId, role: Role) {
        self.outputs.push(Output {
            name: name.into(),
            node,
            role,
            updates: None,
        });
    }

    /// Makes a node a result that is the next value of a given tensor of its shape, as a parameter
    /// is after a step: nobody needs what was given after that.
    pub fn update(&mut self, name: impl Into<String>, node: NodeId, given: NodeId, role: Role) {
        self.output(name, node, role);
        if let Some(output) = self.outputs.last_mut() {
            output.updates = Some(given);
        }
    }

    /// Adds nodes that an eager framework computes in one kernel. Inside another group nothing
    /// changes: the outer one is the kernel.
    pub fn group<T>(&mut self, name: &str, add: impl FnOnce(&mut Self) -> T) -> T {
        if self.open.is_some() {
            return add(self);
        }
        self.open = Some(self.new_group(name));
        let added = add(self);
        self.open = None;
        added
    }

    /// Adds a group without nodes.
    pub(crate) fn new_group(&mut self, name: &str) -> GroupId {
        self.groups.push(name.to_owned());
        GroupId(self.groups.len() as u32 - 1)
    }

    /// For each node, the nodes that use it, ascending; one that uses it twice is listed once.
    pub fn users(&self) -> Vec<Vec<NodeId>> {
        let mut users = vec![Vec::new(); self.nodes.len()];
        for id in self.ids() {
            for operand in &self.node(id).operands {
                let of: &mut Vec<NodeId> = &mut users[operand.index()];
                if of.last() != Some(&id) {
                    of.push(id);
                }
            }
        }
        users
    }

    /// For each node, how often it is an operand or a result.
    pub(crate) fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        let operands = self.nodes.iter().flat_map(|node| &node.operands);
        for used in operands.chain(self.outputs.iter().map(|output| &output.node)) {
            uses[used.index()] += 1;
        }
        uses
    }

    /// For each node, whether any result depends on it.
    pub fn needed(&self) -> Vec<bool> {
        self.needed_for(self.outputs.iter().map(|output| output.node))
    }

    /// For each node, whether any of `wanted` is it or is computed from it.
    pub fn needed_for(&self, wanted: impl IntoIterator<Item = NodeId>) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        for node in wanted {
            needed[node.index()] = true;
        }
        for id in self.ids().rev() {
            if needed[id.index()] {
                for operand in self.node(id).sources() {
                    needed[operand.index()] = true;
                }
            }
        }
        needed
    }
}

/// One node a line, as golden files and `plan --explain` show it:
/// `%5 = mul(%3, %4) : f32[16, 256] in layernorm`.
impl fmt::Display for Graph {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for id in self.ids() {
            self.write_node(out, id)?;
        }
        for output in &self.outputs {
            writeln!(out, "{} = {}", output.name, output.node)?;
        }
        Ok(())
    }
}

impl Graph {
    fn write_node(&self, out: &mut fmt::Formatter<'_>, id: NodeId) -> fmt::Result {
        let node = self.node(id);
        write!(out, "{id} = {}(", node.op.name())?;
        let mut separator = "";
        for operand in &node.operands {
            write!(out, "{separator}{operand}")?;
            separator = ", ";
        }
        match &node.op {
            Op::Input(name) => write!(out, "{name}")?,
            Op::Constant(value) => write!(out, "{value}")?,
            Op::Iota { dim } | Op::Concat { dim } => write!(out, "dim {dim}")?,
            Op::Reduce { dims, .. } => write!(out, "; dims {dims:?}")?,
            Op::Transpose { order } => write!(out, "; order {order:?}")?,
            Op::Slice { dim, start, step } | Op::Unslice { dim, start, step } => {
                write!(out, "; dim {dim} from {start} by {step}")?;
            }
            Op::Conv2d(shape) | Op::Conv2dGradX(shape) | Op::Conv2dGradW(shape) => {
                write!(out, "; stride {} padding {}", shape.stride, shape.padding)?;
            }
            Op::Attention(attention) => {
                let mask = if attention.is_causal { " causal" } else { "" };
                write!(out, "; scale {}{mask}", attention.scale)?;
            }
            _ => {}
        }
        write!(out, ") : {}{:?}", node.dtype, node.shape)?;
        match node.group {
            Some(group) => writeln!(out, " in {}", self.groups[group.0 as usize]),
            None => writeln!(out),
        }
    }
}
