//! Sizes of shared memory and of kept values of the CUDA kernels. The sources name the functions
//! here.

use std::borrow::Cow;

use crate::semicrf::sizes::{Semiring, Sizes};
use sweeper_program::KernelSource;
use sweeper_program::workload::{CanonicalShape, Capabilities, Refusal};

/// Least room for labels.
const LEAST_WIDTH: usize = 16;
/// Most: the threads of a block.
const MOST_WIDTH: usize = 1024;
/// `CHUNKS` and `FIRST_BLOCKS` in edges.cuh.
const CHUNKS: usize = 8;
const FIRST_BLOCKS: usize = 16;
/// Blocks of edges for more labels are not copied ahead of time: `IS_STAGED`.
const MOST_STAGED_WIDTH: usize = 32;
/// Cells that a thread has room for beside all else.
const MOST_HELD: usize = 8;
/// Threads that make tables, `TABLERS` in scan.cu, and copy edges.
const PORTERS: usize = 192;
/// `SCORES_AHEAD` in sequence.cuh.
const SCORES_AHEAD: usize = 8;
/// `THREADS` in gradients.cu; in edge_gradients.cu twice that.
const GRADIENT_THREADS: usize = 128;
/// `TILE` in gradients.cu.
const TILE: usize = 64;
/// Cells move to global memory if they and their buffers are larger, in bytes.
const MOST_SHARED_CELLS: usize = 96 << 10;

pub(super) struct Layout {
    sizes: Sizes,
    /// Longest duration that fits into the longest sequence.
    pub(super) longest: usize,
    /// `WIDTH`: room for labels, a power of two.
    width: usize,
    /// Shared memory of a block at most, in bytes.
    most_shared: usize,
}

impl Layout {
    pub(super) fn new(
        sizes: &Sizes,
        canonical: &CanonicalShape,
        arch: &str,
    ) -> Result<Self, Refusal> {
        // Kernels come in a few widths. Without a bound on labels, the least that fits is taken.
        let bound = canonical.bound("C").map(|bound| bound as usize);
        let bound = bound.filter(|&bound| bound >= sizes.c);
        let width = bound
            .unwrap_or(sizes.c)
            .next_power_of_two()
            .max(LEAST_WIDTH);
        if width > MOST_WIDTH {
            return Err(Refusal::Unavailable(format!(
                "a block has {MOST_WIDTH} threads, one a label: not {width}"
            )));
        }
        let mut layout = Layout {
            sizes: *sizes,
            longest: sizes.longest().min(sizes.last_end()).max(1),
            width,
            most_shared: Capabilities::of(arch).shared_bytes,
        };
        if layout.is_staged() && layout.chunk_durations() == 0 {
            layout.width = 2 * MOST_STAGED_WIDTH;
        }
        Ok(layout)
    }

    fn has_entropy(&self) -> bool {
        self.sizes.semiring == Semiring::Entropy
    }

    /// True if edges depend on the duration and both labels: `IS_FULL`.
    fn is_full(&self) -> bool {
        !self.sizes.is_decomposed() || self.sizes.transition_per_duration
    }

    fn is_staged(&self) -> bool {
        !self.sizes.is_decomposed() && self.width <= MOST_STAGED_WIDTH
    }

    /// Threads that load and store the terms that others sum.
    pub(super) fn porters(&self) -> usize {
        if self.is_staged() {
            PORTERS
        } else {
            self.chain()
        }
    }

    /// Threads that go from step to step: `CHAIN`.
    fn chain(&self) -> usize {
        self.width.max(32)
    }

    /// The macros of the kernels.
    pub(super) fn defines(&self, entry: &str) -> Vec<(Cow<'static, str>, String)> {
        let form = match (
            self.sizes.is_decomposed(),
            self.sizes.transition_per_duration,
        ) {
            (false, _) => "MATERIALIZED",
            (true, false) => "FIXED",
            (true, true) => "PER_DURATION",
        };
        let semiring = match self.sizes.semiring {
            Semiring::Log => "LOG",
            Semiring::Max => "MAX",
            Semiring::Entropy => "ENTROPY",
        };
        let mut defines = vec![
            KernelSource::define("FORM", form),
            KernelSource::define("SEMIRING", semiring),
            KernelSource::define("WIDTH", self.width),
        ];
        if entry == "semicrf_scan" {
            // Two kernels: one for cells that fit into shared memory, and one for others.
            defines.push(KernelSource::define(
                "CELLS_ARE_SHARED",
                self.shares_cells(),
            ));
            defines.push(KernelSource::define("HELD", self.held()));
        }
        defines
    }

    /// `PLANES` rows of labels.
    pub(super) fn row_floats(&self) -> usize {
        let sides = if self.is_full() { 1 } else { 2 };
        self.sizes.c * sides * if self.has_entropy() { 2 } else { 1 }
    }

    /// Boundaries between checkpoints. A checkpoint holds K C cells, an interval C floats a
    /// boundary: their sum is least at about sqrt(T K). Not less than the longest segment.
    pub(super) fn interval(&self) -> usize {
        let product = (self.sizes.last_end() * self.longest) as f64;
        (product.sqrt().ceil() as usize).max(self.longest).max(2)
    }

    /// Floats of a cell.
    fn one_cell_floats(&self) -> usize {
        if self.has_entropy() { 4 } else { 2 }
    }

    fn cell_floats(&self) -> usize {
        self.longest * self.width * self.one_cell_floats()
    }

    /// `HELD`: cells that a thread has in registers, a power of two; 0 where a thread has too many
    /// cells, or where each cell has edges of its own.
    fn held(&self) -> usize {
        let (chain, most) = (self.chain(), self.most_threads());
        if self.is_full() || self.roles_share_threads() {
            return 0;
        }
        let pushers = (most - 2 * chain) / chain * chain;
        let held = (self.longest * self.width).div_ceil(pushers);
        match held.next_power_of_two() {
            held @ ..=MOST_HELD => held,
            _ => 0,
        }
    }

    /// Cells and biases of a block where they are not shared memory.
    pub(super) fn global_cell_floats(&self) -> usize {
        let cells = match self.held() {
            0 => self.cell_floats(),
            _ => 0,
        };
        cells + self.bias_floats()
    }

    /// `bias_rows` in held.cuh, or one for each duration.
    fn bias_floats(&self) -> usize {
        if self.is_full() {
            return 0;
        }
        let more = match self.held() {
            0 => 0,
            held => held * (self.pushers() / self.width),
        };
        (self.longest + more) * self.width
    }

    /// True if cells fit into shared memory.
    pub(super) fn shares_cells(&self) -> bool {
        4 * self.global_cell_floats() <= MOST_SHARED_CELLS.min(self.most_shared / 2)
    }

    /// `STATE_HEAD`, `STATE_ROWS` and the cells.
    pub(super) fn state_floats(&self) -> usize {
        4 + 3 * self.chain() + self.cell_floats()
    }

    /// `board_of` in state.cuh.
    fn board_floats(&self) -> usize {
        let (chain, full) = (self.chain(), self.is_full());
        let entropy = usize::from(self.has_entropy());
        let tables = usize::from(full && self.width <= 64);
        let published = if full {
            2
        } else {
            4 + 2 * entropy + SCORES_AHEAD
        };
        let due = match self.held() {
            0 => 0,
            _ => 2 * self.one_cell_floats(),
        };
        let rows = 1 + 3 * entropy + 4 + published + 16 + 4 + due;
        chain * rows + 4 + 4 + 64 + tables * 2 * self.width * self.width
    }

    /// Floats of a block of edges that is copied ahead of time: `Stage::pitch`.
    fn pitch(&self) -> usize {
        let size = self.sizes.c * self.sizes.c;
        if size.is_multiple_of(4) {
            size
        } else {
            (size + 6) / 4 * 4
        }
    }

    /// Shared memory of a block without chunks of edges.
    fn fixed_shared_bytes(&self) -> usize {
        let cells = if self.shares_cells() {
            self.global_cell_floats()
        } else {
            0
        };
        4 * (self.board_floats() + cells)
    }

    /// Durations of a chunk of edges; 0 where edges are not copied ahead of time.
    pub(super) fn chunk_durations(&self) -> usize {
        if !self.is_staged() {
            return 0;
        }
        let used = self.fixed_shared_bytes() + 4 * FIRST_BLOCKS * self.pitch();
        let room = self.most_shared.saturating_sub(used) / (4 * CHUNKS * self.pitch());
        room.min(self.longest.saturating_sub(1).max(1))
    }

    pub(super) fn scan_shared_bytes(&self) -> u32 {
        let chunk = self.chunk_durations();
        let staged = match chunk {
            0 => 0,
            _ => 4 * self.pitch() * (FIRST_BLOCKS + CHUNKS * chunk),
        };
        (self.fixed_shared_bytes() + staged) as u32
    }

    /// `MOST_THREADS` in scan.cu.
    fn most_threads(&self) -> usize {
        match self.width {
            17.. if self.is_staged() => 768,
            ..=64 => 512,
            _ => MOST_WIDTH,
        }
    }

    /// `ROLES_SHARE_THREADS` in scan.cu.
    fn roles_share_threads(&self) -> bool {
        self.width >= 512
    }

    /// The chain's threads, porters, and pushers in whole rows of labels.
    pub(super) fn scan_threads(&self) -> u32 {
        let others = match self.roles_share_threads() {
            true => 0,
            false => self.porters() + self.pushers(),
        };
        (self.chain() + others) as u32
    }

    /// Threads that sum, in whole rows of labels.
    fn pushers(&self) -> usize {
        let chain = self.chain();
        let durations = match self.chunk_durations() {
            // A row of cells belongs to a thread a label, also while it is complete.
            0 if self.held() > 0 => self.longest,
            0 => self.longest - 1,
            chunk => chunk,
        };
        let most = (self.most_threads() - chain - self.porters()) / chain * chain;
        let labels = match self.is_staged() {
            true => self.sizes.c,
            false => self.width,
        };
        let wanted = (durations * labels).next_multiple_of(chain);
        wanted.clamp(chain, most)
    }

    /// Transition tables: 1, or one for each duration.
    fn tables(&self) -> usize {
        if self.sizes.transition_per_duration {
            self.longest
        } else {
            1
        }
    }

    /// Elements of transition and bias that a part holds.
    pub(super) fn part_elements(&self) -> usize {
        let Sizes { c, .. } = self.sizes;
        let biases = if self.is_full() { 0 } else { self.longest * c };
        self.tables() * c * c + biases
    }

    /// Boundaries of a part: whole tiles, and no more parts than keep a GPU busy.
    pub(super) fn part_positions(&self, positions: usize) -> usize {
        let parts = ((1 << 22) / self.part_elements().max(1)).clamp(1, 1024);
        let chunk = (positions * self.sizes.b).div_ceil(parts);
        chunk.next_multiple_of(TILE).max(TILE)
    }

    pub(super) fn gradient_threads(&self) -> usize {
        if self.sizes.is_decomposed() {
            GRADIENT_THREADS
        } else {
            2 * GRADIENT_THREADS
        }
    }

    /// Rows (duration, destination) of a tile of edge_gradients.cu.
    pub(super) fn gradient_rows(&self) -> usize {
        (self.longest * self.sizes.c).min(2048)
    }

    /// Offsets of a tile, or a row of sources and a tile of rows; two floats each.
    pub(super) fn gradient_shared_bytes(&self) -> u32 {
        let pairs = if self.sizes.is_decomposed() {
            2 * TILE + self.longest
        } else {
            self.sizes.c + self.gradient_rows()
        };
        (8 * pairs) as u32
    }
}
