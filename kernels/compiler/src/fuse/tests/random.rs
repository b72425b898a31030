//! Random graphs of all kinds of operations, and inputs for them. Tests of devices include this
//! file, too.

use super::{
    Binary, Dtype, Graph, NodeId, Op, Reduction, Role, Tensor, Tensors, Unary, differentiate,
};

/// Numbers from a seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 >> 33) ^ self.0;
        mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 20
    }

    /// A number below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// A graph under construction: values stay within about [-4, 4], so that f32 and f64 agree.
struct Growing {
    graph: Graph,
    random: Random,
    /// f32 values that may be used.
    values: Vec<NodeId>,
}

const EXTENTS: [usize; 5] = [1, 2, 3, 4, 6];

/// A graph of about `size` operations, with outputs.
pub(super) fn graph(seed: u64, size: usize) -> Graph {
    let mut growing = Growing {
        graph: Graph::new(),
        random: Random::new(seed),
        values: vec![],
    };
    for at in 0..3 {
        growing.input(&format!("x{at}"));
    }
    for _ in 0..size {
        if growing.graph.nodes().len() < 4 * size + 20 {
            growing.grow();
        }
    }
    let Growing {
        mut graph,
        mut random,
        values,
    } = growing;
    let users = graph.users();
    let mut outputs: Vec<NodeId> = values
        .iter()
        .copied()
        .filter(|id| users[id.index()].is_empty())
        .collect();
    outputs.push(values[random.below(values.len())]);
    for (at, node) in outputs.into_iter().enumerate() {
        graph.output(format!("out{at}"), node, Role::Output);
    }
    graph
}

/// The graph with its gradients by all inputs of f32, from a random gradient of each output.
pub(super) fn with_gradients(mut graph: Graph) -> (Graph, NodeId) {
    let mut of = Vec::new();
    for (at, output) in graph.outputs().to_vec().into_iter().enumerate() {
        let shape = graph.node(output.node).shape.clone();
        let seed = graph.input(&format!("grad_out{at}"), &shape, Dtype::F32, Role::Input);
        of.push((output.node, Some(seed.unwrap())));
    }
    let given = graph.given().iter().map(|given| given.node);
    let by: Vec<NodeId> = given
        .filter(|&id| graph.node(id).dtype == Dtype::F32)
        .collect();
    let backward = differentiate(&mut graph, &of, &by).unwrap();
    for (id, gradient) in by.into_iter().zip(backward.gradients) {
        graph.output(format!("grad of {id}"), gradient, Role::Gradient);
    }
    (graph, backward.from)
}

/// The graph with the next value of each given tensor, where it has a value of that shape.
pub(super) fn with_updates(mut graph: Graph, seed: u64) -> Graph {
    let mut random = Random::new(seed);
    let given = graph.given().iter().map(|given| given.node);
    for given in given.collect::<Vec<NodeId>>() {
        let is_like = |id: &NodeId| {
            let (one, other) = (graph.node(*id), graph.node(given));
            one.shape == other.shape && one.dtype == other.dtype && *id != given
        };
        let alike: Vec<NodeId> = graph.ids().filter(is_like).collect();
        if !alike.is_empty() {
            let next = random.of(&alike);
            graph.update(format!("next of {given}"), next, given, Role::Parameter);
        }
    }
    graph
}

/// Inputs for a graph: numbers in [-2, 2), indices below the extent that [`Growing::indices`] gave.
pub(super) fn inputs(graph: &Graph, seed: u64) -> Tensors {
    let mut random = Random::new(!seed);
    let mut inputs = Tensors::new();
    for given in graph.given() {
        let node = graph.node(given.node);
        let Op::Input(name) = &node.op else {
            continue;
        };
        let tensor = match node.dtype {
            Dtype::I64 => {
                let below: usize = name.rsplit('_').next().unwrap().parse().unwrap();
                let each = (0..node.elements()).map(|_| random.below(below) as i64);
                Tensor::i64(node.shape.clone(), each.collect())
            }
            _ => {
                let each = (0..node.elements()).map(|_| random.below(4096) as f32 / 1024.0 - 2.0);
                Tensor::f32(node.shape.clone(), each.collect())
            }
        };
        inputs.insert(name.clone(), tensor);
    }
    inputs
}

impl Growing {
    fn input(&mut self, name: &str) -> NodeId {
        let rank = 1 + self.random.below(4);
        let shape: Vec<usize> = (0..rank).map(|_| self.random.of(&EXTENTS)).collect();
        let id = self
            .graph
            .input(name, &shape, Dtype::F32, Role::Input)
            .unwrap();
        self.values.push(id);
        id
    }

    fn indices(&mut self, shape: &[usize], below: usize) -> NodeId {
        let name = format!("i{}_{below}", self.graph.nodes().len());
        self.graph
            .input(&name, shape, Dtype::I64, Role::Input)
            .unwrap()
    }

    fn shape(&self, id: NodeId) -> Vec<usize> {
        self.graph.node(id).shape.clone()
    }

    fn any(&mut self) -> NodeId {
        // Late values more often, so that graphs get deep.
        let count = self.values.len();
        let from = count - (1 + self.random.below(count));
        let at = from.max(self.random.below(count));
        self.values[at]
    }

    /// Adds one random operation, if its operands fit.
    fn grow(&mut self) {
        let x = self.any();
        let made = match self.random.below(16) {
            0..3 => self.unary(x),
            3..6 => self.binary(x),
            6..9 => self.reduction(x),
            9 => self.matmul(x),
            10 | 11 => self.view(x),
            12 => self.unslice(x),
            13 => self.pick(x),
            14 => self.gather(x),
            _ => self.mask(x),
        };
        if let Some(made) = made
            && self.graph.node(made).elements() <= 600
        {
            self.values.push(made);
        }
    }

    fn unary(&mut self, x: NodeId) -> Option<NodeId> {
        let unary = self.random.of(&[
            Unary::Tanh,
            Unary::Sigmoid,
            Unary::Neg,
            Unary::Abs,
            Unary::Sin,
            Unary::Cos,
        ]);
        self.graph.unary(unary, x).ok()
    }

    fn binary(&mut self, x: NodeId) -> Option<NodeId> {
        let fits: Vec<NodeId> = self.values.clone();
        let start = self.random.below(fits.len());
        let binary = self.random.of(&[
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::Max,
            Binary::Min,
        ]);
        for at in 0..fits.len() {
            let y = fits[(start + at) % fits.len()];
            if let Ok(made) = self.graph.binary(binary, x, y) {
                return self.graph.unary(Unary::Sin, made).ok();
            }
        }
        let factor = [0.5, 0.3, -1.0, 0.0][self.random.below(4)];
        self.graph.scale(x, factor).ok()
    }

    fn reduction(&mut self, x: NodeId) -> Option<NodeId> {
        let rank = self.shape(x).len();
        let wanted = self.random.below(1 << rank);
        let dims: Vec<usize> = (0..rank).filter(|dim| wanted >> dim & 1 == 1).collect();
        if rank == 0 {
            return None;
        }
        if self.random.below(3) == 0 {
            return self.graph.reduce(Reduction::Max, x, &dims).ok();
        }
        let mean = self.graph.mean(x, &dims).ok()?;
        // The mean alone, or the operand less its mean, as in norms.
        match self.random.below(2) {
            0 => Some(mean),
            _ => self.graph.sub(x, mean).ok(),
        }
    }

    fn matmul(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        let rank = shape.len();
        if rank < 2 {
            return None;
        }
        let (a, b) = match self.random.below(3) {
            0 => (x, self.graph.transpose_last(x).ok()?),
            1 => (self.graph.transpose_last(x).ok()?, x),
            _ => {
                let name = format!("w{}", self.graph.nodes().len());
                let shape = [shape[rank - 1], self.random.of(&EXTENTS)];
                let w = self.graph.input(&name, &shape, Dtype::F32, Role::Parameter);
                (x, w.unwrap())
            }
        };
        let product = self.graph.matmul(a, b).ok()?;
        self.graph.unary(Unary::Tanh, product).ok()
    }

    fn view(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        let rank = shape.len();
        match self.random.below(5) {
            4 => {
                let after = self.any();
                self.graph.barrier(x, after).ok()
            }
            0 => {
                let mut order: Vec<usize> = (0..rank).collect();
                for at in (1..rank).rev() {
                    order.swap(at, self.random.below(at + 1));
                }
                self.graph.transpose(x, &order).ok()
            }
            1 if rank > 0 => {
                let dim = self.random.below(rank);
                let start = self.random.below(shape[dim]);
                let step = 1 + self.random.below(2);
                let most = (shape[dim] - start).div_ceil(step);
                let count = 1 + self.random.below(most);
                self.graph.slice(x, dim, start, step, count).ok()
            }
            2 => {
                let to = [&[self.random.of(&EXTENTS)], &shape[..]].concat();
                self.graph.broadcast(x, &to).ok()
            }
            _ => {
                let elements: usize = shape.iter().product();
                let all = 1..=elements;
                let divisors: Vec<usize> = all.filter(|at| elements.is_multiple_of(*at)).collect();
                let outer = self.random.of(&divisors);
                self.graph.reshape(x, &[outer, elements / outer]).ok()
            }
        }
    }

    fn unslice(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        if shape.is_empty() {
            return None;
        }
        let dim = self.random.below(shape.len());
        let (start, step) = (self.random.below(3), 1 + self.random.below(2));
        let extent = start + shape[dim] * step + self.random.below(2);
        self.graph.unslice(x, dim, start, step, extent).ok()
    }

    fn pick(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        let (&last, lead) = shape.split_last()?;
        let indices = self.indices(lead, last);
        self.graph.pick(x, indices).ok()
    }

    fn gather(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        let &rows = shape.first()?;
        let of = [self.random.of(&EXTENTS)];
        let indices = self.indices(&of, rows);
        match self.random.below(2) {
            0 => self.graph.gather(x, indices).ok(),
            _ => {
                let indices = self.indices(&shape[..1], 5);
                self.graph.scatter_add(x, indices, 5).ok()
            }
        }
    }

    fn mask(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        if shape.len() < 2 {
            return None;
        }
        let rows = self.graph.iota(&shape, shape.len() - 2).ok()?;
        let columns = self.graph.iota(&shape, shape.len() - 1).ok()?;
        let mask = self.graph.binary(Binary::LessEqual, columns, rows).ok()?;
        let other = self.graph.constant(-3.0);
        self.graph.select(mask, x, other).ok()
    }
}
