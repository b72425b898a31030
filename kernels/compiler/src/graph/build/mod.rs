//! Adding nodes: operands are broadcast, shapes and types found, operands that don't fit refused.

use super::op::{Binary, Convolution, Op, Reduction, Unary};
use super::{Graph, GraphError, Node, NodeId};
use sweeper_program::Role;
use sweeper_program::tensor::Dtype;

/// No tensor has more elements: their bytes can still be counted, and indices fit 63 bits.
const MOST_ELEMENTS: usize = 1 << 44;

type Added = Result<NodeId, GraphError>;

/// The shape to which `one` and `other` broadcast: ranks are made equal by leading extents of 1,
/// then extents are equal or one extent is 1.
fn broadcast(one: &[usize], other: &[usize]) -> Option<Vec<usize>> {
    let rank = one.len().max(other.len());
    let extent = |shape: &[usize], dim: usize| {
        let missing = rank - shape.len();
        if dim < missing {
            1
        } else {
            shape[dim - missing]
        }
    };
    (0..rank)
        .map(|dim| match (extent(one, dim), extent(other, dim)) {
            (1, extent) | (extent, 1) => Some(extent),
            (one, other) => (one == other).then_some(one),
        })
        .collect()
}

impl Graph {
    fn shape(&self, id: NodeId) -> &[usize] {
        &self.node(id).shape
    }

    /// Adds a node of a shape and type that the caller found to be right.
    fn push(&mut self, op: Op, operands: &[NodeId], shape: Vec<usize>, dtype: Dtype) -> Added {
        self.push_given(op, operands, shape, dtype, None)
    }

    /// As [`Graph::push`], with the role of a given tensor.
    fn push_given(
        &mut self,
        op: Op,
        operands: &[NodeId],
        shape: Vec<usize>,
        dtype: Dtype,
        role: Option<Role>,
    ) -> Added {
        let (name, id) = (op.name(), self.next());
        if shape.contains(&0) {
            return Err(GraphError::Empty {
                op: name,
                node: id,
                shape,
            });
        }
        let elements = shape
            .iter()
            .try_fold(1usize, |product, &extent| product.checked_mul(extent))
            .filter(|&elements| elements <= MOST_ELEMENTS);
        if elements.is_none() {
            return Err(GraphError::TooLarge {
                op: name,
                node: id,
                shape,
            });
        }
        let node = Node {
            op,
            operands: operands.to_vec(),
            shape,
            dtype,
            group: self.open,
        };
        Ok(self.append(node, role))
    }

    fn misfit(
        &self,
        op: &Op,
        one: NodeId,
        other: &[usize],
        reason: impl Into<String>,
    ) -> GraphError {
        self.misfit_of(op, self.shape(one), other, reason)
    }

    fn misfit_of(
        &self,
        op: &Op,
        one: &[usize],
        other: &[usize],
        reason: impl Into<String>,
    ) -> GraphError {
        GraphError::Shapes {
            op: op.name(),
            node: self.next(),
            one: one.to_vec(),
            other: other.to_vec(),
            reason: reason.into(),
        }
    }

    /// Refuses types that no tensor of a graph has.
    fn expect_known(&self, op: &Op, dtype: Dtype) -> Result<(), GraphError> {
        match dtype {
            Dtype::F32 | Dtype::I64 => Ok(()),
            _ => Err(GraphError::Dtype {
                op: op.name(),
                node: self.next(),
                dtype,
            }),
        }
    }

    fn expect_type(&self, op: &Op, operand: NodeId, expected: Dtype) -> Result<(), GraphError> {
        let found = self.node(operand).dtype;
        if found == expected {
            return Ok(());
        }
        Err(GraphError::Type {
            op: op.name(),
            node: self.next(),
            operand,
            found,
            expected,
        })
    }

    /// A given tensor.
    ///
    /// # Errors
    /// A name that another input has, a type other than f32 and i64, no elements or too many.
    pub fn input(&mut self, name: &str, shape: &[usize], dtype: Dtype, role: Role) -> Added {
        let op = Op::Input(name.to_owned());
        self.expect_known(&op, dtype)?;
        let mut given = self.given.iter().map(|given| given.node);
        if let Some(other) = given.find(|&other| self.node(other).op == op) {
            return Err(GraphError::Name {
                name: name.to_owned(),
                node: self.next(),
                other,
            });
        }
        self.push_given(op, &[], shape.to_vec(), dtype, Some(role))
    }

    /// A number, of shape ().
    pub fn constant(&mut self, value: f64) -> NodeId {
        let constant = Node {
            op: Op::Constant(value),
            operands: vec![],
            shape: vec![],
            dtype: Dtype::F32,
            group: self.open,
        };
        self.append(constant, None)
    }

    /// Each element's index along `dim`, of [`Dtype::I64`].
    ///
    /// # Errors
    /// A dimension that the shape does not have, no elements or too many.
    pub fn iota(&mut self, shape: &[usize], dim: usize) -> Added {
        if dim >= shape.len() {
            let reason = "there is no such dimension";
            return Err(self.misfit_of(&Op::Iota { dim }, shape, &[dim], reason));
        }
        self.push(Op::Iota { dim }, &[], shape.to_vec(), Dtype::I64)
    }

    /// A function of each element.
    ///
    /// # Errors
    /// An operand that is not [`Dtype::F32`].
    pub fn unary(&mut self, unary: Unary, x: NodeId) -> Added {
        let op = Op::Unary(unary);
        self.expect_type(&op, x, Dtype::F32)?;
        self.push(op, &[x], self.shape(x).to_vec(), Dtype::F32)
    }

    /// A function of two elements each; operands are broadcast to a common shape.
    ///
    /// # Errors
    /// Shapes that don't broadcast, types that differ, arithmetic on whole numbers.
    pub fn binary(&mut self, binary: Binary, a: NodeId, b: NodeId) -> Added {
        let op = Op::Binary(binary);
        let dtype = match binary.is_comparison() {
            true => self.node(a).dtype,
            false => Dtype::F32,
        };
        self.expect_type(&op, a, dtype)?;
        self.expect_type(&op, b, dtype)?;
        let [a, b] = self.together(&op, [a, b])?;
        self.push(op, &[a, b], self.shape(a).to_vec(), Dtype::F32)
    }

    /// `a` where `mask` is not 0, else `b`; operands are broadcast to a common shape.
    ///
    /// # Errors
    /// Shapes that don't broadcast, operands that are not [`Dtype::F32`].
    pub fn select(&mut self, mask: NodeId, a: NodeId, b: NodeId) -> Added {
        for operand in [mask, a, b] {
            self.expect_type(&Op::Select, operand, Dtype::F32)?;
        }
        let [mask, a, b] = self.together(&Op::Select, [mask, a, b])?;
        self.push(
            Op::Select,
            &[mask, a, b],
            self.shape(a).to_vec(),
            Dtype::F32,
        )
    }

    /// The operands, broadcast to a common shape.
    fn together<const N: usize>(
        &mut self,
        op: &Op,
        operands: [NodeId; N],
    ) -> Result<[NodeId; N], GraphError> {
        let mut common = Vec::new();
        for operand in operands {
            let shape = self.shape(operand);
            common = broadcast(&common, shape)
                .ok_or_else(|| self.misfit_of(op, &common, shape, "extents must be equal, or 1"))?;
        }
        let mut together = operands;
        for operand in &mut together {
            *operand = self.broadcast(*operand, &common)?;
        }
        Ok(together)
    }

    /// The values of `x` in another type; the operand itself where it has that type.
    ///
    /// # Errors
    /// A type other than f32 and i64.
    pub fn cast(&mut self, x: NodeId, dtype: Dtype) -> Added {
        self.expect_known(&Op::Cast(dtype), dtype)?;
        if self.node(x).dtype == dtype {
            return Ok(x);
        }
        self.push(Op::Cast(dtype), &[x], self.shape(x).to_vec(), dtype)
    }

    /// `x` in `shape`: extents of 1 are repeated, leading dimensions added. The operand itself
    /// where it has that shape.
    ///
    /// # Errors
    /// A shape to which `x` does not broadcast.
    pub fn broadcast(&mut self, x: NodeId, shape: &[usize]) -> Added {
        if self.shape(x) == shape {
            return Ok(x);
        }
        if broadcast(self.shape(x), shape).as_deref() != Some(shape) {
            let reason = "extents must be equal, or 1 in the first";
            return Err(self.misfit(&Op::Broadcast, x, shape, reason));
        }
        let missing = shape.len() - self.shape(x).len();
        let padded: Vec<usize> = vec![1; missing]
            .into_iter()
            .chain(self.shape(x).iter().copied())
            .collect();
        let x = self.reshape(x, &padded)?;
        if padded == shape {
            return Ok(x);
        }
        let dtype = self.node(x).dtype;
        self.push(Op::Broadcast, &[x], shape.to_vec(), dtype)
    }

    /// A reduction over `dims`, which are kept with extent 1.
    ///
    /// # Errors
    /// Dimensions that `x` does not have, whole numbers.
    pub fn reduce(&mut self, reduction: Reduction, x: NodeId, dims: &[usize]) -> Added {
        let mut dims = dims.to_vec();
        dims.sort_unstable();
        dims.dedup();
        let op = Op::Reduce {
            reduction,
            dims: dims.clone(),
        };
        self.expect_type(&op, x, Dtype::F32)?;
        let mut shape = self.shape(x).to_vec();
        for &dim in &dims {
            let Some(extent) = shape.get_mut(dim) else {
                return Err(self.misfit(&op, x, &dims, "there is no such dimension"));
            };
            *extent = 1;
        }
        self.push(op, &[x], shape, Dtype::F32)
    }

    /// The elements of `x` in another shape; the operand itself where it has that shape.
    ///
    /// # Errors
    /// Another number of elements.
    pub fn reshape(&mut self, x: NodeId, shape: &[usize]) -> Added {
        if self.shape(x) == shape {
            return Ok(x);
        }
        let elements = |shape: &[usize]| {
            shape
                .iter()
                .try_fold(1usize, |product, &extent| product.checked_mul(extent))
        };
        if elements(self.shape(x)) != elements(shape) {
            let reason = "there must be as many elements";
            return Err(self.misfit(&Op::Reshape, x, shape, reason));
        }
        let dtype = self.node(x).dtype;
        self.push(Op::Reshape, &[x], shape.to_vec(), dtype)
    }

    /// `x` for users that are computed after `after`, such as values that a backward pass computes
    /// again: they are other nodes than those computed from `x` itself.
    pub fn barrier(&mut self, x: NodeId, after: NodeId) -> Added {
        let (shape, dtype) = (self.shape(x).to_vec(), self.node(x).dtype);
        self.push(Op::Barrier, &[x, after], shape, dtype)
    }

    /// Dimensions in another order: dimension `i` of the result is dimension `order[i]` of `x`.
    ///
    /// # Errors
    /// An order that is not a permutation of the dimensions.
    pub fn transpose(&mut self, x: NodeId, order: &[usize]) -> Added {
        let op = Op::Transpose {
            order: order.to_vec(),
        };
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.shape(x).len()) {
            return Err(self.misfit(&op, x, order, "the order must be a permutation"));
        }
        let shape = order.iter().map(|&dim| self.shape(x)[dim]).collect();
        let dtype = self.node(x).dtype;
        self.push(op, &[x], shape, dtype)
    }

    /// The last two dimensions, exchanged.
    ///
    /// # Errors
    /// Fewer than two dimensions.
    pub fn transpose_last(&mut self, x: NodeId) -> Added {
        let rank = self.shape(x).len();
        let mut order: Vec<usize> = (0..rank).collect();
        if rank >= 2 {
            order.swap(rank - 1, rank - 2);
        } else {
            order = vec![1, 0];
        }
        self.transpose(x, &order)
    }

    /// `count` indices of one dimension: `start`, `start + step`, and so on.
    ///
    /// # Errors
    /// Indices that `x` does not have.
    pub fn slice(
        &mut self,
        x: NodeId,
        dim: usize,
        start: usize,
        step: usize,
        count: usize,
    ) -> Added {
        let op = Op::Slice { dim, start, step };
        let mut shape = self.shape(x).to_vec();
        let last = count
            .checked_sub(1)
            .and_then(|steps| steps.checked_mul(step))
            .and_then(|steps| start.checked_add(steps));
        match (shape.get_mut(dim), last) {
            (Some(extent), Some(last)) if last < *extent && step > 0 => *extent = count,
            _ => {
                let asked = [dim, start, step, count];
                return Err(self.misfit(&op, x, &asked, "of dim, start, step, count"));
            }
        }
        let dtype = self.node(x).dtype;
        self.push(op, &[x], shape, dtype)
    }

    /// A tensor of zeros with `extent` indices in one dimension, of which `start`, `start + step`,
    /// and so on hold the elements of `x`.
    ///
    /// # Errors
    /// An extent that has no room for `x`.
    pub fn unslice(
        &mut self,
        x: NodeId,
        dim: usize,
        start: usize,
        step: usize,
        extent: usize,
    ) -> Added {
        let op = Op::Unslice { dim, start, step };
        self.expect_type(&op, x, Dtype::F32)?;
        let mut shape = self.shape(x).to_vec();
        let last = |own: usize| (own - 1).checked_mul(step)?.checked_add(start);
        match shape.get_mut(dim) {
            Some(own) if step > 0 && last(*own).is_some_and(|last| last < extent) => *own = extent,
            _ => {
                let asked = [dim, start, step, extent];
                return Err(self.misfit(&op, x, &asked, "of dim, start, step, extent"));
            }
        }
        self.push(op, &[x], shape, Dtype::F32)
    }

    /// A product of matrices, (.., M, K) and (.., K, N): leading extents are broadcast. One matrix
    /// for all of many is one product with all their rows, so that its gradient is one, too.
    ///
    /// # Errors
    /// Shapes that don't fit, operands that are not [`Dtype::F32`].
    pub fn matmul(&mut self, a: NodeId, b: NodeId) -> Added {
        let op = Op::Matmul;
        self.expect_type(&op, a, Dtype::F32)?;
        self.expect_type(&op, b, Dtype::F32)?;
        let (one, other) = (self.shape(a).to_vec(), self.shape(b).to_vec());
        let (Some((lead_a, &[m, k])), Some((lead_b, &[inner, n]))) =
            (one.split_last_chunk::<2>(), other.split_last_chunk::<2>())
        else {
            return Err(self.misfit(&op, a, &other, "matrices have two dimensions"));
        };
        if k != inner {
            return Err(self.misfit(&op, a, &other, format!("{k} columns meet {inner} rows")));
        }
        if lead_b.is_empty() && !lead_a.is_empty() {
            let rows = lead_a.iter().product::<usize>() * m;
            let a = self.reshape(a, &[rows, k])?;
            let product = self.push(op, &[a, b], vec![rows, n], Dtype::F32)?;
            return self.reshape(product, &[lead_a, &[m, n]].concat());
        }
        let Some(lead) = broadcast(lead_a, lead_b) else {
            return Err(self.misfit(&op, a, &other, "leading extents must be equal, or 1"));
        };
        let full = |rows: usize, columns: usize| [&lead[..], &[rows, columns]].concat();
        let a = self.broadcast_factor(a, &full(m, k))?;
        let b = self.broadcast_factor(b, &full(k, n))?;
        self.push(op, &[a, b], full(m, n), Dtype::F32)
    }

    /// A factor for all of many matrices. A transposed one is broadcast before it is transposed, so
    /// that its gradient is a product of matrices as they lie.
    fn broadcast_factor(&mut self, x: NodeId, shape: &[usize]) -> Added {
        let node = self.node(x);
        let turned = match (&node.op, node.shape.len()) {
            (Op::Transpose { order }, rank @ 2..) => {
                let mut exchanged: Vec<usize> = (0..rank).collect();
                exchanged.swap(rank - 1, rank - 2);
                (*order == exchanged).then(|| node.operands[0])
            }
            _ => None,
        };
        let Some(of) = turned.filter(|_| node.shape != shape) else {
            return self.broadcast(x, shape);
        };
        let mut before = shape.to_vec();
        let rank = before.len();
        before.swap(rank - 1, rank - 2);
        let of = self.broadcast(of, &before)?;
        self.transpose_last(of)
    }

    /// A convolution of `x` (B, I, H, W) with `w` (O, I, R, S).
    ///
    /// # Errors
    /// Shapes that don't fit, a kernel larger than the padded picture, operands that are not
    /// [`Dtype::F32`].
    pub fn conv2d(&mut self, x: NodeId, w: NodeId, shape: Convolution) -> Added {
        let op = Op::Conv2d(shape);
        self.expect_type(&op, x, Dtype::F32)?;
        self.expect_type(&op, w, Dtype::F32)?;
        let other = self.shape(w).to_vec();
        let (&[b, i, h, wide], &[o, channels, r, s]) = (self.shape(x), &other[..]) else {
            return Err(self.misfit(&op, x, &other, "both have four dimensions"));
        };
        if i != channels {
            return Err(self.misfit(&op, x, &other, format!("{i} channels meet {channels}")));
        }
        let extent = |picture: usize, kernel: usize| {
            let padded = shape.padding.checked_mul(2)?.checked_add(picture)?;
            let room = padded.checked_sub(kernel)?;
            Some(room.checked_div(shape.stride)? + 1)
        };
        match (extent(h, r), extent(wide, s)) {
            (Some(height), Some(width)) => {
                self.push(op, &[x, w], vec![b, o, height, width], Dtype::F32)
            }
            _ => Err(self.misfit(
                &op,
                x,
                &other,
                "the kernel must fit, the stride be at least 1",
            )),
        }
    }

    /// The gradients of [`Graph::conv2d`] by `x` and by `w`, from the gradient of its result.
    pub(super) fn conv2d_grad(
        &mut self,
        op: Op,
        grad_out: NodeId,
        other: NodeId,
        like: NodeId,
    ) -> Added {
        self.push(
            op,
            &[grad_out, other],
            self.shape(like).to_vec(),
            Dtype::F32,
        )
    }

    /// Rows of `rows` (V, ..) by `indices`.
    ///
    /// # Errors
    /// Rows without dimensions, indices that are not [`Dtype::I64`].
    pub fn gather(&mut self, rows: NodeId, indices: NodeId) -> Added {
        self.expect_type(&Op::Gather, rows, Dtype::F32)?;
        self.expect_type(&Op::Gather, indices, Dtype::I64)?;
        let Some((_, row)) = self.shape(rows).split_first() else {
            let other = self.shape(indices);
            return Err(self.misfit(&Op::Gather, rows, other, "rows need a dimension"));
        };
        let shape = [self.shape(indices), row].concat();
        self.push(Op::Gather, &[rows, indices], shape, Dtype::F32)
    }

    /// One element of each row of `x` (.., N), by `indices` (..).
    ///
    /// # Errors
    /// Shapes that don't fit, indices that are not [`Dtype::I64`].
    pub fn pick(&mut self, x: NodeId, indices: NodeId) -> Added {
        self.expect_type(&Op::Pick, x, Dtype::F32)?;
        self.expect_type(&Op::Pick, indices, Dtype::I64)?;
        let shape = self.shape(indices).to_vec();
        match self.shape(x).split_last() {
            Some((_, lead)) if lead == shape => {}
            _ => return Err(self.misfit(&Op::Pick, x, &shape, "there is one index a row")),
        }
        self.push(Op::Pick, &[x, indices], shape, Dtype::F32)
    }

    /// Sums of `values` by `indices`, into `rows` rows.
    ///
    /// # Errors
    /// Shapes that don't fit, indices that are not [`Dtype::I64`].
    pub fn scatter_add(&mut self, values: NodeId, indices: NodeId, rows: usize) -> Added {
        self.expect_type(&Op::ScatterAdd, values, Dtype::F32)?;
        self.expect_type(&Op::ScatterAdd, indices, Dtype::I64)?;
        let leading = self.shape(indices);
        let Some(row) = self.shape(values).strip_prefix(leading) else {
            let reason = "there is one index for each row of values";
            return Err(self.misfit(&Op::ScatterAdd, values, leading, reason));
        };
        let shape = [&[rows], row].concat();
        self.push(Op::ScatterAdd, &[values, indices], shape, Dtype::F32)
    }
}

#[cfg(test)]
mod tests;
