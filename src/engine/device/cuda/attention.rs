//! Attention by cuDNN: the graphs of operations that its fused kernels are found by.
//!
//! NVIDIA's open-source front end (github.com/NVIDIA/cudnn-frontend) shows which graphs these are.
//! Of its two graphs of gradients this is the one whose results have the same bits every time: the
//! gradient by queries is one product, not a sum in f32 to which blocks add in any order. On an
//! H100, 8 sequences of 1024 take 15 % longer so.

use std::rc::Rc;

use cudarc::cudnn::sys::{
    cudnnDataType_t as Number, cudnnPointwiseMode_t as Pointwise,
    cudnnReduceTensorOp_t as Reduction,
};
use sweeper_program::{Attention, AttentionPass, Heads};

use super::dnn::Dnn;
use super::driver::Fault;
use super::operation_graph::{Graph, Plan, Shape, Tensor, dense, turned};

const FLOAT: Number = Number::CUDNN_DATA_FLOAT;
const BF16: Number = Number::CUDNN_DATA_BFLOAT16;
const ADD: Pointwise = Pointwise::CUDNN_POINTWISE_ADD;
const SUB: Pointwise = Pointwise::CUDNN_POINTWISE_SUB;
const MUL: Pointwise = Pointwise::CUDNN_POINTWISE_MUL;
const DIV: Pointwise = Pointwise::CUDNN_POINTWISE_DIV;
const EXP: Pointwise = Pointwise::CUDNN_POINTWISE_EXP;
const SUM: Reduction = Reduction::CUDNN_REDUCE_TENSOR_ADD;

/// An attention, or its gradients, ready to be launched.
pub struct Fused {
    plan: Plan,
    /// Operands in the order of a launch's arguments.
    operands: Vec<Tensor>,
    /// Numbers that are the same in each launch.
    numbers: Vec<(Tensor, f32)>,
    /// For gradients, a number for each row of queries, at the beginning of scratch memory.
    sums: Option<Tensor>,
    sums_bytes: usize,
}

impl Fused {
    /// Has cuDNN find how `call` is computed, with `scratch_bytes` of scratch memory.
    ///
    /// # Errors
    /// A call that the library can't do.
    pub fn new(dnn: &Rc<Dnn>, call: &Attention, scratch_bytes: usize) -> Result<Self, Fault> {
        if let Some(reason) = call.refusal() {
            return Err(Fault::refused(reason));
        }
        let sums_bytes = call.sums_bytes();
        let left = scratch_bytes.checked_sub(sums_bytes).ok_or_else(|| {
            Fault::refused(format!(
                "attention needs {sums_bytes} bytes of scratch memory, and has {scratch_bytes}"
            ))
        })?;
        let mut made = Making::new(call)?;
        let operands = match call.pass {
            AttentionPass::Forward { with_sums } => made.forward(with_sums)?,
            AttentionPass::Gradients { grad_out, out } => made.gradients(grad_out, out)?,
        };
        Ok(Fused {
            plan: made.graph.plan(dnn, left)?,
            operands,
            numbers: made.numbers,
            sums: made.sums,
            sums_bytes,
        })
    }

    /// Queues the attention of operands at these addresses, scratch memory last.
    ///
    /// # Errors
    /// The library's.
    pub fn launch(&self, args: &[u64]) -> Result<(), Fault> {
        let scratch = args.get(self.operands.len()).copied().unwrap_or(0);
        let operands = self.operands.iter().copied().zip(args.iter().copied());
        let sums = self.sums.map(|sums| (sums, scratch));
        let memory: Vec<(Tensor, u64)> = operands.chain(sums).collect();
        let scratch = scratch + self.sums_bytes as u64;
        self.plan.launch(&memory, &self.numbers, scratch)
    }
}

/// Extents as the library takes them.
fn extents(of: [usize; 4]) -> [i64; 4] {
    of.map(|extent| extent as i64)
}

/// The shape of an operand of these extents.
fn shape(of: [usize; 4], lies: Heads) -> Shape {
    let steps = [lies.batch_step, lies.head_step, lies.row_step, 1];
    (extents(of), extents(steps))
}

/// A graph that is being made.
struct Making<'c> {
    call: &'c Attention,
    graph: Graph,
    numbers: Vec<(Tensor, f32)>,
    sums: Option<Tensor>,
    scale: Tensor,
}

impl<'c> Making<'c> {
    fn new(call: &'c Attention) -> Result<Self, Fault> {
        let mut graph = Graph::default();
        let scale = graph.number()?;
        Ok(Making {
            call,
            graph,
            numbers: vec![(scale, call.scale.get())],
            sums: None,
            scale,
        })
    }

    fn number(&mut self, number: f32) -> Result<Tensor, Fault> {
        let tensor = self.graph.number()?;
        self.numbers.push((tensor, number));
        Ok(tensor)
    }

    /// A number for each row of queries, in memory.
    fn of_rows(&mut self) -> Result<Tensor, Fault> {
        let [batch, heads, rows, _] = extents(self.call.of_queries());
        self.graph.memory(FLOAT, dense([batch, heads, rows, 1]))
    }

    /// Scores without the keys that a query does not see: row >= column.
    fn masked(&mut self, scores: Tensor) -> Result<Tensor, Fault> {
        if !self.call.is_causal {
            return Ok(scores);
        }
        let [batch, heads, queries, _] = extents(self.call.of_queries());
        let hidden = self.number(f32::NEG_INFINITY)?;
        let graph = &mut self.graph;
        let [row, column] = [graph.index(scores, 2)?, graph.index(scores, 3)?];
        let boolean = Number::CUDNN_DATA_BOOLEAN;
        let keys = self.call.keys as i64;
        let is_seen = graph.between(boolean, [batch, heads, queries, keys])?;
        let not_less = Pointwise::CUDNN_POINTWISE_CMP_GE;
        graph.pointwise_to((not_less, boolean), row, &[column], is_seen)?;
        let select = Pointwise::CUDNN_POINTWISE_BINARY_SELECT;
        graph.pointwise(select, scores, &[hidden, is_seen])
    }

    /// The graph of `out`, by operands in the order of arguments.
    fn forward(&mut self, with_sums: bool) -> Result<Vec<Tensor>, Fault> {
        let call = self.call;
        let (of_queries, of_keys) = (call.of_queries(), call.of_keys());
        let graph = &mut self.graph;
        let q = graph.memory(BF16, shape(of_queries, call.q))?;
        let k = graph.memory(BF16, turned(shape(of_keys, call.k)))?;
        let v = graph.memory(BF16, shape(of_keys, call.v))?;
        let out = graph.memory(BF16, dense(extents(of_queries)))?;
        let products = graph.matmul(q, k)?;
        let scores = graph.pointwise(MUL, products, &[self.scale])?;
        let scores = self.masked(scores)?;
        // Kernels are found by a graph with the logarithms, even where nothing reads them.
        let [batch, heads, rows, _] = extents(of_queries);
        let log_sum_exp = match with_sums {
            true => self.of_rows()?,
            false => self.graph.between(FLOAT, [batch, heads, rows, 1])?,
        };
        let graph = &mut self.graph;
        let greatest = graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_MAX, scores)?;
        let below = graph.pointwise(SUB, scores, &[greatest])?;
        let exponentials = graph.pointwise(EXP, below, &[])?;
        let sum = graph.reduce(SUM, exponentials)?;
        let log = graph.pointwise(Pointwise::CUDNN_POINTWISE_LOG, sum, &[])?;
        graph.pointwise_to((ADD, FLOAT), greatest, &[log], log_sum_exp)?;
        let weights = graph.between(BF16, [batch, heads, rows, call.keys as i64])?;
        graph.pointwise_to((DIV, FLOAT), exponentials, &[sum], weights)?;
        graph.matmul_to(weights, v, out)?;
        let operands = [q, k, v, out].into_iter();
        Ok(operands.chain(with_sums.then_some(log_sum_exp)).collect())
    }

    /// The graph of gradients, by operands in the order of arguments.
    fn gradients(&mut self, grad_out: Heads, out: Heads) -> Result<Vec<Tensor>, Fault> {
        let call = self.call;
        let (of_queries, of_keys) = (call.of_queries(), call.of_keys());
        let graph = &mut self.graph;
        let q = graph.memory(BF16, shape(of_queries, call.q))?;
        let k = graph.memory(BF16, turned(shape(of_keys, call.k)))?;
        let v = graph.memory(BF16, turned(shape(of_keys, call.v)))?;
        let grad_out = graph.memory(BF16, shape(of_queries, grad_out))?;
        let out = graph.memory(BF16, shape(of_queries, out))?;
        let grad_q = graph.memory(BF16, dense(extents(of_queries)))?;
        let grad_k = graph.memory(BF16, dense(extents(of_keys)))?;
        let grad_v = graph.memory(BF16, dense(extents(of_keys)))?;
        let log_sum_exp = self.of_rows()?;
        let delta = self.delta(grad_out, out)?;
        // The weights again: exp(scale q k^T - log_sum_exp).
        let products = self.graph.matmul(q, k)?;
        let scores = self.graph.pointwise(MUL, products, &[self.scale])?;
        let below = self.graph.pointwise(SUB, scores, &[log_sum_exp])?;
        let below = self.masked(below)?;
        let graph = &mut self.graph;
        let weights = graph.pointwise(EXP, below, &[])?;
        let weights_turned = graph.turned(weights)?;
        graph.matmul_to(weights_turned, grad_out, grad_v)?;
        // The gradient by scores: weights (grad_out v^T - delta).
        let of_weights = graph.matmul(grad_out, v)?;
        let less = graph.pointwise(SUB, of_weights, &[delta])?;
        let of_scores = graph.pointwise(MUL, less, &[weights])?;
        let of_products = graph.pointwise(MUL, of_scores, &[self.scale])?;
        let of_products_turned = graph.turned(of_products)?;
        graph.matmul_to(of_products_turned, q, grad_k)?;
        let keys = graph.turned(k)?;
        graph.matmul_to(of_products, keys, grad_q)?;
        Ok(vec![
            q,
            k,
            v,
            grad_out,
            log_sum_exp,
            out,
            grad_q,
            grad_k,
            grad_v,
        ])
    }

    /// The sum of `grad_out out` over each row, in scratch memory: a step of its own, which ends
    /// in a factor of the front end's.
    fn delta(&mut self, grad_out: Tensor, out: Tensor) -> Result<Tensor, Fault> {
        let one = self.number(1.0)?;
        let delta = self.of_rows()?;
        let products = self.graph.pointwise(MUL, grad_out, &[out])?;
        let sums = self.graph.reduce(SUM, products)?;
        self.graph.pointwise_to((MUL, FLOAT), sums, &[one], delta)?;
        self.sums = Some(delta);
        Ok(delta)
    }
}
