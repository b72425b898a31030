//! Graphs of known operations and models, with their gradients.

use sweeper_compiler::graph::{
    Binary, Convolution, Graph, GraphError, NodeId, Reduction, Unary, differentiate,
};
use sweeper_program::{Dtype, Phase, Role};

/// A graph and where its backward pass begins.
pub(super) struct Named {
    pub name: &'static str,
    pub graph: Graph,
    pub backward: Option<NodeId>,
}

impl Named {
    pub(super) fn phases(&self) -> &'static [Phase] {
        match self.backward {
            Some(_) => &Phase::ALL,
            None => &[Phase::Forward],
        }
    }
}

struct Builder {
    graph: Graph,
    by: Vec<(NodeId, &'static str)>,
}

impl Builder {
    fn new() -> Self {
        Builder {
            graph: Graph::new(),
            by: vec![],
        }
    }

    /// A given tensor by which there is a gradient.
    fn given(&mut self, name: &'static str, shape: &[usize]) -> NodeId {
        let role = if name == "x" {
            Role::Input
        } else {
            Role::Parameter
        };
        let id = self.graph.input(name, shape, Dtype::F32, role).unwrap();
        self.by.push((id, name));
        id
    }

    /// The graph of `out`, and of gradients from a random gradient of `out`, or from 1 for a loss.
    fn named(mut self, name: &'static str, out: Result<NodeId, GraphError>) -> Named {
        let out = out.unwrap();
        self.graph.output("out", out, Role::Output);
        let shape = self.graph.node(out).shape.clone();
        let seed = (!shape.is_empty()).then(|| {
            let role = Role::Input;
            let seed = self.graph.input("grad_out", &shape, Dtype::F32, role);
            seed.unwrap()
        });
        let by: Vec<NodeId> = self.by.iter().map(|&(id, _)| id).collect();
        let backward = differentiate(&mut self.graph, &[(out, seed)], &by).unwrap();
        for (gradient, (_, name)) in backward.gradients.into_iter().zip(&self.by) {
            let role = Role::Gradient;
            self.graph.output(format!("grad_{name}"), gradient, role);
        }
        Named {
            name,
            graph: self.graph,
            backward: Some(backward.from),
        }
    }
}

pub(super) fn layernorm() -> Named {
    let mut builder = Builder::new();
    let x = builder.given("x", &[4, 8, 20]);
    let (gamma, beta) = (builder.given("gamma", &[20]), builder.given("beta", &[20]));
    let out = builder.graph.layernorm(x, gamma, beta, 1e-5);
    builder.named("layernorm", out)
}

pub(super) fn rmsnorm() -> Named {
    let mut builder = Builder::new();
    let x = builder.given("x", &[4, 8, 20]);
    let gain = builder.given("gain", &[20]);
    let out = builder.graph.rmsnorm(x, gain, 1e-5);
    builder.named("rmsnorm", out)
}

pub(super) fn softmax() -> Named {
    let mut builder = Builder::new();
    let x = builder.given("x", &[12, 20]);
    let out = builder.graph.softmax(x);
    builder.named("softmax", out)
}

pub(super) fn gelu() -> Named {
    let mut builder = Builder::new();
    let x = builder.given("x", &[12, 20]);
    let out = builder.graph.gelu_erf(x);
    builder.named("gelu", out)
}

pub(super) fn cross_entropy() -> Named {
    let mut builder = Builder::new();
    let x = builder.given("x", &[24, 10]);
    let (role, dtype) = (Role::Input, Dtype::I64);
    let labels = builder
        .graph
        .input("labels_10", &[24], dtype, role)
        .unwrap();
    let out = builder.graph.cross_entropy(x, labels);
    builder.named("cross_entropy", out)
}

/// The mean of squared differences, of several blocks.
pub(super) fn mse() -> Named {
    let mut builder = Builder::new();
    let x = builder.given("x", &[40, 30, 50]);
    let target = builder.given("target", &[40, 30, 50]);
    let out = builder.graph.mse(x, target);
    builder.named("mse", out)
}

/// Two totals of one tensor that is also a result, and a value computed from both.
pub(super) fn norms() -> Named {
    let mut graph = Graph::new();
    let x = graph.input("x", &[70, 90], Dtype::F32, Role::Input);
    let build = || -> Result<[NodeId; 3], GraphError> {
        let sine = graph.unary(Unary::Sin, x?)?;
        let square = graph.mul(sine, sine)?;
        let sum = graph.reduce(Reduction::Sum, square, &[0, 1])?;
        let most = graph.reduce(Reduction::Max, sine, &[0, 1])?;
        let norm = graph.unary(Unary::Sqrt, sum)?;
        Ok([sine, most, graph.sub(norm, most)?])
    };
    let [sine, most, apart] = build().unwrap();
    for (name, node) in [("sine", sine), ("most", most), ("apart", apart)] {
        graph.output(name, node, Role::Output);
    }
    Named {
        name: "norms",
        graph,
        backward: None,
    }
}

/// Causal attention of two heads that share keys and values.
pub(super) fn attention() -> Named {
    let mut builder = Builder::new();
    let q = builder.given("x", &[3, 2, 40, 12]);
    let [k, v] = ["k", "v"].map(|name| builder.given(name, &[3, 1, 40, 12]));
    let graph = &mut builder.graph;
    let mut build = || {
        let keys = graph.transpose_last(k)?;
        let products = graph.matmul(q, keys)?;
        let [query, key] = [graph.iota(&[40, 40], 0)?, graph.iota(&[40, 40], 1)?];
        let is_seen = graph.binary(Binary::LessEqual, key, query)?;
        let hidden = graph.constant(-1e30);
        let scores = graph.select(is_seen, products, hidden)?;
        let scores = graph.scale(scores, 0.25)?;
        let weights = graph.softmax(scores)?;
        graph.matmul(weights, v)
    };
    let out = build();
    builder.named("attention", out)
}

/// Attention of few queries to many keys, with values of another width.
pub(super) fn attention_of_few() -> Named {
    let mut builder = Builder::new();
    let q = builder.given("x", &[2, 3, 20]);
    let k = builder.given("k", &[2, 300, 20]);
    let v = builder.given("v", &[2, 300, 9]);
    let graph = &mut builder.graph;
    let mut build = || {
        let keys = graph.transpose_last(k)?;
        let scores = graph.matmul(q, keys)?;
        let weights = graph.softmax(scores)?;
        graph.matmul(weights, v)
    };
    let out = build();
    builder.named("attention_of_few", out)
}

pub(super) fn linear_gelu() -> Named {
    let mut builder = Builder::new();
    let x = builder.given("x", &[3, 8, 12]);
    let (w, b) = (builder.given("w", &[12, 20]), builder.given("b", &[20]));
    let out = builder.graph.linear(x, w, b);
    let out = out.and_then(|out| builder.graph.gelu_tanh(out));
    builder.named("linear_gelu", out)
}

/// Rows enough for several panels of a product.
pub(super) fn tall_linear() -> Named {
    let mut builder = Builder::new();
    let x = builder.given("x", &[3, 1500, 8]);
    let (w, b) = (builder.given("w", &[8, 130]), builder.given("b", &[130]));
    let out = builder.graph.linear(x, w, b);
    let out = out.and_then(|out| builder.graph.gelu_tanh(out));
    builder.named("tall_linear", out)
}

pub(super) fn embedding() -> Named {
    let mut builder = Builder::new();
    let table = builder.given("table", &[10, 6]);
    let (role, dtype) = (Role::Input, Dtype::I64);
    let ids = builder.graph.input("ids_10", &[4, 5], dtype, role).unwrap();
    let gain = builder.given("gain", &[6]);
    let rows = builder.graph.gather(table, ids).unwrap();
    let out = builder.graph.rmsnorm(rows, gain, 1e-5);
    builder.named("embedding", out)
}

/// Pictures enough for two panels of a convolution.
pub(super) fn many_pictures() -> Named {
    let mut graph = Graph::new();
    let mut given =
        |name: &str, shape: &[usize], role| graph.input(name, shape, Dtype::F32, role).unwrap();
    let x = given("x", &[5, 2, 97, 95], Role::Input);
    let w = given("w", &[8, 2, 3, 3], Role::Parameter);
    let bias = given("bias", &[8, 1, 1], Role::Parameter);
    let convolution = Convolution {
        stride: 1,
        padding: 1,
    };
    let out = graph.conv2d(x, w, convolution);
    let out = out.and_then(|out| graph.add(out, bias));
    let out = out.and_then(|out| graph.relu(out)).unwrap();
    graph.output("out", out, Role::Output);
    Named {
        name: "many_pictures",
        graph,
        backward: None,
    }
}

/// A convolution, a batch norm with given statistics, and relu; no gradients.
pub(super) fn conv_bn_relu() -> Named {
    let mut graph = Graph::new();
    let mut given =
        |name: &str, shape: &[usize], role| graph.input(name, shape, Dtype::F32, role).unwrap();
    let x = given("x", &[2, 3, 8, 8], Role::Input);
    let w = given("w", &[4, 3, 3, 3], Role::Parameter);
    let [gamma, beta, mean, var] =
        ["gamma", "beta", "mean", "positive_var"].map(|name| given(name, &[4], Role::Parameter));
    let convolution = Convolution {
        stride: 1,
        padding: 1,
    };
    let mut build = || -> Result<NodeId, GraphError> {
        let mut channels = [gamma, beta, mean, var];
        for channel in &mut channels {
            *channel = graph.reshape(*channel, &[4, 1, 1])?;
        }
        let [gamma, beta, mean, var] = channels;
        let out = graph.conv2d(x, w, convolution)?;
        let normal = graph.group("batch_norm", |graph| {
            let eps = graph.constant(1e-5);
            let var = graph.add(var, eps)?;
            let scale = graph.unary(Unary::Rsqrt, var)?;
            let centred = graph.sub(out, mean)?;
            let normal = graph.mul(centred, scale)?;
            let scaled = graph.mul(normal, gamma)?;
            graph.add(scaled, beta)
        })?;
        graph.relu(normal)
    };
    let out = build().unwrap();
    graph.output("out", out, Role::Output);
    Named {
        name: "conv_bn_relu",
        graph,
        backward: None,
    }
}

/// A step of training two layers, with a squared error and plain gradient descent.
pub(super) fn mlp_step() -> Named {
    let mut graph = Graph::new();
    let (input, parameter) = (Role::Input, Role::Parameter);
    let mut given =
        |name: &str, shape: &[usize], role| graph.input(name, shape, Dtype::F32, role).unwrap();
    let x = given("x", &[16, 32], input);
    let target = given("target", &[16, 10], input);
    let parameters = [
        given("w0", &[32, 24], parameter),
        given("b0", &[24], parameter),
        given("w1", &[24, 10], parameter),
        given("b1", &[10], parameter),
    ];
    let mut build = || -> Result<NodeId, GraphError> {
        let [w0, b0, w1, b1] = parameters;
        let hidden = graph.linear(x, w0, b0)?;
        let hidden = graph.relu(hidden)?;
        let out = graph.linear(hidden, w1, b1)?;
        graph.mse(out, target)
    };
    let loss = build().unwrap();
    graph.output("loss", loss, Role::Output);
    let backward = differentiate(&mut graph, &[(loss, None)], &parameters).unwrap();
    for (at, (parameter, gradient)) in parameters.iter().zip(backward.gradients).enumerate() {
        let step = graph.group("sgd", |graph| {
            let step = graph.scale(gradient, 0.01)?;
            graph.sub(*parameter, step)
        });
        graph.output(format!("after{at}"), step.unwrap(), Role::Parameter);
    }
    Named {
        name: "mlp_step",
        graph,
        backward: Some(backward.from),
    }
}

pub(super) fn all() -> Vec<Named> {
    vec![
        layernorm(),
        rmsnorm(),
        softmax(),
        gelu(),
        cross_entropy(),
        mse(),
        norms(),
        attention(),
        attention_of_few(),
        linear_gelu(),
        embedding(),
        conv_bn_relu(),
        mlp_step(),
    ]
}
