//! A loop nest: one fused kernel before it is text.
//!
//! The fusion passes make a [`Nest`]; the emitters of C and CUDA read it. It holds no threads,
//! registers or vectors, and no sizes: extents, strides and scalars are arguments of a launch, so
//! that one kernel serves all shapes of a canonical shape. Structure (which operands are broadcast,
//! which are contiguous) is compiled in.
//!
//! Iteration space: `row_dims` dimensions of rows, outermost first, then one of columns, the
//! innermost. A value varies over rows, over columns, over both (an *element*), or over neither:
//!
//! * a load varies over the dimensions in which its operand has a stride;
//! * an elementwise function varies over the dimensions of its operands together;
//! * a reduction over columns varies over rows: one value a row. Any value may use it;
//! * a reduction over rows, or over both, is a *cross-block* reduction. Unless
//!   [`Nest::cross_block`] is [`CrossBlock::OneBlock`], only a store may use it: each block of rows
//!   stores one *partial*, and another nest combines them, as a kernel of its own or in the last
//!   block of the same launch. Partials are added in a fixed order, without atomics, so that
//!   results are equal in every run.

mod validate;
/// Tests of the program have this file, too.
#[cfg(test)]
pub(crate) mod interpret;

pub use crate::graph::op::{Binary, Reduction, Unary};
use sweeper_program::tensor::Dtype;

/// The stride of an operand along one dimension, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stride {
    /// 0: one element everywhere.
    Broadcast,
    /// 1: contiguous.
    Unit,
    /// An argument of the launch.
    Dynamic,
}

/// Memory that a nest reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Type of the elements. Those of bf16 are f32 values once they are loaded; values of f32 are
    /// rounded to it when they are stored.
    pub dtype: Dtype,
    /// Strides along the dimensions of rows, outermost first; as many as [`Nest::row_dims`].
    pub rows: Vec<Stride>,
    /// Stride along columns.
    pub columns: Stride,
    /// Whether the operand is written; it is not read then.
    pub is_written: bool,
    /// Each pair of columns is loaded exchanged: column 0 as 1 and 1 as 0, and so on. There is an
    /// even number of them, and they are contiguous.
    pub swaps_pairs: bool,
}

/// An operand, by position in [`Nest::operands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperandId(pub usize);

/// A value, by position in [`Nest::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// The domain of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Over {
    /// The columns of a row: one value a row.
    Columns,
    /// All rows: one value a column. Cross-block.
    Rows,
    /// Everything: one value. Cross-block. Of a value that varies over rows alone, each row counts
    /// once.
    All,
}

/// One step of a computation. All numbers are f32 but where it says otherwise; sums over many
/// elements may be kept more exactly.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An element of an operand; i64 for operands of [`Dtype::I64`], else f32.
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
    /// Selection by mask, a, b: a where the mask is not 0, else b.
    Select(ValueId, ValueId, ValueId),
    /// The number as f32 ([`Dtype::F32`]) or i64 ([`Dtype::I64`], towards zero).
    Cast(Dtype, ValueId),
    /// Many values made one.
    Reduce {
        /// The kind of the reduction.
        reduction: Reduction,
        /// Domain of the reduction.
        over: Over,
        /// The reduced value.
        of: ValueId,
    },
}

/// A value that is written to memory. A value that does not vary over a dimension in which the
/// operand has a stride is written everywhere; the operand has no stride in a dimension over which
/// it was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// The operand to write. Partials of a reduction over rows are written as (partials, columns),
    /// contiguous; partials of a reduction over all as (partials); the operand's own strides are
    /// then ignored.
    pub operand: OperandId,
    /// The value.
    pub value: ValueId,
}

/// The way in which reductions over rows and over all are completed across blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrossBlock {
    /// Each block of rows stores a partial, and another nest combines them. The emitter says how
    /// many there are.
    Partials,
    /// One block reduces all rows: values may be computed from the reductions, and the result is
    /// stored.
    OneBlock,
}

/// One generated kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Nest {
    /// Name of the nest for people: words of its operations.
    pub name: String,
    /// Number of dimensions of rows, at least 1.
    pub row_dims: usize,
    /// Memory.
    pub operands: Vec<Operand>,
    /// Values, operands first.
    pub values: Vec<Value>,
    /// Stores.
    pub stores: Vec<Store>,
    /// The way in which reductions over rows and over all are completed.
    pub cross_block: CrossBlock,
}

/// Over which dimensions a value varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Varies {
    /// Over rows.
    pub rows: bool,
    /// Over columns.
    pub columns: bool,
}

/// Sizes of one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Extents of the dimensions of rows, outermost first.
    pub rows: Vec<u64>,
    /// Extent of columns.
    pub columns: u64,
}

impl Extents {
    /// Number of rows in all.
    pub fn row_count(&self) -> u64 {
        self.rows.iter().product()
    }
}

/// Facts that hold for every launch of a kernel: bounds of the canonical shape, and properties that
/// [`crate::codegen::known`] finds in a launch. A dimension without a bound may have any size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Most columns.
    pub columns: Option<u64>,
    /// Alignment of rows.
    pub alignment: Alignment,
    /// There is one row.
    pub is_single_row: bool,
    /// The rows of a launch stay rows: they do not follow one another in all operands' memory.
    pub keeps_rows: bool,
    /// A full reduction may give each row group one row: its blocks then store no more partials
    /// than one block combines.
    pub partial_per_row_group: bool,
    /// A warp may take several rows at once: at least 64 rows per SM, and a multiple of the block's
    /// rows.
    pub several_rows_per_warp: bool,
    /// Each launch is its program's only one: it overlaps no other.
    pub is_only_launch: bool,
    /// An operand may be written that is read as well, under another pointer: each element by the
    /// iteration that writes it, and before that.
    pub is_in_place: bool,
}

/// Alignment of a launch's rows on a GPU. Each alignment includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alignment {
    /// Unknown: the kernel checks its arguments.
    #[default]
    Unknown,
    /// Row length, strides and pointers are multiples of four elements: float4 loads and stores.
    Float4,
    /// Rows are also whole tiles: no bounds checks.
    FullTiles,
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
                        rows: index.rows
                            || operand.rows.iter().any(|step| *step != Stride::Broadcast),
                        columns: index.columns || operand.columns != Stride::Broadcast,
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

/// An operand of one launch: where it is, and its strides.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// The elements; the view begins with the element of the first row and column.
    pub view: sweeper_program::View,
    /// Strides along the dimensions of rows, in elements, outermost first; the strides of the
    /// structure where it fixes them.
    pub rows: Vec<i64>,
    /// Stride along columns.
    pub columns: i64,
    /// Stride of an index, for operands that are loaded by one.
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
