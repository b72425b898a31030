//! The pass `concatenate`: products that share a factor become one product, and so do products that
//! are added up.
//!
//! One product of a library is faster than several of the same work: it has more tiles for all of a
//! GPU at once. So `x a` and `x b` are columns of `x [a b]`, `a x` and `b x` are rows of
//! `[a; b] x`, and `a c + b d` is `[a b] [c; d]`. Nothing is copied for it: results are slices of
//! the one result, kernels compute factors where they lie in the concatenation, and given tensors
//! are asked to lie one behind another ([`Program::adjacent`](sweeper_program::Program::adjacent)).
//!
//! Such are the projections of a layer's input, and their gradients.

mod factor;
mod rebuild;

use std::collections::{BTreeMap, BTreeSet};

use super::Request;
use super::cluster::Rules;
use super::epilogue;
use super::library::{self, Lies};
use super::plan::{Plan, Side, TaskId};
use super::rewrite::Whole;
use crate::graph::{Binary, NodeId, Op};
use factor::{Concatenation, Concatenations, Factor, Stretch};
use sweeper_program::workload::Target;
use sweeper_program::{Matmul, Precision};

/// Products that become one.
#[derive(Clone, Debug)]
enum Group {
    /// Products with one first factor (`at` 0) or second factor (`at` 1).
    Sharing {
        at: usize,
        /// The operand that they share.
        shared: NodeId,
        products: Vec<NodeId>,
        /// The other factors.
        others: Stretch,
        /// Whether the other factors are transposes of what is concatenated.
        is_turned: bool,
    },
    /// Products that are added up.
    Added {
        /// The last sum.
        sum: NodeId,
        /// Sums on the way and products, which nothing else reads.
        inner: Vec<NodeId>,
        /// Other addends.
        addends: Vec<NodeId>,
        /// First and second factors.
        factors: [Stretch; 2],
        are_turned: [bool; 2],
    },
}

/// A product that may become one with others.
#[derive(Clone, Debug)]
struct Product {
    node: NodeId,
    side: Side,
    /// Whether the backward pass reads the result of a forward pass: memory that is held until
    /// then.
    is_saved: bool,
    call: Matmul,
    lies: [Lies; 2],
    factors: [Option<Factor>; 2],
}

/// Makes one product of several; none where there are no such products. `plan` is the plan of the
/// graph.
pub(super) fn concatenate(
    whole: &Whole,
    plan: &Plan,
    rules: &Rules,
    request: &Request<'_>,
) -> Option<Whole> {
    if *request.target == Target::Cpu {
        return None;
    }
    let mut search = Search::new(plan, rules, request.precision);
    search.added();
    search.sharing(0);
    search.sharing(1);
    let has_groups = !search.groups.is_empty();
    has_groups.then(|| rebuild::rebuilt(whole, &search.groups, &search.concatenations.all))
}

struct Search<'a> {
    plan: &'a Plan,
    /// Products that are in no group, by task.
    products: BTreeMap<TaskId, Product>,
    concatenations: Concatenations,
    groups: Vec<Group>,
    /// Products that are made together, and which of them are.
    spans: Vec<Span>,
    together: BTreeMap<NodeId, usize>,
}

/// Products of a group that share a factor.
struct Span {
    /// The first of them.
    first: NodeId,
    /// Operands of all.
    operands: Vec<NodeId>,
    last_operand: NodeId,
}

impl<'a> Search<'a> {
    fn new(plan: &'a Plan, rules: &Rules, precision: Precision) -> Self {
        let product = |task: TaskId| {
            let product = Product::of(plan, task, precision)?;
            let may = |other: TaskId| rules.may_follow(plan, task, other);
            // A product with an epilogue stays a call of its own.
            let is_bare = epilogue::absorbed(plan, task, may).is_empty();
            is_bare.then_some((task, product))
        };
        Search {
            products: (0..plan.tasks.len()).filter_map(product).collect(),
            plan,
            concatenations: Concatenations::default(),
            groups: vec![],
            spans: vec![],
            together: BTreeMap::new(),
        }
    }

    /// Groups of products that are added up.
    fn added(&mut self) {
        let is_sum = |task: TaskId| self.is_sum(task);
        let sums: Vec<TaskId> = (0..self.plan.tasks.len())
            .filter(|&it| is_sum(it))
            .collect();
        for sum in sums {
            let is_inner = self.sole_user(sum).is_some_and(|user| self.is_sum(user));
            if !is_inner {
                self.add_sum(sum);
            }
        }
    }

    fn is_sum(&self, task: TaskId) -> bool {
        let node = self.plan.graph.node(self.plan.tasks[task].node);
        node.op == Op::Binary(Binary::Add)
    }

    fn sole_user(&self, task: TaskId) -> Option<TaskId> {
        match self.plan.users[task][..] {
            [user] if !self.plan.is_result[task] => Some(user),
            _ => None,
        }
    }

    fn add_sum(&mut self, sum: TaskId) {
        let root = self.plan.tasks[sum].node;
        let (mut inner, mut addends, mut tasks) = (vec![], vec![], vec![]);
        let mut open = self.plan.graph.node(root).operands.clone();
        open.reverse();
        while let Some(operand) = open.pop() {
            let value = self.plan.value(self.plan.unreshaped(operand));
            let only = value.filter(|&task| self.sole_user(task).is_some());
            let side = |task: TaskId| self.plan.tasks[task].side;
            match only.filter(|&task| side(task) == side(sum)) {
                Some(task) if self.is_sum(task) => {
                    let node = self.plan.tasks[task].node;
                    inner.push(node);
                    open.extend(self.plan.graph.node(node).operands.iter().rev());
                }
                Some(task) if self.is_addend(task) => {
                    inner.push(self.plan.tasks[task].node);
                    tasks.push(task);
                }
                _ => addends.push(operand),
            }
        }
        let found = self.factors_of_sum(&tasks);
        let Some((factors, are_turned)) = found else {
            return;
        };
        tasks.iter().for_each(|task| _ = self.products.remove(task));
        self.groups.push(Group::Added {
            sum: root,
            inner,
            addends,
            factors,
            are_turned,
        });
    }

    fn is_addend(&self, task: TaskId) -> bool {
        let product = self.products.get(&task);
        product.is_some_and(|product| product.factors.iter().all(Option::is_some))
    }

    /// The concatenations of both factors of products, if there are several and they have such.
    fn factors_of_sum(&mut self, tasks: &[TaskId]) -> Option<([Stretch; 2], [bool; 2])> {
        let pair = |task: &TaskId| {
            let [first, second] = self.products[task].factors;
            first.zip(second)
        };
        let mut pairs: Vec<(Factor, Factor)> = tasks.iter().filter_map(pair).collect();
        if pairs.len() < 2 {
            return None;
        }
        pairs.sort_by_key(|(_, second)| second.base);
        let (first, second): (Vec<Factor>, Vec<Factor>) = pairs.into_iter().unzip();
        let before = self.concatenations.clone();
        // Columns of the first factors meet rows of the second ones.
        let first_at = self.concatenations.place(&first, 1);
        let second_at = self.concatenations.place(&second, 0);
        let are_in_order = |stretch: &Stretch, factors: &[Factor]| {
            let expected = factors.iter().map(|factor| &factor.base);
            self.concatenations.bases(stretch).iter().eq(expected)
        };
        // What is computed does not wait for further parts, which may be computed from it.
        let is_whole = |stretch: &Stretch, factors: &[Factor]| {
            let all = self.concatenations.all[stretch.at].cores.len();
            factors[0].is_given || stretch.parts.len() == all
        };
        let fits = |stretch: &Stretch, factors: &[Factor]| {
            are_in_order(stretch, factors) && is_whole(stretch, factors)
        };
        match (first_at, second_at) {
            (Some(a), Some(b)) if fits(&a, &first) && fits(&b, &second) => {
                Some(([a, b], [first[0].is_turned, second[0].is_turned]))
            }
            _ => {
                self.concatenations = before;
                None
            }
        }
    }

    /// Groups of products that share the first factor (`at` 0) or the second one.
    fn sharing(&mut self, at: usize) {
        let mut tasks: Vec<TaskId> = self.products.keys().copied().collect();
        while !tasks.is_empty() {
            let first = &self.products[&tasks[0]];
            let (same, others): (Vec<TaskId>, Vec<TaskId>) = tasks
                .iter()
                .partition(|task| first.shares(at, &self.products[task]));
            tasks = others;
            self.add_sharing(at, same);
        }
    }

    fn add_sharing(&mut self, at: usize, tasks: Vec<TaskId>) {
        let products = tasks.iter().map(|task| &self.products[task]);
        let mut pairs: Vec<(Factor, TaskId)> = products
            .zip(&tasks)
            .filter_map(|(product, &task)| Some((product.factors[1 - at]?, task)))
            .collect();
        pairs.sort_by_key(|(factor, _)| factor.base);
        let factors: Vec<Factor> = pairs.iter().map(|(factor, _)| *factor).collect();
        let nodes: BTreeSet<NodeId> = pairs
            .iter()
            .map(|(_, task)| self.products[task].node)
            .collect();
        let before = self.concatenations.clone();
        // Further columns are of second factors, further rows of first ones.
        let Some(others) = self.concatenations.place(&factors, 1 - at) else {
            return;
        };
        // A stretch waits for all of its concatenation.
        let cores = self.concatenations.all[others.at].cores.clone();
        if self.depend_on(cores.clone(), &nodes) {
            self.concatenations = before;
            return;
        }
        let bases = self.concatenations.bases(&others);
        let product_of = |base: &NodeId| {
            let pair = pairs.iter().find(|(factor, _)| factor.base == *base);
            pair.map(|(_, task)| self.products[task].node)
        };
        let products: Vec<NodeId> = bases.iter().filter_map(product_of).collect();
        let shared = self.plan.graph.node(products[0]).operands[at];
        self.join(&products, cores);
        self.groups.push(Group::Sharing {
            at,
            shared,
            products,
            others,
            is_turned: factors[0].is_turned,
        });
        for (_, task) in pairs {
            self.products.remove(&task);
        }
    }

    /// Whether one of the nodes `open` is computed from one of some products, where products of a
    /// group are made together.
    fn depend_on(&self, mut open: Vec<NodeId>, products: &BTreeSet<NodeId>) -> bool {
        let horizon = self.horizon(products);
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if products.contains(&id) {
                return true;
            }
            if id < horizon || !seen.insert(id) {
                continue;
            }
            open.extend(&self.plan.graph.node(id).operands);
            let together = self.together.get(&id).map(|&at| &self.spans[at].operands);
            open.extend(together.into_iter().flatten());
        }
        false
    }

    /// The first node that may be computed from one of some products: none is before them, but for
    /// nodes that wait for a later one with which they are made together.
    fn horizon(&self, products: &BTreeSet<NodeId>) -> NodeId {
        let mut horizon = products.first().copied().unwrap_or_default();
        loop {
            let reaching = self
                .spans
                .iter()
                .filter(|span| span.last_operand >= horizon);
            let earlier = reaching.map(|span| span.first).min();
            match earlier.filter(|&earlier| earlier < horizon) {
                Some(earlier) => horizon = earlier,
                None => return horizon,
            }
        }
    }

    /// Notes that products are made together, of these factors beside the one that they share.
    fn join(&mut self, products: &[NodeId], cores: Vec<NodeId>) {
        let own = products
            .iter()
            .flat_map(|&product| &self.plan.graph.node(product).operands);
        let operands: Vec<NodeId> = own.copied().chain(cores).collect();
        let at = self.spans.len();
        self.together
            .extend(products.iter().map(|&product| (product, at)));
        self.spans.push(Span {
            first: products.iter().copied().min().unwrap_or_default(),
            last_operand: operands.iter().copied().max().unwrap_or_default(),
            operands,
        });
    }
}

impl Product {
    /// The product of two matrices that a task computes.
    fn of(plan: &Plan, task: TaskId, precision: Precision) -> Option<Product> {
        let (node, side) = (plan.tasks[task].node, plan.tasks[task].side);
        let of = plan.graph.node(node);
        let may_be_sliced = !plan.is_result[task] && side != Side::Setup;
        if of.op != Op::Matmul || of.shape.len() != 2 || !may_be_sliced {
            return None;
        }
        let (call, lies) = library::matmul(plan, node, precision)?;
        Some(Product {
            node,
            side,
            is_saved: side == Side::Forward
                && plan.users[task]
                    .iter()
                    .any(|&user| plan.tasks[user].side == Side::Backward),
            call,
            lies,
            factors: [0, 1].map(|at| Factor::of(plan, of.operands[at])),
        })
    }

    /// Whether both have one first factor (`at` 0) or second factor, and others that are alike.
    fn shares(&self, at: usize, other: &Product) -> bool {
        let matrix = |product: &Product| [product.call.a, product.call.b][at];
        let rows = |product: &Product| [product.call.m, product.call.n][at];
        let kind =
            |product: &Product| product.factors[1 - at].map(|it| (it.is_given, it.is_turned));
        (self.side, self.is_saved) == (other.side, other.is_saved)
            && self.lies[at] == other.lies[at]
            && matrix(self) == matrix(other)
            && (rows(self), self.call.k) == (rows(other), other.call.k)
            && kind(self) == kind(other)
    }
}
