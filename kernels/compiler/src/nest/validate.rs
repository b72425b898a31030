//! Checks that emitters rely on.

use super::{CrossBlock, Nest, Operand, Over, Store, Stride, Value, ValueId};
use sweeper_program::tensor::Dtype;

impl Nest {
    /// Checks that the nest is well-formed.
    ///
    /// # Errors
    /// A sentence that names the value, operand or store.
    pub fn validate(&self) -> Result<(), String> {
        if self.row_dims == 0 {
            return Err("a nest has at least one dimension of rows".to_owned());
        }
        for (at, operand) in self.operands.iter().enumerate() {
            if operand.rows.len() != self.row_dims {
                return Err(format!(
                    "operand {at} has steps for {} dimensions",
                    operand.rows.len()
                ));
            }
            let has_pairs = operand.columns == Stride::Unit && operand.dtype != Dtype::I64;
            if operand.swaps_pairs && (operand.is_written || !has_pairs) {
                return Err(format!("operand {at} has no pairs of columns to load"));
            }
            if !matches!(operand.dtype, Dtype::F32 | Dtype::I64 | Dtype::Bf16) {
                return Err(format!("operand {at} is {}", operand.dtype));
            }
        }
        let dtypes = self.dtypes()?;
        self.check_last()?;
        for store in &self.stores {
            let operand = self.operands.get(store.operand.0);
            let operand =
                operand.ok_or_else(|| format!("a store to operand {}", store.operand.0))?;
            let dtype = dtypes.get(store.value.0);
            let dtype = dtype.ok_or_else(|| format!("a store of value {}", store.value.0))?;
            let is_rounded = operand.dtype == Dtype::Bf16 && self.may_round(store);
            if !operand.is_written || operand.dtype != *dtype && !is_rounded {
                return Err(format!(
                    "value {} is {dtype}, and stored to operand {}",
                    store.value.0, store.operand.0
                ));
            }
            let varies = self.varies()[store.value.0];
            let is_part =
                self.is_cross_block(store.value) && self.cross_block == CrossBlock::Partials;
            let rows = operand.rows.iter().any(|step| *step != Stride::Broadcast);
            let columns = operand.columns != Stride::Broadcast;
            if !is_part && ((varies.rows && !rows) || (varies.columns && !columns)) {
                return Err(format!(
                    "value {} varies more than operand {}",
                    store.value.0, store.operand.0
                ));
            }
        }
        Ok(())
    }

    /// Whether a store may round f32 elements to bf16: elements of an operand that has columns,
    /// which no work across blocks comes before.
    pub fn may_round(&self, store: &Store) -> bool {
        let has_columns = |operand: &Operand| operand.columns != Stride::Broadcast;
        let operand = self.operands.get(store.operand.0);
        operand.is_some_and(has_columns)
            && store.value.0 < self.values.len()
            && !self.is_cross_block(store.value)
    }

    /// The type of each value.
    ///
    /// # Errors
    /// A value that uses a later one, or one of a type that it is not defined for.
    pub fn dtypes(&self) -> Result<Vec<Dtype>, String> {
        let mut dtypes: Vec<Dtype> = Vec::with_capacity(self.values.len());
        for (at, value) in self.values.iter().enumerate() {
            let of = |id: ValueId| {
                let dtype = dtypes.get(id.0).copied();
                dtype.ok_or_else(|| format!("value {at} uses value {}", id.0))
            };
            let real = |id: ValueId| match of(id)? {
                Dtype::F32 => Ok(()),
                dtype => Err(format!("value {at} uses value {}, which is {dtype}", id.0)),
            };
            dtypes.push(match value {
                Value::Load { operand, index } => {
                    if let Some(index) = index
                        && of(*index)? != Dtype::I64
                    {
                        return Err(format!("value {at} is indexed by value {}", index.0));
                    }
                    match self.operands.get(operand.0) {
                        Some(operand) if operand.swaps_pairs && index.is_some() => {
                            return Err(format!("value {at} looks up a pair of columns"));
                        }
                        Some(operand) if !operand.is_written => match operand.dtype {
                            Dtype::Bf16 => Dtype::F32,
                            dtype => dtype,
                        },
                        _ => return Err(format!("value {at} loads operand {}", operand.0)),
                    }
                }
                Value::Column | Value::Row(_) => Dtype::I64,
                Value::Constant(_) | Value::Scalar(_) => Dtype::F32,
                Value::Unary(_, x) => real(*x).map(|()| Dtype::F32)?,
                Value::Reduce { of: x, .. } => real(*x).map(|()| Dtype::F32)?,
                Value::Binary(binary, a, b) => {
                    if !(binary.is_comparison() && of(*a)? == of(*b)?) {
                        real(*a).and_then(|()| real(*b))?;
                    }
                    Dtype::F32
                }
                Value::Select(mask, a, b) => {
                    for operand in [mask, a, b] {
                        real(*operand)?;
                    }
                    Dtype::F32
                }
                Value::Cast(dtype, x) => of(*x).map(|_| *dtype)?,
            });
        }
        Ok(dtypes)
    }

    /// Whether a value needs the work of all rows: it is a reduction over them, or made from one.
    pub fn is_cross_block(&self, value: ValueId) -> bool {
        match &self.values[value.0] {
            Value::Reduce { over, of, .. } => *over != Over::Columns || self.is_cross_block(*of),
            other => other.operands().any(|operand| self.is_cross_block(operand)),
        }
    }

    fn check_last(&self) -> Result<(), String> {
        for (at, value) in self.values.iter().enumerate() {
            let Some(used) = value
                .operands()
                .find(|operand| self.is_cross_block(*operand))
            else {
                continue;
            };
            if self.cross_block == CrossBlock::Partials {
                return Err(format!("value {at} uses a part, value {}", used.0));
            }
            if matches!(value, Value::Reduce { .. }) {
                return Err(format!(
                    "value {at} reduces what all rows made, value {}",
                    used.0
                ));
            }
        }
        Ok(())
    }
}

impl Value {
    /// The values that it uses.
    pub fn operands(&self) -> impl Iterator<Item = ValueId> + use<> {
        let used = match self {
            Value::Load { index, .. } => [*index, None, None],
            Value::Constant(_) | Value::Scalar(_) | Value::Column | Value::Row(_) => [None; 3],
            Value::Unary(_, x) | Value::Cast(_, x) | Value::Reduce { of: x, .. } => {
                [Some(*x), None, None]
            }
            Value::Binary(_, a, b) => [Some(*a), Some(*b), None],
            Value::Select(mask, a, b) => [Some(*mask), Some(*a), Some(*b)],
        };
        used.into_iter().flatten()
    }
}
