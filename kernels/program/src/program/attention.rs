//! Attention as one call of a library.

use serde::Serialize;

use super::library::Scale;

/// Columns, at most.
const MOST_COLUMNS: usize = 128;

/// Scores of a tile along queries and keys: parts of tiles have whole tiles of scratch memory.
const TILE: usize = 128;

/// Scratch memory of a call beside sums and scores, in bytes: cuDNN 9.14 takes 256.
const OTHER_SCRATCH_BYTES: usize = 1 << 20;

/// How the rows of an operand lie in memory, in elements. Columns of a row are beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Heads {
    /// From one sequence of the batch to the next.
    pub batch_step: usize,
    /// From one head to the next; 0 for one that all heads share.
    pub head_step: usize,
    /// From one row to the next.
    pub row_step: usize,
}

impl Heads {
    /// Rows without gaps, of all heads of a sequence one after the other.
    pub const fn dense(heads: usize, rows: usize, columns: usize) -> Self {
        Heads {
            batch_step: heads * rows * columns,
            head_step: rows * columns,
            row_step: columns,
        }
    }

    /// Elements from the first to the last of (batch, heads, rows, columns).
    pub fn span(&self, [batch, heads, rows, columns]: [usize; 4]) -> usize {
        let last = |extent: usize, step: usize| extent.saturating_sub(1) * step;
        last(batch, self.batch_step)
            + last(heads, self.head_step)
            + last(rows, self.row_step)
            + columns
    }

    /// Whether each row begins at a multiple of 16 bytes, if the first one does.
    pub const fn is_aligned(&self) -> bool {
        let Heads {
            batch_step,
            head_step,
            row_step,
        } = *self;
        batch_step.is_multiple_of(Attention::ALIGNMENT)
            && head_step.is_multiple_of(Attention::ALIGNMENT)
            && row_step.is_multiple_of(Attention::ALIGNMENT)
    }
}

/// What is computed of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionPass {
    /// `out`.
    Forward {
        /// Whether `log_sum_exp` is written, too: the logarithm of each row's sum of exponentials.
        with_sums: bool,
    },
    /// All three gradients.
    Gradients {
        /// The gradient by `out`.
        grad_out: Heads,
        /// `out`.
        out: Heads,
    },
}

/// `out = softmax(scale q k^T) v` of each head, or its gradients. On GPUs.
///
/// Arguments of the launch, of shapes (batch, heads, queries or keys, width):
/// * [`AttentionPass::Forward`]: `q`, `k`, `v`, read; `out` and, if it is asked for,
///   `log_sum_exp`, (batch, heads, queries), written;
/// * [`AttentionPass::Gradients`]: `q`, `k`, `v`, `grad_out`, `log_sum_exp`, `out`, read; `grad_q`,
///   `grad_k`, `grad_v`, written;
///
/// then scratch memory ([`super::Library::scratch`]). All but `log_sum_exp`, which is f32, are
/// bf16 in memory: cuDNN 9.14 accepts an `out` in f32, and stores bf16 there. What is written is
/// dense. Sums are in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Attention {
    /// What is computed.
    pub pass: AttentionPass,
    /// Sequences.
    pub batch: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Rows of `q` and `out`.
    pub queries: usize,
    /// Rows of `k` and `v`.
    pub keys: usize,
    /// Columns of all.
    pub width: usize,
    /// The factor of the scores.
    pub scale: Scale,
    /// Whether a query sees only the keys up to its own position.
    pub is_causal: bool,
    /// How queries lie.
    pub q: Heads,
    /// How keys lie. A forward pass may have one head for all of the queries'.
    pub k: Heads,
    /// How values lie, as many heads as keys have.
    pub v: Heads,
}

impl Attention {
    /// Columns of matrices, their first elements and their steps are multiples of this: 16 bytes in
    /// bf16.
    pub const ALIGNMENT: usize = 8;

    /// Why the library does not take a matrix that lies otherwise, in words.
    pub const MISALIGNED: &str =
        "cuDNN's attention takes matrices whose rows begin at multiples of 16 bytes";

    /// Why the library does not have it, in words.
    pub fn refusal(&self) -> Option<String> {
        let width = self.width;
        let unit = Self::ALIGNMENT;
        if !width.is_multiple_of(unit) || width > MOST_COLUMNS {
            return Some(format!(
                "cuDNN's attention takes widths that are a multiple of {unit} up to \
                 {MOST_COLUMNS}, not {width}"
            ));
        }
        let matrices = [self.q, self.k, self.v].into_iter().chain(match self.pass {
            AttentionPass::Forward { .. } => None,
            AttentionPass::Gradients { grad_out, .. } => Some(grad_out),
        });
        if matrices.into_iter().any(|lies| !lies.is_aligned()) {
            return Some(Self::MISALIGNED.to_owned());
        }
        let is_forward = matches!(self.pass, AttentionPass::Forward { .. });
        let is_shared = |lies: Heads| self.heads > 1 && lies.head_step == 0;
        if is_shared(self.k) != is_shared(self.v) || (self.shares_keys() && !is_forward) {
            let reason = "cuDNN's gradients of attention take as many heads of keys and values as \
                          of queries here";
            return Some(reason.into());
        }
        None
    }

    /// Whether all heads of queries have the keys and values of one.
    pub fn shares_keys(&self) -> bool {
        self.heads > 1 && self.k.head_step == 0
    }

    /// Heads of keys and values.
    pub fn key_heads(&self) -> usize {
        match self.shares_keys() {
            true => 1,
            false => self.heads,
        }
    }

    /// Extents of queries, `out` and their gradients.
    pub fn of_queries(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.width]
    }

    /// Extents of keys, values and their gradients.
    pub fn of_keys(&self) -> [usize; 4] {
        [self.batch, self.key_heads(), self.keys, self.width]
    }

    /// Rows of queries of all heads: elements of `log_sum_exp`.
    pub fn rows(&self) -> usize {
        self.batch * self.heads * self.queries
    }

    /// Elements that operands span which are read, in order.
    pub(super) fn reads(&self) -> Vec<usize> {
        let [queries, keys] = [self.of_queries(), self.of_keys()];
        let mut reads = vec![self.q.span(queries), self.k.span(keys), self.v.span(keys)];
        if let AttentionPass::Gradients { grad_out, out } = self.pass {
            reads.extend([grad_out.span(queries), self.rows(), out.span(queries)]);
        }
        reads
    }

    /// Elements of operands that are written, in order.
    pub(super) fn writes(&self) -> Vec<usize> {
        let [queries, keys] = [self.of_queries(), self.of_keys()];
        let [queries, keys] = [queries, keys].map(|extents| extents.iter().product());
        match self.pass {
            AttentionPass::Forward { with_sums: false } => vec![queries],
            AttentionPass::Forward { with_sums: true } => vec![queries, self.rows()],
            AttentionPass::Gradients { .. } => vec![queries, keys, keys],
        }
    }

    /// Bytes at the beginning of a launch's scratch memory that hold a number in f32 for each row
    /// of queries, for gradients: a multiple of 256.
    pub fn sums_bytes(&self) -> usize {
        match self.pass {
            AttentionPass::Forward { .. } => 0,
            AttentionPass::Gradients { .. } => (4 * self.rows()).next_multiple_of(256),
        }
    }

    /// Bytes of scratch memory. For gradients that have the same bits every time cuDNN keeps one
    /// number in bf16 for each score there.
    pub(super) fn scratch_bytes(&self) -> usize {
        let scores = match self.pass {
            AttentionPass::Forward { .. } => 0,
            AttentionPass::Gradients { .. } => {
                let [queries, keys] =
                    [self.queries, self.keys].map(|rows| rows.next_multiple_of(TILE));
                2 * self.batch * self.heads * queries * keys
            }
        };
        self.sums_bytes() + scores + OTHER_SCRATCH_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Library;
    use crate::target::Target;

    fn gradients() -> Attention {
        let lies = Heads::dense(3, 200, 64);
        Attention {
            pass: AttentionPass::Gradients {
                grad_out: lies,
                out: lies,
            },
            batch: 2,
            heads: 3,
            queries: 200,
            keys: 200,
            width: 64,
            scale: Scale::default(),
            is_causal: false,
            q: lies,
            k: lies,
            v: lies,
        }
    }

    #[test]
    fn operands_are_as_long_as_they_lie() {
        let elements = 2 * 3 * 200 * 64;
        let call = gradients();
        let sums = 2 * 3 * 200;
        let lens = Library::Attention(call).operand_lens();
        let [q, k, v, grad_out] = [elements; 4];
        assert_eq!(
            lens,
            [&[q, k, v, grad_out, sums, elements], &[elements; 3][..]].concat()
        );
        // Rows of all heads beside each other.
        let beside = Heads {
            batch_step: 200 * 192,
            head_step: 64,
            row_step: 192,
        };
        assert_eq!(beside.span(call.of_queries()), elements);
        let shared = Heads {
            head_step: 0,
            ..Heads::dense(1, 200, 64)
        };
        let forward = Attention {
            pass: AttentionPass::Forward { with_sums: true },
            k: shared,
            v: shared,
            ..call
        };
        let of_keys = 2 * 200 * 64;
        let lens = Library::Attention(forward).operand_lens();
        assert_eq!(lens, [elements, of_keys, of_keys, elements, sums]);
        assert_eq!(Library::Attention(forward).read_count(), 3);
    }

    #[test]
    fn gradients_have_scratch_memory_for_all_scores() {
        let gpu = Target::Cuda {
            arch: "sm_90a".to_owned(),
        };
        let bytes = |call| 4 * Library::Attention(call).scratch(&gpu);
        let call = gradients();
        let scores = 2 * 2 * 3 * 256 * 256;
        assert!(call.sums_bytes() >= 4 * 2 * 3 * 200 && call.sums_bytes().is_multiple_of(256));
        assert!(bytes(call) >= call.sums_bytes() + scores);
        let forward = Attention {
            pass: AttentionPass::Forward { with_sums: false },
            ..call
        };
        assert!(bytes(forward) + scores <= bytes(call) && forward.sums_bytes() == 0);
    }

    #[test]
    fn rows_begin_at_multiples_of_16_bytes() {
        let call = gradients();
        assert_eq!(call.refusal(), None);
        let narrow = Heads {
            row_step: 100,
            ..call.q
        };
        let refusal = Attention { q: narrow, ..call }.refusal().unwrap();
        assert!(refusal.contains("16 bytes"), "{refusal}");
    }
}
