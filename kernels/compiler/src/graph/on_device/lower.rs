//! Nodes as launches: one for each operation; operations that only read memory in another way
//! become views.

use crate::graph::evaluate::{use_of, uses};
use crate::graph::op::{Binary, Convolution, Op, Reduction};
use crate::graph::{Graph, Node, NodeId};
use sweeper_program::Precision;
use sweeper_program::tensor::Dtype;

use super::launches::{Arguments, Launches};
use super::values::{Value, padded};

/// A reduction is dealt out to so many threads, if it has as many elements.
const REDUCING_THREADS: usize = 1 << 16;

/// So many elements are reduced by one thread without parts.
const FEW_ELEMENTS: usize = 256;

/// A graph, and its launches so far.
pub(super) struct Lowering<'g> {
    pub(super) graph: &'g Graph,
    pub(super) precision: Precision,
    pub(super) launches: Launches,
}

impl<'g> Lowering<'g> {
    pub(super) fn new(graph: &'g Graph, precision: Precision) -> Self {
        Lowering {
            graph,
            precision,
            launches: Launches::default(),
        }
    }

    /// Launches that compute `nodes` and the nodes that they need; where a probe is given, each
    /// operation rounds.
    pub(super) fn evaluate(&mut self, nodes: &[NodeId], probe: Option<u8>) -> Vec<Value> {
        let graph = self.graph;
        let mut uses = uses(graph, nodes);
        let mut values: Vec<Option<Value>> = vec![None; graph.nodes().len()];
        let mut owners: Vec<NodeId> = graph.ids().collect();
        for id in graph
            .ids()
            .filter(|id| uses[id.index()] > 0)
            .collect::<Vec<_>>()
        {
            let node = graph.node(id);
            let sources = node.sources().iter();
            let mut operands: Vec<Value> = sources
                .clone()
                .filter_map(|&operand| use_of(&mut values, &mut uses, operand))
                .collect();
            let owned: Vec<NodeId> = sources.map(|source| owners[source.index()]).collect();
            if let Some(probe) = probe {
                operands = self.factors(node, operands, &owned, probe);
            }
            let mut value = self.value(node, &operands);
            let shared = operands.iter().zip(owned);
            let shared = shared.filter(|(operand, _)| value.shares_memory(operand));
            let owner = shared.map(|(_, owner)| owner).next();
            let owner = owner.filter(|_| node.op != Op::Barrier);
            owners[id.index()] = owner.unwrap_or(id);
            if let Some(probe) = probe {
                value = self.rounded(id, &operands, value, probe);
            }
            values[id.index()] = Some(value);
            for operand in operands {
                self.launches.release(operand);
            }
        }
        let wanted = nodes.iter();
        let wanted = wanted.filter_map(|&node| use_of(&mut values, &mut uses, node));
        wanted.collect()
    }

    /// The value of one node from the values of its operands.
    #[expect(clippy::too_many_lines, reason = "an arm for each operation")]
    pub(super) fn value(&mut self, node: &Node, operands: &[Value]) -> Value {
        let shape = &node.shape;
        let operand = |at: usize| operands[at].clone();
        match &node.op {
            Op::Input(name) => self.input(name, node),
            Op::Constant(value) => {
                let out = self.launches.acquire(Dtype::F64, shape);
                self.launches.fill(&out, *value);
                out
            }
            Op::Iota { dim } => self.iota(shape, *dim),
            Op::Cast(dtype) => self.cast(operand(0), *dtype),
            Op::Barrier => operand(0),
            Op::Broadcast => operand(0).broadcast(shape),
            Op::Transpose { order } => operand(0).transpose(order),
            &Op::Slice { dim, start, step } => operand(0).slice(dim, start, step, shape[dim]),
            Op::Reshape => self.launches.densely(operand(0)).reshape(shape),
            Op::Unary(function) => self.elementwise(function.entry().kernel, shape, operands),
            Op::Binary(function) => {
                let is_whole = operands[0].dtype == Dtype::I64;
                self.elementwise(of_binary(*function, is_whole), shape, operands)
            }
            Op::Select => self.elementwise("select_by_mask", shape, operands),
            Op::Reduce { reduction, dims } => self.reduce(*reduction, operand(0), dims),
            &Op::Unslice { dim, start, step } => self.unslice(operand(0), shape, dim, start, step),
            Op::Matmul => {
                let terms = operands[0].shape()[shape.len() - 1];
                let out = self.launches.acquire(Dtype::F64, shape);
                let args = Arguments::writing(&out).result(shape).int(terms);
                let args = args.operand(&operands[0]).operand(&operands[1]);
                self.launches.launch("matmul", out.elements(), args);
                out
            }
            Op::Conv2d(conv) => {
                let [x, w] = self.both_densely(operands);
                let extents = extents(x.shape(), w.shape(), shape, *conv);
                self.convolution("conv2d", shape, &extents, &[], [x, w])
            }
            Op::Conv2dGradX(conv) => {
                let [grad, w] = self.both_densely(operands);
                let extents = extents(shape, w.shape(), grad.shape(), *conv);
                self.convolution("conv2d_grad_x", shape, &extents, &[], [grad, w])
            }
            Op::Conv2dGradW(conv) => {
                let [grad, x] = self.both_densely(operands);
                let extents = extents(x.shape(), shape, grad.shape(), *conv);
                let pictures = [x.shape()[0]];
                self.convolution("conv2d_grad_w", shape, &extents, &pictures, [grad, x])
            }
            Op::Gather => {
                let width = operands[0].shape()[1..].iter().product();
                let extents = [operands[0].shape()[0], width];
                self.indexed("gather", shape, &extents, operands)
            }
            Op::Attention(_) | Op::Concat { .. } => {
                unreachable!("the compiler makes it of a graph, not of its oracle")
            }
            Op::Pick => {
                let columns = operands[0].shape()[shape.len()];
                self.indexed("pick", shape, &[columns], operands)
            }
            Op::ScatterAdd => {
                let width = shape[1..].iter().product();
                let extents = [operands[1].elements(), width];
                self.indexed("scatter_add", shape, &extents, operands)
            }
        }
    }

    fn input(&mut self, name: &str, node: &Node) -> Value {
        let given = self.launches.given(name, node.dtype, &node.shape);
        if node.dtype == Dtype::I64 {
            return given;
        }
        let out = self.launches.acquire(Dtype::F64, &node.shape);
        let args = Arguments::writing(&out).int(out.elements()).dense(&given);
        self.launches.launch("widen", out.elements(), args);
        out
    }

    fn iota(&mut self, shape: &[usize], dim: usize) -> Value {
        let mut own = vec![1; shape.len()];
        own[dim] = shape[dim];
        let out = self.launches.acquire(Dtype::I64, &own);
        let args = Arguments::writing(&out).int(out.elements());
        self.launches.launch("iota", out.elements(), args);
        out.broadcast(shape)
    }

    fn cast(&mut self, x: Value, dtype: Dtype) -> Value {
        let entry = match (x.dtype, dtype) {
            (Dtype::I64, Dtype::F32) => "to_real",
            (Dtype::F64, Dtype::I64) => "to_whole",
            _ => return x,
        };
        let dtype = if dtype == Dtype::I64 {
            dtype
        } else {
            Dtype::F64
        };
        let out = self.launches.acquire(dtype, x.shape());
        let args = Arguments::writing(&out).result(x.shape()).operand(&x);
        self.launches.launch(entry, out.elements(), args);
        out
    }

    /// A kernel that takes an element of each operand.
    pub(super) fn elementwise(
        &mut self,
        entry: &'static str,
        shape: &[usize],
        operands: &[Value],
    ) -> Value {
        let out = self.launches.acquire(Dtype::F64, shape);
        let args = Arguments::writing(&out).result(shape);
        let args = operands.iter().fold(args, Arguments::operand);
        self.launches.launch(entry, out.elements(), args);
        out
    }

    /// A reduction in as many stages as it takes until no thread reduces many elements alone.
    pub(super) fn reduce(&mut self, reduction: Reduction, x: Value, dims: &[usize]) -> Value {
        let entry = match reduction {
            Reduction::Sum => "reduce_sum",
            Reduction::Max => "reduce_max",
        };
        let (shape, reduced) = split(x.shape(), dims);
        let count: usize = reduced.iter().product();
        let results: usize = shape.iter().product();
        let parts = match count {
            0..=FEW_ELEMENTS => 1,
            _ => (REDUCING_THREADS / results).clamp(1, count.div_ceil(FEW_ELEMENTS)),
        };
        let out = self.launches.acquire(Dtype::F64, &[results, parts]);
        let args = Arguments::writing(&out).result(&shape);
        let args = args.ints(&[parts, count]).ints(&padded(&reduced)[1..]);
        let args = args.operand(&x);
        self.launches.launch(entry, out.elements(), args);
        if parts == 1 {
            return out.reshape(&shape);
        }
        let whole = self.reduce(reduction, out.clone(), &[1]);
        self.launches.release(out);
        whole.reshape(&shape)
    }

    fn unslice(
        &mut self,
        x: Value,
        shape: &[usize],
        dim: usize,
        start: usize,
        step: usize,
    ) -> Value {
        let x = self.launches.densely(x);
        let inner = shape[dim + 1..].iter().product();
        let out = self.launches.acquire(Dtype::F64, shape);
        let args = Arguments::writing(&out).int(out.elements());
        let args = args.ints(&[inner, shape[dim], x.shape()[dim], start, step]);
        self.launches
            .launch("unslice", out.elements(), args.dense(&x));
        self.launches.release(x);
        out
    }

    fn both_densely(&mut self, operands: &[Value]) -> [Value; 2] {
        [0, 1].map(|at: usize| self.launches.densely(operands[at].clone()))
    }

    fn convolution(
        &mut self,
        entry: &'static str,
        shape: &[usize],
        extents: &[usize],
        further: &[usize],
        operands: [Value; 2],
    ) -> Value {
        let out = self.launches.acquire(Dtype::F64, shape);
        let args = Arguments::writing(&out).int(out.elements());
        let args = args.ints(extents).ints(further);
        let args = operands.iter().fold(args, Arguments::dense);
        self.launches.launch(entry, out.elements(), args);
        for operand in operands {
            self.launches.release(operand);
        }
        out
    }

    /// Gathers and scatters: the operands are dense, the second one has whole numbers.
    fn indexed(
        &mut self,
        entry: &'static str,
        shape: &[usize],
        extents: &[usize],
        operands: &[Value],
    ) -> Value {
        let operands = self.both_densely(operands);
        self.convolution(entry, shape, extents, &[], operands)
    }
}

/// The shape of a reduction's result, whose reduced dimensions have extent 1, and the extents that
/// are reduced, 1 for all other dimensions.
fn split(shape: &[usize], dims: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let each = shape.iter().enumerate();
    each.map(|(dim, &extent)| match dims.contains(&dim) {
        true => (1, extent),
        false => (extent, 1),
    })
    .unzip()
}

/// `CONVOLUTION` of the kernels, from the shapes of picture, kernel and result.
fn extents(x: &[usize], w: &[usize], out: &[usize], conv: Convolution) -> [usize; 10] {
    let Convolution { stride, padding } = conv;
    [
        x[1], w[0], x[2], x[3], out[2], out[3], w[2], w[3], stride, padding,
    ]
}

/// The kernel of a function of two elements.
pub(super) fn of_binary(function: Binary, is_whole: bool) -> &'static str {
    let entry = function.entry();
    let of_whole = entry.of_whole.filter(|_| is_whole);
    of_whole.map_or(entry.kernel, |(_, kernel)| kernel)
}
