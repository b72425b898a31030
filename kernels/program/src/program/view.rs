//! Parts of buffers.

use serde::Serialize;

use super::{BufferId, Index};

/// A contiguous part of a buffer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// The buffer.
    pub buffer: BufferId,
    /// First element.
    pub offset: Index,
    /// Number of elements.
    pub len: usize,
    /// The bytes that a launch reads and writes, where these are not the whole view: a view spans
    /// all elements between its first and its last, a launch touches some of them.
    pub touched: Option<Touched>,
    /// The rows that a launch touches nothing between, where there are such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Rows>,
}

/// Rows in memory, the first of which begins with the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rows {
    /// Elements of a row.
    pub len: usize,
    /// Elements from one row to the next.
    pub step: usize,
}

impl View {
    /// `len` elements from `offset` on, all of them touched.
    pub const fn new(buffer: BufferId, offset: Index, len: usize) -> Self {
        View {
            buffer,
            offset,
            len,
            touched: None,
            rows: None,
        }
    }

    /// The same view, of which a launch touches rows alone.
    pub const fn in_rows(mut self, rows: Rows) -> Self {
        self.rows = Some(rows);
        self
    }

    /// Whether the views may have an element in common that a launch touches, where they begin at
    /// these elements of one buffer.
    pub fn meets(&self, begin: i64, other: &View, other_begin: i64) -> bool {
        let ends = [begin + self.len as i64, other_begin + other.len as i64];
        if begin >= ends[1] || other_begin >= ends[0] {
            return false;
        }
        match (self.rows, other.rows) {
            (Some(rows), Some(others)) if rows.step == others.step => {
                // From the beginning of a row to that of the other view's next row.
                let apart = (other_begin - begin).rem_euclid(rows.step as i64) as usize;
                apart < rows.len || apart + others.len > rows.step
            }
            _ => true,
        }
    }

    /// The same view, of which a launch touches `elements`.
    pub fn touching(mut self, elements: Index) -> Self {
        let is_updated = self.touched.is_some_and(|touched| touched.is_updated);
        self.touched = Some(Touched {
            elements,
            is_updated,
        });
        self
    }

    /// The same view, of which a launch reads and writes `elements`.
    pub fn updating(mut self, elements: Index) -> Self {
        self.touched = Some(Touched {
            elements,
            is_updated: true,
        });
        self
    }
}

/// How much of a view a launch touches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Touched {
    /// Elements.
    pub elements: Index,
    /// Whether elements that are written are read before.
    pub is_updated: bool,
}
