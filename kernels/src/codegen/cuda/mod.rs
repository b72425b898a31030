//! CUDA kernels.
use super::launch::{Parameter, Split};
use crate::common::{CUDA_H, FUNCTIONS_CUH};
use crate::nest::{Bounds, Extents, Nest};
use crate::program::{Geometry, SourceFile};
pub(super) static HEADERS: [SourceFile; 2] = [FUNCTIONS_CUH, CUDA_H];
#[derive(Clone, Debug)]
pub(super) struct Schedule {}
impl Schedule {
    pub(super) fn new(_nest: &Nest, _bounds: Bounds) -> Result<Schedule, String> {
        Err("not yet".to_owned())
    }
    pub(super) fn has_over_rows(&self) -> bool {
        false
    }
    pub(super) fn split(&self, _extents: &Extents) -> Split {
        Split {
            block_rows: 1,
            block_columns: 1,
        }
    }
    pub(super) fn geometry(&self, _blocks: u64) -> Geometry {
        Geometry::blocks(1)
    }
}
pub(super) fn text(
    _nest: &Nest,
    _schedule: &Schedule,
    _parameters: &[Parameter],
    _entry: &str,
) -> Result<String, String> {
    Err("not yet".to_owned())
}
