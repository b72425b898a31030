//! Graphs that can't be built, with their errors, and a graph as text.

use super::*;

fn real(graph: &mut Graph, name: &str, shape: &[usize]) -> NodeId {
    graph.input(name, shape, Dtype::F32, Role::Input).unwrap()
}

fn whole(graph: &mut Graph, name: &str, shape: &[usize]) -> NodeId {
    graph.input(name, shape, Dtype::I64, Role::Input).unwrap()
}

/// Why a node over `x` (2, 3), `y` (4) and the whole numbers `i` (2) can't be made.
fn refusal(add: impl Fn(&mut Graph, NodeId, NodeId, NodeId) -> Added) -> String {
    let mut graph = Graph::new();
    let x = real(&mut graph, "x", &[2, 3]);
    let y = real(&mut graph, "y", &[4]);
    let i = whole(&mut graph, "i", &[2]);
    add(&mut graph, x, y, i).unwrap_err().to_string()
}

#[test]
fn operands_must_fit() {
    assert_eq!(
        refusal(|graph, x, y, _| graph.add(x, y)),
        "add as %3: shapes [2, 3] and [4] don't fit: extents must be equal, or 1"
    );
    assert_eq!(
        refusal(|graph, x, y, _| {
            let mask = graph.binary(Binary::Less, x, x)?;
            graph.select(mask, x, y)
        }),
        "select as %4: shapes [2, 3] and [4] don't fit: extents must be equal, or 1"
    );
    assert_eq!(
        refusal(|graph, x, _, _| graph.broadcast(x, &[3])),
        "broadcast as %3: shapes [2, 3] and [3] don't fit: extents must be equal, or 1 in the first"
    );
    assert_eq!(
        refusal(|graph, x, _, _| graph.matmul(x, x)),
        "matmul as %3: shapes [2, 3] and [2, 3] don't fit: 3 columns meet 2 rows"
    );
    assert_eq!(
        refusal(|graph, x, y, _| graph.matmul(x, y)),
        "matmul as %3: shapes [2, 3] and [4] don't fit: matrices have two dimensions"
    );
    let leads = refusal(|graph, _, _, _| {
        let a = real(graph, "a", &[2, 3, 4]);
        let b = real(graph, "b", &[3, 4, 5]);
        graph.matmul(a, b)
    });
    assert!(
        leads.ends_with("leading extents must be equal, or 1"),
        "{leads}"
    );
}

#[test]
fn convolutions_must_fit() {
    let refused = |x: &[usize], w: &[usize], stride, padding| {
        refusal(|graph, _, _, _| {
            let x = real(graph, "picture", x);
            let w = real(graph, "w", w);
            graph.conv2d(x, w, Convolution { stride, padding })
        })
    };
    let text = refused(&[1, 3, 8, 8], &[4, 2, 3, 3], 1, 1);
    assert_eq!(
        text,
        "conv2d as %5: shapes [1, 3, 8, 8] and [4, 2, 3, 3] don't fit: 3 channels meet 2"
    );
    assert!(refused(&[3, 8, 8], &[4, 3, 3, 3], 1, 1).ends_with("both have four dimensions"));
    for (stride, padding) in [(1, 0), (0, 2), (1, usize::MAX)] {
        let text = refused(&[1, 2, 2, 2], &[4, 2, 3, 3], stride, padding);
        assert!(
            text.ends_with("the kernel must fit, the stride be at least 1"),
            "{text}"
        );
    }
}

#[test]
fn views_must_stay_inside() {
    assert_eq!(
        refusal(|graph, x, _, _| graph.reshape(x, &[7])),
        "reshape as %3: shapes [2, 3] and [7] don't fit: there must be as many elements"
    );
    assert_eq!(
        refusal(|graph, x, _, _| graph.transpose(x, &[0, 0])),
        "transpose as %3: shapes [2, 3] and [0, 0] don't fit: the order must be a permutation"
    );
    assert!(refusal(|graph, _, y, _| graph.transpose_last(y)).contains("permutation"));
    assert_eq!(
        refusal(|graph, x, _, _| graph.slice(x, 1, 1, 2, 2)),
        "slice as %3: shapes [2, 3] and [1, 1, 2, 2] don't fit: of dim, start, step, count"
    );
    let big = usize::MAX;
    for [dim, start, step, count] in [[2, 0, 1, 1], [0, 0, 0, 1], [0, 0, 1, 0], [0, big, big, 3]] {
        let text = refusal(|graph, x, _, _| graph.slice(x, dim, start, step, count));
        assert!(text.ends_with("of dim, start, step, count"), "{text}");
        let text = refusal(|graph, x, _, _| graph.unslice(x, dim, start, step, 1));
        assert!(text.ends_with("of dim, start, step, extent"), "{text}");
    }
    assert_eq!(
        refusal(|graph, x, _, _| graph.reduce(Reduction::Sum, x, &[2])),
        "sum as %3: shapes [2, 3] and [2] don't fit: there is no such dimension"
    );
    assert_eq!(
        refusal(|graph, _, _, _| graph.iota(&[2, 3], 2)),
        "iota as %3: shapes [2, 3] and [2] don't fit: there is no such dimension"
    );
}

#[test]
fn indices_must_fit() {
    assert_eq!(
        refusal(|graph, _, y, i| graph.pick(y, i)),
        "pick as %3: shapes [4] and [2] don't fit: there is one index a row"
    );
    assert_eq!(
        refusal(|graph, _, y, i| graph.scatter_add(y, i, 3)),
        "scatter_add as %3: shapes [4] and [2] don't fit: there is one index for each row of values"
    );
    let number = refusal(|graph, _, _, i| {
        let number = graph.constant(1.0);
        graph.gather(number, i)
    });
    assert_eq!(
        number,
        "gather as %4: shapes [] and [2] don't fit: rows need a dimension"
    );
}

#[test]
fn types_must_fit() {
    assert_eq!(
        refusal(|graph, x, _, i| graph.add(x, i)),
        "add as %3: %2 is i64, expected f32"
    );
    assert_eq!(
        refusal(|graph, x, y, _| graph.pick(x, y)),
        "pick as %3: %1 is f32, expected i64"
    );
    let of_whole: [fn(&mut Graph, NodeId) -> Added; 8] = [
        |graph, i| graph.unary(Unary::Neg, i),
        |graph, i| graph.reduce(Reduction::Sum, i, &[0]),
        |graph, i| graph.select(i, i, i),
        |graph, i| graph.matmul(i, i),
        |graph, i| graph.gather(i, i),
        |graph, i| graph.scatter_add(i, i, 2),
        |graph, i| graph.unslice(i, 0, 0, 1, 2),
        |graph, i| {
            graph.conv2d(
                i,
                i,
                Convolution {
                    stride: 1,
                    padding: 0,
                },
            )
        },
    ];
    for add in of_whole {
        let text = refusal(|graph, _, _, i| add(graph, i));
        assert!(text.ends_with("as %3: %2 is i64, expected f32"), "{text}");
    }
    assert!(refusal(|graph, x, _, i| graph.binary(Binary::Equal, x, i)).contains("%2 is i64"));
    for dtype in [Dtype::F64, Dtype::I32] {
        let expected =
            format!("as %3: tensors are f32, or i64 for labels and indices, not {dtype}");
        assert!(refusal(|graph, x, _, _| graph.cast(x, dtype)).ends_with(&expected));
        let input = refusal(|graph, _, _, _| graph.input("z", &[1], dtype, Role::Input));
        assert!(input.ends_with(&expected), "{input}");
    }
}

#[test]
fn sizes_and_names() {
    let input = |name, shape: &[usize]| {
        refusal(|graph, _, _, _| graph.input(name, shape, Dtype::F32, Role::Input))
    };
    assert_eq!(
        input("z", &[usize::MAX, 2]),
        format!(
            "input as %3: a tensor of shape [{}, 2] has too many elements",
            usize::MAX
        )
    );
    assert!(input("z", &[1 << 22, 1 << 23]).contains("too many elements"));
    assert_eq!(
        input("z", &[3, 0]),
        "input as %3: a tensor of shape [3, 0] has no elements"
    );
    assert_eq!(
        input("y", &[1]),
        "input as %3: `y` is the name of %1 already"
    );
    let outer = refusal(|graph, _, _, _| {
        let a = real(graph, "a", &[1 << 30, 1]);
        let b = real(graph, "b", &[1, 1 << 30]);
        graph.add(a, b)
    });
    assert!(outer.starts_with("broadcast as %5: a tensor of shape [1073741824, 1073741824] has"));
    let rows = refusal(|graph, x, _, i| graph.scatter_add(x, i, 0));
    assert!(
        rows.ends_with("a tensor of shape [0, 3] has no elements"),
        "{rows}"
    );
}

#[test]
fn what_changes_nothing_is_no_node() {
    let mut graph = Graph::new();
    let x = real(&mut graph, "x", &[2, 3]);
    assert_eq!(graph.broadcast(x, &[2, 3]), Ok(x));
    assert_eq!(graph.reshape(x, &[2, 3]), Ok(x));
    assert_eq!(graph.cast(x, Dtype::F32), Ok(x));
}

#[test]
fn a_graph_as_text() {
    let mut graph = Graph::new();
    let x = real(&mut graph, "x", &[2, 3]);
    let labels = whole(&mut graph, "labels", &[2]);
    let y = graph.softmax(x).unwrap();
    let own = graph.pick(y, labels).unwrap();
    let turned = graph.transpose(y, &[1, 0]).unwrap();
    let part = graph.slice(turned, 0, 1, 2, 1).unwrap();
    let iota = graph.iota(&[1, 2], 1).unwrap();
    let real = graph.cast(iota, Dtype::F32).unwrap();
    let sum = graph.add(part, real).unwrap();
    graph.output("own", own, Role::Output);
    graph.output("sum", sum, Role::Output);
    assert_eq!(
        graph.to_string(),
        "%0 = input(x) : f32[2, 3]\n\
         %1 = input(labels) : i64[2]\n\
         %2 = amax(%0; dims [1]) : f32[2, 1] in softmax\n\
         %3 = broadcast(%2) : f32[2, 3] in softmax\n\
         %4 = sub(%0, %3) : f32[2, 3] in softmax\n\
         %5 = exp(%4) : f32[2, 3] in softmax\n\
         %6 = sum(%5; dims [1]) : f32[2, 1] in softmax\n\
         %7 = broadcast(%6) : f32[2, 3] in softmax\n\
         %8 = div(%5, %7) : f32[2, 3] in softmax\n\
         %9 = pick(%8, %1) : f32[2]\n\
         %10 = transpose(%8; order [1, 0]) : f32[3, 2]\n\
         %11 = slice(%10; dim 0 from 1 by 2) : f32[1, 2]\n\
         %12 = iota(dim 1) : i64[1, 2]\n\
         %13 = cast(%12) : f32[1, 2]\n\
         %14 = add(%11, %13) : f32[1, 2]\n\
         own = %9\n\
         sum = %14\n"
    );
}
