//! Layers that are computed again in the backward pass.

use super::*;
use sweeper_compiler::graph::{NodeId, Op, evaluate_nodes, saved};

/// Sizes of a model of so many layers.
fn sizes(layers: usize) -> String {
    format!("batch=2 context=8 vocabulary=16 d_model=8 d_ff=12 heads=2 layers={layers}")
}

fn built(words: &str) -> Built {
    Evaluated::build(&transformer(words).unwrap()).unwrap()
}

#[test]
fn answers_and_useful_operations_are_those_without() {
    for loss in ["sum", "cross_entropy"] {
        let [without, with] = ["none", "layer"].map(|checkpoint| {
            let words = format!("{} loss={loss} checkpoint={checkpoint}", sizes(3));
            problem(transformer(&words).unwrap())
        });
        let inputs = without.generate(&InputKey([5; 32]));
        let [expected, found] = [&without, &with].map(|problem| {
            let graph = &problem.built().graph;
            let nodes: Vec<NodeId> = graph.outputs().iter().map(|output| output.node).collect();
            let names = graph.outputs().iter().map(|output| output.name.clone());
            let values = evaluate_nodes(graph, &inputs, &nodes).unwrap();
            names.zip(values).collect::<Tensors>()
        });
        assert!(expected.len() > 9 * 3 && expected == found);
        for phase in [Phase::Forward, Phase::Both, Phase::Step] {
            assert_eq!(with.work(phase), without.work(phase), "{phase}");
        }
    }
}

/// Of each layer its input alone is kept, and each layer is computed again behind a barrier.
#[test]
fn layers_keep_their_inputs_alone() {
    let kept = |layers, checkpoint| {
        let Built { graph, backward } =
            built(&format!("{} checkpoint={checkpoint}", sizes(layers)));
        let barriers = graph.nodes().iter().filter(|node| node.op == Op::Barrier);
        let barriers = barriers.count();
        let saved = saved(&graph, backward.unwrap());
        let elements = saved.iter().map(|&id| graph.node(id).elements());
        (elements.sum::<usize>(), barriers)
    };
    let [two, six] = [2, 6].map(|layers| kept(layers, "layer"));
    assert_eq!([two.1, six.1], [2, 6]);
    assert_eq!(six.0 - two.0, 4 * 2 * 8 * 8);
    let without = kept(6, "none");
    assert!(without.1 == 0 && without.0 > 5 * six.0);
}
