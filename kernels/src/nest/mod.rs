//! One generated kernel before it is text: loops over rows and columns, and what is computed in them.
//!
//! A [`Nest`] is made by whoever decides what is fused, and read by the emitters of C and CUDA. It says nothing of threads, registers or vectors. It holds no sizes either: extents,
//! steps and numbers are arguments of a launch, so that one kernel serves all shapes of a canonical
//! one; what is structure (which operands are broadcast, which are contiguous) is compiled in.
//!
//! Iteration space: `row_dims` dimensions of rows, outermost first, then one of columns, the innermost.
//! A value varies over rows, over columns, over both (a *cell*), or over nothing:
//!
//! * a load varies over the dimensions in which its operand has a step;
//! * an elementwise function varies as its operands do, together;
//! * a reduction over columns varies over rows: one value a row. Anything may use it;
//! * a reduction over rows, or over both, needs the work of all blocks. Its value is *last*: unless
//!   [`Nest::parts`] is [`Parts::One`], nothing but a store uses it, and the store writes one *part* for
//!   each block of rows, which another nest adds up: that of another kernel, or of the launch's last
//!   block. That keeps results the same from run to run: parts are added in their order, nowhere by atomics.

mod validate;
/// Tests of the program have this file, too.
#[cfg(test)]
pub(crate) mod interpret;

use serde::Serialize;

pub use crate::graph::op::{Binary, Reduction, Unary};
use crate::tensor::Dtype;

/// How far apart neighbours of an operand are along one dimension, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Broadcast: all the same element.
    Zero,
    /// Contiguous.
    One,
    /// An argument of the launch.
    Given,
}

/// Memory that a nest reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Operand {
    /// Type of the elements.
    pub dtype: Dtype,
    /// Steps along the dimensions of rows, outermost first; as many as [`Nest::row_dims`].
    pub rows: Vec<Step>,
    /// Step along columns.
    pub columns: Step,
    /// Whether it is written; it is not read then.
    pub is_written: bool,
}

/// An operand, by position in [`Nest::operands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct OperandId(pub usize);

/// A value, by position in [`Nest::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ValueId(pub usize);

/// What a reduction goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// The columns of a row: one value a row.
    Columns,
    /// All rows: one value a column. Last.
    Rows,
    /// Everything: one value. Last. Of a value that varies over rows alone, each row counts once.
    All,
}

/// One step of a computation. All numbers are f32 but where it says otherwise; sums over many elements
/// may be kept more exactly.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// An element of an operand; i64 for operands of [`Dtype::I64`].
    Load {
        /// The operand.
        operand: OperandId,
        /// An i64 value: that many of the launch's [`Memory::index_step`] further.
        index: Option<ValueId>,
    },
    /// A number that is part of the structure, such as 0, 1 or 0.5.
    Constant(f64),
    /// A number that is an argument of the launch, by position in [`Launch::scalars`].
    Scalar(usize),
    /// Index of the column, i64.
    Column,
    /// Index of the row along one dimension of rows, i64.
    Row(usize),
    /// A function of one value.
    Unary(Unary, ValueId),
    /// A function of two values. Comparisons also of two i64.
    Binary(Binary, ValueId, ValueId),
    /// Of mask, a, b: a where the mask is not 0, else b.
    Select(ValueId, ValueId, ValueId),
    /// The same number as f32 ([`Dtype::F32`]) or i64 ([`Dtype::I64`], towards zero).
    Cast(Dtype, ValueId),
    /// Many values made one.
    Reduce {
        /// How.
        reduction: Reduction,
        /// Over what.
        over: Over,
        /// Of which value.
        of: ValueId,
    },
}

/// A value that is written to memory. A value that does not vary over a dimension in which the operand has a
/// step is written everywhere; the operand has no step in a dimension over which it was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Store {
    /// Where. Parts of a reduction over rows are written as (parts, columns), contiguous; those of one over all
    /// as (parts); the operand's own steps are then ignored.
    pub operand: OperandId,
    /// What.
    pub value: ValueId,
}

/// Into how many parts reductions over rows and over all may be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Parts {
    /// As many as suits the device (the emitter says how many): another nest
    /// adds them up.
    Many,
    /// One: values may be computed from the reductions, and what is stored is the result.
    One,
}

/// One generated kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nest {
    /// What it is called by people: words of its operations.
    pub name: String,
    /// How many dimensions of rows there are, at least 1.
    pub row_dims: usize,
    /// Memory.
    pub operands: Vec<Operand>,
    /// What is computed, in an order in which it can be.
    pub values: Vec<Value>,
    /// What is written.
    pub stores: Vec<Store>,
    /// Into how many parts reductions over rows may be split.
    pub parts: Parts,
}

/// Over which dimensions a value varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Varies {
    /// Over rows.
    pub rows: bool,
    /// Over columns.
    pub columns: bool,
}

/// Sizes of one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Of the dimensions of rows, outermost first.
    pub rows: Vec<u64>,
    /// Of columns.
    pub columns: u64,
}

impl Extents {
    /// How many rows there are in all.
    pub fn row_count(&self) -> u64 {
        self.rows.iter().product()
    }
}

/// What is known of all launches that a kernel is made for: upper bounds of sizes, those of the canonical shape. A
/// dimension without one may have any size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Most columns.
    pub columns: Option<u64>,
    /// How columns fill what they are moved in, as [`crate::codegen::known`] says of a launch.
    pub fill: Fill,
    /// Whether all rows are one, as [`crate::codegen::known`] says of a launch.
    pub is_one_row: bool,
    /// Whether rows are so few that blocks which leave parts of a total may have one for each group, as
    /// [`crate::codegen::known`] says of a launch.
    pub has_few_rows: bool,
    /// Whether rows are so many, and so many times what blocks take, that a group may have several side by side, as
    /// [`crate::codegen::known`] says of a launch.
    pub has_many_rows: bool,
    /// Whether each launch is its program's only one: it overlaps no other.
    pub is_only_launch: bool,
}

/// How a launch's columns fill what a kernel on a GPU moves them in. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fill {
    /// In any way: the kernel looks at its arguments.
    #[default]
    Any,
    /// All can be moved four at a time.
    Quads,
    /// The same, and no lane is left without columns, so that nothing asks for it.
    Lanes,
}

impl Nest {
    /// For each value, over which dimensions it varies.
    pub fn varies(&self) -> Vec<Varies> {
        let mut varies: Vec<Varies> = Vec::with_capacity(self.values.len());
        for value in &self.values {
            let together = |ids: &[ValueId]| {
                ids.iter().fold(Varies::default(), |sum, id| Varies {
                    rows: sum.rows || varies[id.0].rows,
                    columns: sum.columns || varies[id.0].columns,
                })
            };
            let own = match value {
                Value::Load { operand, index } => {
                    let operand = &self.operands[operand.0];
                    let index = together(index.as_slice());
                    Varies {
                        rows: index.rows || operand.rows.iter().any(|step| *step != Step::Zero),
                        columns: index.columns || operand.columns != Step::Zero,
                    }
                }
                Value::Constant(_) | Value::Scalar(_) => Varies::default(),
                Value::Column => Varies {
                    rows: false,
                    columns: true,
                },
                Value::Row(_) => Varies {
                    rows: true,
                    columns: false,
                },
                Value::Unary(_, x) | Value::Cast(_, x) => together(&[*x]),
                Value::Binary(_, a, b) => together(&[*a, *b]),
                Value::Select(mask, a, b) => together(&[*mask, *a, *b]),
                Value::Reduce { over, .. } => match over {
                    Over::Columns => Varies {
                        rows: true,
                        columns: false,
                    },
                    Over::Rows => Varies {
                        rows: false,
                        columns: true,
                    },
                    Over::All => Varies::default(),
                },
            };
            varies.push(own);
        }
        varies
    }
}

/// An operand of one launch: where it is, and its steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// The elements; the first one is that of the first row and column.
    pub view: crate::program::View,
    /// Steps along the dimensions of rows, in elements, outermost first; as the structure says where it
    /// says so.
    pub rows: Vec<i64>,
    /// Step along columns.
    pub columns: i64,
    /// Step of an index, for operands that are loaded by one.
    pub index_step: i64,
}

/// One launch of a nest.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Sizes.
    pub extents: Extents,
    /// Memory for each operand.
    pub operands: Vec<Memory>,
    /// Numbers for [`Value::Scalar`].
    pub scalars: Vec<f32>,
}
