//! Graphs that are nearly right, for tests of judges: each has one fault that a person might make.
//! And the value of a right one in f32.

use super::op::{Binary, Op, Reduction, Unary};
use super::{Graph, Node, NodeId, evaluate};
use sweeper_program::Role;
use sweeper_program::tensor::{Data, Dtype, Tensor, Tensors};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Another constant.
    Constant(f64),
    /// The first or second operand alone.
    Only(usize),
    /// Operands change places.
    Swapped,
    /// Another function.
    Unary(Unary),
    /// `1 / (sqrt(x) + c)` for `1 / sqrt(x + c)`.
    OutsideTheRoot,
    /// A sum without the last element of this dimension of its operand or operands.
    WithoutTheLast(usize),
}

/// Every fault of the nodes that some results depend on: the node, and the fault.
pub fn faults(graph: &Graph, wanted: &[NodeId]) -> Vec<(NodeId, Fault)> {
    let needed = graph.needed_for(wanted.iter().copied());
    let ids = graph.ids().filter(|id| needed[id.index()]);
    ids.flat_map(|id| of_node(graph, id).into_iter().map(move |fault| (id, fault)))
        .collect()
}

fn of_node(graph: &Graph, id: NodeId) -> Vec<Fault> {
    let node = graph.node(id);
    let shape = |operand: usize| graph.node(node.operands[operand]).shape.as_slice();
    match &node.op {
        Op::Constant(value) => of_constant(*value),
        Op::Unary(function) => {
            let mut faults = match function {
                Unary::Tanh => vec![Fault::Unary(Unary::Erf)],
                Unary::Erf => vec![Fault::Unary(Unary::Tanh)],
                Unary::Rsqrt => vec![Fault::Unary(Unary::Reciprocal)],
                Unary::Neg => vec![Fault::Unary(Unary::Abs)],
                _ => vec![Fault::Unary(Unary::Neg)],
            };
            if *function == Unary::Rsqrt && added_constant(graph, node).is_some() {
                faults.push(Fault::OutsideTheRoot);
            }
            faults
        }
        Op::Binary(Binary::Add | Binary::Mul) => vec![Fault::Only(0), Fault::Only(1)],
        Op::Binary(Binary::Sub | Binary::Div) => vec![Fault::Only(0), Fault::Swapped],
        Op::Binary(Binary::Less | Binary::LessEqual) => vec![Fault::Swapped],
        // If both operands are one node, either is the greater one.
        Op::Binary(Binary::Max | Binary::Min) => vec![Fault::Only(0)],
        Op::Reduce {
            reduction: Reduction::Sum,
            dims,
        } => {
            let dims = dims.iter().filter(|&&dim| shape(0)[dim] > 1);
            dims.map(|&dim| Fault::WithoutTheLast(dim)).collect()
        }
        Op::Matmul => vec![Fault::WithoutTheLast(shape(0).len() - 1)],
        Op::Conv2d(_) => vec![Fault::WithoutTheLast(1)],
        _ => vec![],
    }
}

fn of_constant(value: f64) -> Vec<Fault> {
    if value == 0.0 {
        return vec![Fault::Constant(1e-3)];
    }
    let mut faults = vec![Fault::Constant(-value), Fault::Constant(1.001 * value)];
    let count = 1.0 / value;
    // A mean over n - 1 of n.
    if count > 2.0 && (count - count.round()).abs() < 1e-9 * count {
        faults.push(Fault::Constant(1.0 / (count - 1.0)));
    }
    // The number that is added to a variance is so small that only its absence can be detected.
    if value <= 1e-4 && value > 0.0 {
        return vec![Fault::Constant(0.0)];
    }
    faults
}

/// The `x` and the constant `c`, if a node computes `x + c`.
fn added_constant(graph: &Graph, node: &Node) -> Option<(NodeId, NodeId)> {
    let sum = graph.node(node.operands[0]);
    let constant = |mut id: NodeId| {
        while let Op::Broadcast | Op::Reshape = graph.node(id).op {
            id = graph.node(id).operands[0];
        }
        matches!(graph.node(id).op, Op::Constant(_))
    };
    let is_sum = sum.op == Op::Binary(Binary::Add);
    (is_sum && constant(sum.operands[1])).then(|| (sum.operands[0], sum.operands[1]))
}

/// The graph with one fault.
pub fn with(graph: &Graph, (at, fault): (NodeId, Fault)) -> Graph {
    let add = |out: &mut Graph, id: NodeId, node| match id == at {
        false => out.append(node, graph.role_of(id)),
        true => wrong(out, node, fault),
    };
    graph.copied(add).0
}

fn wrong(out: &mut Graph, mut node: Node, fault: Fault) -> NodeId {
    match fault {
        Fault::Constant(value) => node.op = Op::Constant(value),
        Fault::Only(operand) => return node.operands[operand],
        Fault::Swapped => node.operands.swap(0, 1),
        Fault::Unary(function) => node.op = Op::Unary(function),
        Fault::OutsideTheRoot => {
            let (x, constant) = out_of_sum(out, node.operands[0]);
            let root = add(out, Op::Unary(Unary::Sqrt), &[x], &node.shape);
            let sum = add(out, Op::Binary(Binary::Add), &[root, constant], &node.shape);
            node.op = Op::Unary(Unary::Reciprocal);
            node.operands = [sum].into_iter().collect();
        }
        Fault::WithoutTheLast(dim) => {
            node.operands[0] = without_the_last(out, node.operands[0], dim);
        }
    }
    out.append(node, None)
}

fn out_of_sum(graph: &Graph, sum: NodeId) -> (NodeId, NodeId) {
    let operands = &graph.node(sum).operands;
    (operands[0], operands[1])
}

/// The tensor with zeros for the last index of a dimension.
fn without_the_last(out: &mut Graph, x: NodeId, dim: usize) -> NodeId {
    let whole = out.node(x).shape.clone();
    let mut part = whole.clone();
    part[dim] -= 1;
    let (start, step) = (0, 1);
    let slice = add(out, Op::Slice { dim, start, step }, &[x], &part);
    add(out, Op::Unslice { dim, start, step }, &[slice], &whole)
}

fn add(out: &mut Graph, op: Op, operands: &[NodeId], shape: &[usize]) -> NodeId {
    let node = Node {
        op,
        operands: operands.to_vec(),
        shape: shape.to_vec(),
        dtype: Dtype::F32,
        group: None,
    };
    out.append(node, None)
}

/// Chains of a sum in f32.
const LANES: usize = 64;

/// The results of a graph where every operation is done in f32: sums in lanes, products one term
/// after another.
pub fn in_f32(graph: &Graph, inputs: &Tensors) -> Tensors {
    let mut values: Vec<Tensor> = vec![];
    for id in graph.ids() {
        let node = graph.node(id);
        let operands: Vec<&Tensor> = node.operands.iter().map(|at| &values[at.index()]).collect();
        let value = match &node.op {
            Op::Input(name) => inputs[name].clone(),
            Op::Reduce {
                reduction: Reduction::Sum,
                dims,
            } => sum(operands[0], dims, &node.shape),
            Op::Matmul => product(operands[0], operands[1], &node.shape),
            _ => alone(node, &operands),
        };
        values.push(value);
    }
    let outputs = graph.outputs().iter();
    outputs
        .map(|output| (output.name.clone(), values[output.node.index()].clone()))
        .collect()
}

/// The value of one node, rounded.
fn alone(node: &Node, operands: &[&Tensor]) -> Tensor {
    let mut graph = Graph::new();
    let mut inputs = Tensors::new();
    let mut node = node.clone();
    for (at, operand) in operands.iter().enumerate() {
        let name = at.to_string();
        let given = graph.input(&name, operand.shape(), operand.dtype(), Role::Input);
        node.operands[at] = given.expect("the fault keeps shapes and types");
        inputs.insert(name, (*operand).clone());
    }
    let out = graph.append(node, None);
    graph.output("out", out, Role::Output);
    let value = evaluate(&graph, &inputs)
        .expect("the graph has these inputs")
        .remove("out")
        .expect("the graph has this output");
    match value.data() {
        Data::F64(values) => {
            let values = values.iter().map(|&value| value as f32).collect();
            Tensor::f32(value.shape(), values)
        }
        _ => value,
    }
}

fn sum(x: &Tensor, dims: &[usize], shape: &[usize]) -> Tensor {
    let elements = x.as_f32().expect("a tensor of f32");
    let mut lanes = vec![[0.0f32; LANES]; shape.iter().product()];
    let mut terms = vec![0; lanes.len()];
    for (at, element) in elements.iter().enumerate() {
        let (mut rest, mut to, mut step) = (at, 0, 1);
        for (dim, &extent) in x.shape().iter().enumerate().rev() {
            if !dims.contains(&dim) {
                to += rest % extent * step;
                step *= extent;
            }
            rest /= extent;
        }
        lanes[to][terms[to] % LANES] += element;
        terms[to] += 1;
    }
    let sums = lanes.iter().map(|lanes| lanes.iter().sum()).collect();
    Tensor::f32(shape, sums)
}

fn product(a: &Tensor, b: &Tensor, shape: &[usize]) -> Tensor {
    let (terms, columns) = (a.shape()[a.shape().len() - 1], shape[shape.len() - 1]);
    let rows = shape[shape.len() - 2];
    let (a, b) = (
        a.as_f32().expect("a tensor of f32"),
        b.as_f32().expect("a tensor of f32"),
    );
    let element = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        let b = &b[row / rows * terms * columns..];
        let pairs = (0..terms).map(|term| (a[row * terms + term], b[term * columns + column]));
        pairs.fold(0.0f32, |sum, (a, b)| a.mul_add(b, sum))
    };
    Tensor::f32(shape, (0..shape.iter().product()).map(element).collect())
}
