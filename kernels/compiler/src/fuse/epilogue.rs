//! The pass `epilogue`: a factor, a bias and an activation that follow a product move into the
//! library's call.
//!
//! A factor is a multiplication by a number, a bias an addition of a vector along columns (or
//! channels). An activation is recognised by its values, not by its form: the operations that
//! follow are a function of one number, which is evaluated at some points.
//!
//! The host's library multiplies by a number and adds to the memory of the result. It does so for
//! an operation that would be a kernel of its own at the end of a program; all other operations
//! that follow a product are done panel by panel ([`super::panels`]).

use std::collections::BTreeMap;

use super::access;
use super::cluster::Rules;
use super::library::{self, Lies};
use super::panels::PANEL_BYTES;
use super::plan::{Members, Plan, TaskId};
use crate::graph::pattern::Pattern::{self, Any, Number, Of};
use crate::graph::pattern::{A, ADD, B, DIV, MUL, Y};
use crate::graph::{Graph, NodeId, Op, evaluate_nodes};
use sweeper_program::tensor::{Dtype, Tensor};
use sweeper_program::workload::Target;
use sweeper_program::{Activation, Role, Scale};

/// The epilogue of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Epilogue {
    /// The factor of the product.
    pub scale: Scale,
    /// The addend of each column or channel.
    pub bias: Option<Lies>,
    /// The activation.
    pub activation: Activation,
}

/// Operations that an activation has at most.
const MOST_OPERATIONS: usize = 16;

/// Moves epilogues into calls.
pub(super) fn epilogue(plan: &mut Plan, rules: &Rules, target: &Target) {
    for call in 0..plan.tasks.len() {
        let op = &plan.graph.node(plan.tasks[call].node).op;
        if !matches!(op, Op::Matmul | Op::Conv2d(_)) {
            continue;
        }
        let may = |task: TaskId| rules.may_follow(plan, call, task);
        let tasks = match target {
            Target::Cuda { .. } => absorbed(plan, call, may),
            Target::Cpu => absorbed_by_host(plan, call, may),
        };
        for task in tasks {
            plan.merge(call, task);
        }
    }
}

/// Tasks that a call can do after its product on a GPU, in order. cuDNN ends a convolution in
/// max(x, 0) after a bias, which may be all zeros.
pub(super) fn absorbed(plan: &Plan, call: TaskId, may: impl Fn(TaskId) -> bool) -> Vec<TaskId> {
    let mut absorbed = Vec::new();
    let mut last = call;
    for follows in [is_scaled, is_biased] {
        if let Some(task) = sole_user(plan, last)
            && may(task)
            && follows(plan, call, last, task)
        {
            absorbed.push(task);
            last = task;
        }
    }
    if let Some((region, activation)) = activation(plan, last)
        && region.iter().all(|&task| may(task))
        && (activation == Activation::Relu || has_exact_gelu(plan, call))
    {
        absorbed.extend(region);
    }
    absorbed
}

/// The one task that the host's library does after a product: the last of a program. A bias is
/// there before the product is added to it, which costs as much as a kernel that adds it while the
/// product is in the cache, and more where it is not.
fn absorbed_by_host(plan: &Plan, call: TaskId, may: impl Fn(TaskId) -> bool) -> Vec<TaskId> {
    let is_absorbed = |&task: &TaskId| {
        let bytes = plan.graph.node(plan.tasks[task].node).elements() * Dtype::F32.size_bytes();
        plan.is_result[task]
            && may(task)
            && (is_scaled(plan, call, call, task)
                || (bytes <= PANEL_BYTES && is_biased(plan, call, call, task)))
    };
    let last = sole_user(plan, call).filter(|_| is_matmul(plan, call));
    last.filter(is_absorbed).into_iter().collect()
}

fn is_scaled(plan: &Plan, call: TaskId, of: TaskId, task: TaskId) -> bool {
    scale(plan, call, of, task).is_some()
}

fn is_biased(plan: &Plan, call: TaskId, of: TaskId, task: TaskId) -> bool {
    bias(plan, call, of, task).is_some()
}

fn is_matmul(plan: &Plan, call: TaskId) -> bool {
    plan.graph.node(plan.tasks[call].node).op == Op::Matmul
}

/// Columns, of a product and of its left factor, are multiples of this where cuBLASLt's GELU is as
/// exact as its product: rows are whole float4. In others it is off by 2e-6 to 3e-6 (13.0, on an
/// H100), and by 6e-7 at most by rounding.
const EXACT_COLUMNS: usize = 4;

/// Whether a call can end in a GELU that is as exact as one of its own.
fn has_exact_gelu(plan: &Plan, call: TaskId) -> bool {
    let node = plan.graph.node(plan.tasks[call].node);
    let is_whole = |shape: &[usize]| {
        let columns = shape.last().copied().unwrap_or(1);
        columns.is_multiple_of(EXACT_COLUMNS)
    };
    is_matmul(plan, call)
        && is_whole(&node.shape)
        && is_whole(&plan.graph.node(node.operands[0]).shape)
}

/// The only task that reads a value, if it is not a result.
fn sole_user(plan: &Plan, task: TaskId) -> Option<TaskId> {
    match plan.users[task][..] {
        [user] if !plan.is_result[task] => Some(user),
        _ => None,
    }
}

/// `y a` and `y / a`, by a number.
const MULTIPLIED: Pattern = Of(MUL, &[Any(Y), Number(A)]);
const DIVIDED: Pattern = Of(DIV, &[Any(Y), Number(A)]);

/// `y + b`
const BIASED: Pattern = Of(ADD, &[Any(Y), Any(B)]);

/// The number by which a task multiplies a value of a call: a product of matrices.
fn scale(plan: &Plan, call: TaskId, of: TaskId, task: TaskId) -> Option<Scale> {
    let (value, id) = (plan.tasks[of].node, plan.tasks[task].node);
    let node = plan.graph.node(id);
    let number = |pattern: Pattern| {
        let found = pattern.find(&plan.graph, id)?;
        let is_value = plan.unreshaped(found[Y]) == value;
        plan.graph.number(found[A]).filter(|_| is_value)
    };
    let factor = number(MULTIPLIED).or_else(|| number(DIVIDED).map(f64::recip));
    let is_same = node.elements() == plan.graph.node(value).elements();
    let factor = factor.filter(|_| is_matmul(plan, call) && is_same)? as f32;
    factor.is_finite().then_some(Scale::new(factor))
}

/// The addend of each column or channel that a task adds to a call's value.
fn bias(plan: &Plan, call: TaskId, of: TaskId, added: TaskId) -> Option<Lies> {
    let (product, id) = (plan.tasks[of].node, plan.tasks[added].node);
    let node = plan.graph.node(id);
    let found = BIASED.find(&plan.graph, id)?;
    let is_product = |id: NodeId| plan.unreshaped(id) == product;
    let other = match [found[Y], found[B]] {
        [y, other] if is_product(y) && !is_product(other) => other,
        [other, y] if is_product(y) && !is_product(other) => other,
        _ => return None,
    };
    let shape = node.shape.clone();
    let dim = match is_matmul(plan, call) {
        true => shape.len().checked_sub(1)?,
        false => 1,
    };
    let product = &plan.graph.node(product).shape;
    let is_same = match is_matmul(plan, call) {
        true => product.last() == shape.last(),
        false => *product == shape,
    };
    if !is_same {
        return None;
    }
    let (base, at) = library::position(plan, other, &shape, access::axes(shape.len()))?;
    let long = at
        .steps
        .iter()
        .filter(|&&(axis, step)| step > 0 && shape[axis] > 1);
    let is_vector = long.clone().all(|&(axis, step)| axis == dim && step == 1);
    let is_f32 = plan.dtype_in_memory(base) == Dtype::F32;
    (is_f32 && is_vector && (long.count() == 1 || shape[dim] == 1)).then_some(Lies {
        base,
        start: at.start,
        span: shape[dim],
    })
}

/// The tasks that compute an activation of a value, if nothing else reads the value.
fn activation(plan: &Plan, of: TaskId) -> Option<(Vec<TaskId>, Activation)> {
    let elements = plan.graph.node(plan.tasks[of].node).elements();
    let mut region: Members = [of].into();
    let mut users: Members = plan.users[of].iter().copied().collect();
    while let Some(task) = users.pop_first() {
        let node = plan.graph.node(plan.tasks[task].node);
        let is_function = node.op.is_elementwise() && node.elements() == elements;
        let is_known = |&operand: &NodeId| {
            let is_number = matches!(plan.graph.node(plan.base(operand)).op, Op::Constant(_));
            is_number
                || (plan
                    .value(operand)
                    .is_some_and(|held| region.contains(&held)))
        };
        if !is_function || !node.operands.iter().all(is_known) {
            continue;
        }
        region.insert(task);
        users.extend(&plan.users[task]);
        if region.len() > MOST_OPERATIONS {
            return None;
        }
        let is_read_outside = |&&held: &&TaskId| {
            plan.is_result[held] || plan.users[held].iter().any(|user| !region.contains(user))
        };
        let open: Vec<TaskId> = region.iter().filter(is_read_outside).copied().collect();
        if open == [task]
            && let Some(found) = recognised(plan, &region, of, task)
        {
            return Some((
                region.into_iter().filter(|&held| held != of).collect(),
                found,
            ));
        }
    }
    None
}

/// The points at which functions are compared: on both sides of 0, where the values of the error
/// function and of the hyperbolic tangent differ by more than the tolerance.
const POINTS: [f32; 8] = [-3.0, -2.0, -1.0, -0.25, 0.0, 0.5, 1.5, 2.5];

fn recognised(plan: &Plan, region: &Members, of: TaskId, out: TaskId) -> Option<Activation> {
    let gelu = |x: f64| {
        let inner = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x * x * x);
        0.5 * x * (1.0 + inner.tanh())
    };
    let found = at_points(plan, region, of, out)?;
    let found = found.as_f64()?;
    let is = |function: &dyn Fn(f64) -> f64| {
        let mut pairs = POINTS.iter().zip(found);
        pairs.all(|(&x, value)| (value - function(x.into())).abs() < 1e-6)
    };
    if is(&|x| x.max(0.0)) {
        Some(Activation::Relu)
    } else if is(&gelu) {
        Some(Activation::GeluTanh)
    } else {
        None
    }
}

/// The values of task `out` if the values of task `of` are [`POINTS`]: `region` as a graph of its
/// own.
fn at_points(plan: &Plan, region: &Members, of: TaskId, out: TaskId) -> Option<Tensor> {
    let shape = [POINTS.len()];
    let mut graph = Graph::new();
    let x = graph.input("x", &shape, Dtype::F32, Role::Input).ok()?;
    let mut made: BTreeMap<TaskId, NodeId> = [(of, x)].into();
    for &task in region.iter().filter(|&&task| task != of) {
        let mut node = plan.graph.node(plan.tasks[task].node).clone();
        for operand in &mut node.operands {
            *operand = match plan.graph.node(plan.base(*operand)).op {
                Op::Constant(number) => {
                    let number = graph.constant(number);
                    graph.broadcast(number, &shape).ok()?
                }
                _ => *made.get(&plan.value(plan.unreshaped(*operand))?)?,
            };
        }
        node.shape = shape.to_vec();
        made.insert(task, graph.append(node, None));
    }
    let points = Tensor::f32(shape.to_vec(), POINTS.to_vec());
    let inputs = [("x".to_owned(), points)].into();
    let out = *made.get(&out)?;
    evaluate_nodes(&graph, &inputs, &[out]).ok()?.pop()
}

/// The epilogue of a call's kernel.
pub(super) fn of_cluster(plan: &Plan, tasks: &Members, call: TaskId) -> Epilogue {
    let mut others = tasks
        .iter()
        .copied()
        .filter(|&task| task != call)
        .peekable();
    let mut made = Epilogue::default();
    let mut last = call;
    if let Some(scale) = others
        .peek()
        .and_then(|&task| scale(plan, call, last, task))
    {
        made.scale = scale;
        last = others.next().unwrap_or(last);
    }
    if let Some(bias) = others.peek().and_then(|&task| bias(plan, call, last, task)) {
        made.bias = Some(bias);
        last = others.next().unwrap_or(last);
    }
    if let Some((region, activation)) = activation(plan, last)
        && region.iter().all(|task| tasks.contains(task))
    {
        made.activation = activation;
    }
    made
}
