//! The functions of one and of two elements, each as one entry: value, rounding, derivative, text
//! and cost.
//!
//! A new one is an entry here and its kernel in `on_device/evaluate.cu`, which judges the others
//! and shares no text with them; and a function in the headers of a language that lacks it.

use std::f64::consts::FRAC_2_SQRT_PI;

use serde::{Deserialize, Serialize};

use super::evaluate::{Array, UnaryRounding, map};
use super::{Graph, GraphError, NodeId};
use sweeper_program::rounding;

/// All that the compiler knows of a function of one element.
pub(crate) struct UnaryEntry {
    /// The word of programs as people read them.
    pub(crate) name: &'static str,
    /// The kernel of `evaluate.cu`.
    pub(crate) kernel: &'static str,
    /// The value.
    pub(crate) value: fn([f64; 1]) -> f64,
    /// The values of a tensor's elements.
    pub(super) each: fn([&Array<f64>; 1]) -> Vec<f64>,
    /// The variance of its result by rounding.
    pub(crate) rounding: UnaryRounding,
    /// The gradient of `x` from the gradient of `y = f(x)`.
    pub(crate) gradient: fn(&mut Graph, Step) -> Result<NodeId, GraphError>,
    /// Its text.
    pub(crate) text: UnaryText,
    /// Cost of one, where an addition costs 1.
    pub(crate) cost: u64,
    /// Computing it again takes longer than loading its result.
    pub(crate) is_expensive: bool,
}

/// The nodes from which a gradient is made.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) x: NodeId,
    pub(crate) y: NodeId,
    /// The gradient of `y`.
    pub(crate) g: NodeId,
}

/// How a function of one element is written.
#[derive(Clone, Copy)]
pub(crate) enum UnaryText {
    /// An operator before its operand.
    Operator(&'static str),
    /// Functions: of `functions.h`, without the prefix by type, and of CUDA.
    Functions { c: &'static str, cuda: &'static str },
}

/// The cost of a transcendental function in additions, about.
const FUNCTION_COST: u64 = 16;

const fn rounded(least: f64) -> UnaryRounding {
    UnaryRounding {
        least,
        is_exponential: false,
        is_sigmoid: false,
    }
}

/// A function that processors have no operation for.
const FUNCTION: UnaryEntry = UnaryEntry {
    name: "",
    kernel: "",
    value: |[x]| x,
    each: |_| Vec::new(),
    rounding: rounded(rounding::FUNCTION),
    gradient: |_, step| Ok(step.g),
    text: UnaryText::Operator(""),
    cost: FUNCTION_COST,
    is_expensive: true,
};

/// A function that is as cheap as loading its result.
const CHEAP: UnaryEntry = UnaryEntry {
    is_expensive: false,
    ..FUNCTION
};

const fn functions(c: &'static str, cuda: &'static str) -> UnaryText {
    UnaryText::Functions { c, cuda }
}

/// `g` times a slope.
fn chained(
    graph: &mut Graph,
    g: NodeId,
    slope: Result<NodeId, GraphError>,
) -> Result<NodeId, GraphError> {
    graph.mul(g, slope?)
}

macro_rules! primitives {
    (
        $(#[$docs:meta])*
        $family:ident: $entry:ident, $prefix:literal;
        $($(#[$doc:meta])* $variant:ident $name:literal {
            value: $value:expr
            $(, $field:ident: $part:expr)*; $rest:expr
        })*
    ) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $family {
            $($(#[$doc])* $variant),*
        }

        impl $family {
            /// All functions.
            pub const ALL: [$family; [$($name),*].len()] = [$($family::$variant),*];

            /// Its entry.
            pub(crate) const fn entry(self) -> &'static $entry {
                match self {
                    $($family::$variant => const {
                        &$entry {
                            name: $name,
                            kernel: concat!($prefix, $name),
                            value: $value,
                            each: |operands| map(operands, $value),
                            $($field: $part,)*
                            ..$rest
                        }
                    },)*
                }
            }

            /// The word of programs as people read them.
            pub const fn name(self) -> &'static str {
                self.entry().name
            }
        }
    };
}

primitives! {
    /// A function of one element.
    Unary: UnaryEntry, "unary_";
    /// `-x`
    Neg "neg" {
        value: |[x]| -x,
        rounding: rounded(0.0),
        gradient: |graph, step| graph.unary(Unary::Neg, step.g),
        text: UnaryText::Operator("-"),
        cost: 1; CHEAP
    }
    /// `|x|`
    Abs "abs" {
        value: |[x]| x.abs(),
        rounding: rounded(0.0),
        gradient: |graph, Step { x, g, .. }| {
            let above = graph.is_positive(x)?;
            let zero = graph.constant(0.0);
            let below = graph.binary(Binary::Less, x, zero)?;
            let sign = graph.sub(above, below)?;
            graph.mul(g, sign)
        },
        text: functions("abs", "fabsf"),
        cost: 1; CHEAP
    }
    /// `e^x`
    Exp "exp" {
        value: |[x]| x.exp(),
        rounding: UnaryRounding {
            is_exponential: true,
            ..rounded(rounding::FUNCTION)
        },
        gradient: |graph, Step { y, g, .. }| graph.mul(g, y),
        text: functions("e_to", "expf"); FUNCTION
    }
    /// Natural logarithm.
    Ln "ln" {
        value: |[x]| x.ln(),
        gradient: |graph, Step { x, g, .. }| graph.binary(Binary::Div, g, x),
        text: functions("ln", "logf"); FUNCTION
    }
    /// Square root.
    Sqrt "sqrt" {
        value: |[x]| x.sqrt(),
        gradient: |graph, Step { y, g, .. }| {
            let half = graph.scale(g, 0.5)?;
            graph.binary(Binary::Div, half, y)
        },
        text: functions("sqrt", "sqrt_fast"); CHEAP
    }
    /// `1 / sqrt(x)`
    Rsqrt "rsqrt" {
        value: |[x]| 1.0 / x.sqrt(),
        gradient: |graph, Step { y, g, .. }| {
            let square = graph.mul(y, y)?;
            let cube = graph.mul(square, y)?;
            let slope = graph.scale(cube, -0.5);
            chained(graph, g, slope)
        },
        text: functions("rsqrt", "rsqrt_fast"); CHEAP
    }
    /// `1 / x`
    Reciprocal "reciprocal" {
        value: |[x]| 1.0 / x,
        gradient: |graph, Step { y, g, .. }| {
            let square = graph.mul(y, y)?;
            let slope = graph.unary(Unary::Neg, square);
            chained(graph, g, slope)
        },
        text: functions("reciprocal", "f_reciprocal"); CHEAP
    }
    /// Hyperbolic tangent.
    Tanh "tanh" {
        value: |[x]| x.tanh(),
        // Near 0 it is a difference, as the error function is.
        rounding: rounded(4.0 * rounding::FUNCTION),
        gradient: |graph, Step { y, g, .. }| {
            let square = graph.mul(y, y)?;
            let slope = graph.one_minus(square);
            chained(graph, g, slope)
        },
        text: functions("tanh", "tanhf"); FUNCTION
    }
    /// The error function, `2 / sqrt(pi)` times the integral of `e^(-t^2)` from 0 to `x`.
    Erf "erf" {
        value: |[x]| libm::erf(x),
        rounding: rounded(4.0 * rounding::FUNCTION),
        gradient: |graph, Step { x, g, .. }| {
            let square = graph.mul(x, x)?;
            let negative = graph.unary(Unary::Neg, square)?;
            let bell = graph.unary(Unary::Exp, negative)?;
            let slope = graph.scale(bell, FRAC_2_SQRT_PI);
            chained(graph, g, slope)
        },
        text: functions("erf", "erff"); FUNCTION
    }
    /// `1 / (1 + e^-x)`
    Sigmoid "sigmoid" {
        value: |[x]| 1.0 / (1.0 + (-x).exp()),
        rounding: UnaryRounding {
            is_sigmoid: true,
            ..rounded(rounding::FUNCTION)
        },
        gradient: |graph, Step { y, g, .. }| {
            let rest = graph.one_minus(y)?;
            let slope = graph.mul(y, rest);
            chained(graph, g, slope)
        },
        text: functions("sigmoid", "f_sigmoid"); FUNCTION
    }
    /// Sine of radians.
    Sin "sin" {
        value: |[x]| x.sin(),
        gradient: |graph, Step { x, g, .. }| {
            let slope = graph.unary(Unary::Cos, x);
            chained(graph, g, slope)
        },
        text: functions("sin", "sinf"); FUNCTION
    }
    /// Cosine of radians.
    Cos "cos" {
        value: |[x]| x.cos(),
        gradient: |graph, Step { x, g, .. }| {
            let sine = graph.unary(Unary::Sin, x)?;
            let slope = graph.unary(Unary::Neg, sine);
            chained(graph, g, slope)
        },
        text: functions("cos", "cosf"); FUNCTION
    }
}

impl Unary {
    /// The value of the function.
    pub fn value(self, x: f64) -> f64 {
        (self.entry().value)([x])
    }
}

/// All that the compiler knows of a function of two elements, but for its derivative: that has a
/// part for each operand (`differentiate/rules.rs`).
pub(crate) struct BinaryEntry {
    /// The word of programs as people read them.
    pub(crate) name: &'static str,
    /// The kernel of `evaluate.cu`.
    pub(crate) kernel: &'static str,
    /// The value.
    pub(crate) value: fn([f64; 2]) -> f64,
    /// The values of two tensors' elements.
    pub(super) each: fn([&Array<f64>; 2]) -> Vec<f64>,
    /// A comparison of whole numbers, and its kernel; none for other functions.
    pub(super) of_whole: Option<(Compare, &'static str)>,
    /// Its text.
    pub(crate) text: BinaryText,
    /// Its result is rounded once.
    pub(crate) is_rounded: bool,
}

/// A comparison of the elements of two tensors of whole numbers.
type Compare = fn([&Array<i64>; 2]) -> Vec<f64>;

/// How a function of two elements is written.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum BinaryText {
    /// An operator between its operands.
    Operator(&'static str),
    /// A function, without the prefix by language and type.
    Function(&'static str),
}

/// An operation of real numbers.
const ARITHMETIC: BinaryEntry = BinaryEntry {
    name: "",
    kernel: "",
    value: |[a, _]| a,
    each: |_| Vec::new(),
    of_whole: None,
    text: BinaryText::Operator(""),
    is_rounded: true,
};

/// One whose result needs no rounding.
const EXACT: BinaryEntry = BinaryEntry {
    is_rounded: false,
    ..ARITHMETIC
};

fn mask(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

primitives! {
    /// A function of two elements.
    Binary: BinaryEntry, "binary_";
    /// `a + b`
    Add "add" { value: |[a, b]| a + b, text: BinaryText::Operator("+"); ARITHMETIC }
    /// `a - b`
    Sub "sub" { value: |[a, b]| a - b, text: BinaryText::Operator("-"); ARITHMETIC }
    /// `a b`
    Mul "mul" { value: |[a, b]| a * b, text: BinaryText::Operator("*"); ARITHMETIC }
    /// `a / b`
    Div "div" { value: |[a, b]| a / b, text: BinaryText::Operator("/"); ARITHMETIC }
    /// The greater one.
    Max "max" {
        value: |[a, b]| if a > b || a.is_nan() { a } else { b },
        text: BinaryText::Function("max"); EXACT
    }
    /// The lesser one.
    Min "min" {
        value: |[a, b]| if a < b || a.is_nan() { a } else { b },
        text: BinaryText::Function("min"); EXACT
    }
    /// 1 where `a = b`, else 0. Operands may be whole numbers; the result is [`Dtype::F32`].
    ///
    /// [`Dtype::F32`]: sweeper_program::tensor::Dtype::F32
    Equal "equal" {
        value: |[a, b]| mask(a == b),
        of_whole: Some((|both| map(both, |[a, b]| mask(a == b)), "whole_equal")),
        text: BinaryText::Operator("=="); EXACT
    }
    /// 1 where `a < b`, else 0; as [`Binary::Equal`].
    Less "less" {
        value: |[a, b]| mask(a < b),
        of_whole: Some((|both| map(both, |[a, b]| mask(a < b)), "whole_less")),
        text: BinaryText::Operator("<"); EXACT
    }
    /// 1 where `a <= b`, else 0; as [`Binary::Equal`].
    LessEqual "less_equal" {
        value: |[a, b]| mask(a <= b),
        of_whole: Some((|both| map(both, |[a, b]| mask(a <= b)), "whole_less_equal")),
        text: BinaryText::Operator("<="); EXACT
    }
}

impl Binary {
    /// True where the result is a mask of ones and zeros, whatever the operands are.
    pub const fn is_comparison(self) -> bool {
        self.entry().of_whole.is_some()
    }

    /// The value of the function.
    pub fn value(self, a: f64, b: f64) -> f64 {
        (self.entry().value)([a, b])
    }
}
