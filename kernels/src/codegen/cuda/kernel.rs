//! The text of a CUDA kernel.

use crate::nest::{Fill, Nest, Parts, Value, ValueId};

use super::super::names::Names;
use super::super::scalar::Dialect;
use super::super::stages::{Pass, Stages};
use super::super::text::{self, Text};
use super::super::{ENTRY, launch::Parameter};
use super::Schedule;
use super::cells::Cells;
use super::member::declarations;
use super::rows::Definition;

/// The text of the kernel.
///
/// # Errors
/// As [`Stages::new`].
pub(in super::super) fn text(
    nest: &Nest,
    schedule: &Schedule,
    parameters: &[Parameter],
) -> Result<String, String> {
    let stages = Stages::new(nest, schedule.keep)?;
    let writer = Writer::new(nest, schedule, parameters, &stages, "blockIdx.x");
    let mut out = Text::default();
    out.line(format!("// {}.", text::words(nest).join(", ")));
    out.line("#include \"functions.cuh\"");
    out.line("");
    out.lines(writer.constants());
    out.line("");
    writer.kernel(&mut out);
    Ok(out.finish())
}

pub(super) struct Writer<'a> {
    pub(super) nest: &'a Nest,
    pub(super) schedule: &'a Schedule,
    pub(super) parameters: &'a [Parameter],
    pub(super) stages: &'a Stages,
    pub(super) names: Names<'a>,
    /// The block's position among those of the nest, in text.
    pub(super) block: &'static str,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        nest: &'a Nest,
        schedule: &'a Schedule,
        parameters: &'a [Parameter],
        stages: &'a Stages,
        block: &'static str,
    ) -> Writer<'a> {
        Writer {
            nest,
            schedule,
            parameters,
            stages,
            names: Names {
                nest,
                stages,
                dialect: Dialect::Cuda,
                of_row: "",
                is_abreast: schedule.rows > 1,
            },
            block,
        }
    }
}

impl Writer<'_> {
    pub(super) fn constants(&self) -> Vec<String> {
        let schedule = self.schedule;
        if schedule.late.is_some() {
            return self.late_constants();
        }
        let chunks = match schedule.has_cells {
            true => format!(", CHUNKS = {}", schedule.chunks),
            false => String::new(),
        };
        let rows = match self.names.is_abreast {
            true => format!(", ROWS = {}", schedule.rows),
            false => String::new(),
        };
        let mut lines = vec![
            format!(
                "constexpr int WIDTH = {}, GROUPS = {}{chunks}{rows};",
                schedule.width, schedule.groups
            ),
            "constexpr int THREADS = WIDTH * GROUPS;".to_owned(),
        ];
        if self.shares_rows() || !self.stages.over_all(self.nest).is_empty() {
            lines.push("constexpr int WARPS = (THREADS + 31) / 32;".to_owned());
        }
        if schedule.is_looped && schedule.has_cells {
            lines.push("constexpr int SPAN = 4 * WIDTH * CHUNKS;".to_owned());
        }
        lines
    }

    pub(super) fn has_groups(&self) -> bool {
        self.schedule.groups > 1
    }

    fn kernel(&self, out: &mut Text) {
        let pointee = |operand| self.schedule.pointee(self.nest, operand);
        out.open(format!(
            "KERNEL({ENTRY}, THREADS{})({})",
            self.schedule.bounds(),
            declarations(self.nest, self.parameters, &pointee, "").join(", ")
        ));
        out.lines(self.schedule.waits());
        self.body(out);
        out.close();
    }

    /// What a block does.
    pub(super) fn body(&self, out: &mut Text) {
        if let Some(wide) = self.wide() {
            out.line(wide);
        }
        match self.schedule.late {
            Some(_) => self.share_late(out),
            None => self.share(out),
        }
        out.lines(self.stream());
        if self.schedule.shared > 0 {
            out.line("SHARED(shared);");
        }
        if self.shares_rows() {
            out.line(format!(
                "constexpr int SLOTS = {} * WARPS;",
                self.schedule.slots(self.stages)
            ));
            out.line("int turn = 0;");
        }
        self.values(out, &self.stages.uniform);
        self.sums(out);
        self.load_shared(out);
        self.load_ahead(out, "begin", false);
        self.open_rows(out);
        for &id in &self.schedule.ahead {
            let name = self.names.of(id);
            out.line(format!("{} {name}[CHUNKS][4];", self.names.dtype(id)));
            out.line(format!("copy_chunks({name}, next_{});", id.0));
        }
        for &id in &self.schedule.ahead_of_row {
            let (dtype, name) = (self.names.dtype(id), self.names.of(id));
            out.line(format!("const {dtype} {name} = next_{};", id.0));
        }
        let is_part = |at: &usize| {
            let mut stores = self.nest.stores.iter().enumerate();
            stores.any(|(store, held)| held.operand.0 == *at && self.names.is_part(store))
        };
        let operands = 0..self.nest.operands.len();
        let operands: Vec<usize> = operands.filter(|at| !is_part(at)).collect();
        if !self.names.is_abreast {
            self.row_indices(out, &operands, true);
        }
        let next = format!("{} + {}", self.first_row(), self.step());
        self.load_ahead(out, &next, true);
        self.row(out);
        out.close();
        self.finish(out);
    }

    /// What the block has of rows and columns.
    fn share(&self, out: &mut Text) {
        let block = self.block;
        let group = if self.has_groups() {
            ", group = threadIdx.x / WIDTH"
        } else {
            ""
        };
        out.line(format!("const int lane = threadIdx.x % WIDTH{group};"));
        if self.names.is_abreast {
            out.lines([
                "constexpr int64 first = 0;".to_owned(),
                self.here("(int)columns"),
                format!("const int64 begin = (int64){block} * ROWS;"),
            ]);
            return;
        }
        if self.schedule.has_one_row || self.schedule.takes_turns {
            out.lines([
                "constexpr int64 first = 0;".to_owned(),
                self.here("(int)columns"),
                format!("const int64 begin = (int64){block} * GROUPS, end = rows;"),
            ]);
            if self.schedule.takes_turns {
                out.line("const int64 step = (int64)gridDim.x * GROUPS;");
            }
            if self.schedule.has_over_rows() && self.nest.parts == Parts::Many {
                out.line(format!("const unsigned share = {block};"));
            }
            return;
        }
        if self.schedule.is_one_row {
            out.lines([
                format!("const int64 first = (int64){block} * (4 * WIDTH * CHUNKS);"),
                self.here("(int)min(columns - first, (int64)(4 * WIDTH * CHUNKS))"),
            ]);
            return;
        }
        out.line(format!(
            "const unsigned piece = {block} % (unsigned)pieces, share = {block} / (unsigned)pieces;"
        ));
        let (first, here) = match self.schedule.takes_pieces {
            true => ("(int64)piece * SPAN", "(int)(columns - first)"),
            false => (
                "piece * block_columns",
                "(int)min(columns - first, block_columns)",
            ),
        };
        out.lines([
            format!("const int64 first = {first}, begin = share * block_rows;"),
            self.here(here),
            "const int64 end = min(begin + block_rows, rows);".to_owned(),
        ]);
    }

    /// Defines the columns that the block has of a row: all that its lanes can hold, where they do in all launches.
    pub(super) fn here(&self, columns: &str) -> String {
        match self.schedule.fill == Fill::Lanes && !self.schedule.is_looped {
            true => "constexpr int here = 4 * WIDTH * CHUNKS;".to_owned(),
            false => format!("const int here = {columns};"),
        }
    }

    /// Opens what is done for each row of a group, or for its only one.
    fn open_rows(&self, out: &mut Text) {
        let schedule = self.schedule;
        if schedule.late.is_some() {
            self.open_late(out);
            return;
        }
        if schedule.is_one_row {
            out.open("");
            out.line("constexpr int64 r = 0;");
            return;
        }
        if self.names.is_abreast {
            out.open("");
            return;
        }
        if schedule.is_flat {
            out.line("#pragma unroll 1");
        } else if !self.stages.reduces_columns() && !schedule.is_looped && schedule.has_over_rows()
        {
            out.line("#pragma unroll 2");
        }
        let (first, step) = (self.first_row(), self.step());
        if schedule.has_one_row {
            out.line(format!("const int64 {first} = begin;"));
            out.open(format!("if ({first} < end)"));
        } else {
            out.open(format!(
                "for (int64 {first} = begin; {first} < end; {first} += {step})"
            ));
        }
        if self.has_groups() {
            out.line("const bool is_own = base + group < end;");
            out.line("const int64 r = is_own ? base + group : end - 1;");
        }
    }

    /// The first row that the block's groups have at a time, in text.
    fn first_row(&self) -> &'static str {
        match self.has_groups() {
            true => "base",
            false => "r",
        }
    }

    /// From one row of a group to its next one, in text.
    fn step(&self) -> &'static str {
        match (self.schedule.takes_turns, self.has_groups()) {
            (true, _) => "step",
            (false, true) => "GROUPS",
            (false, false) => "1",
        }
    }

    /// Whether warps share rows.
    pub(super) fn shares_rows(&self) -> bool {
        let is_late = self.schedule.late.is_some();
        self.schedule.width > 32 && self.stages.reduces_columns() && !is_late
    }

    /// What reductions over rows and over all begin with.
    fn sums(&self, out: &mut Text) {
        for id in self.stages.over_rows(self.nest) {
            let (name, identity) = (self.names.of(id), self.names.identity(id));
            if self.schedule.is_looped {
                let part = self.names.part_of(id);
                out.line(format!(
                    "float *part_{} = {part} + share * columns + first;",
                    id.0
                ));
                continue;
            }
            out.line(format!("float {name}[CHUNKS][4];"));
            out.line("#pragma unroll");
            out.line(format!(
                "for (int i = 0; i < 4 * CHUNKS; i++) {name}[i / 4][i % 4] = {identity};"
            ));
        }
        for id in self.stages.over_all(self.nest) {
            let identity = self.names.identity(id);
            out.line(format!("float {} = {identity};", self.names.of(id)));
        }
    }

    /// Loads what all rows share.
    fn load_shared(&self, out: &mut Text) {
        for &id in &self.schedule.shared_loads {
            out.lines(self.pointer(id, false).iter().map(Definition::to_string));
            let name = self.names.of(id);
            out.line(format!("{} {name}[CHUNKS][4];", self.names.dtype(id)));
            out.line(self.load(id, &name, "", "here"));
        }
    }

    /// Loads a group's row of those from `base` on into arrays for the next row, if there is one.
    fn load_ahead(&self, out: &mut Text, base: &str, is_declared: bool) {
        let ahead = &self.schedule.ahead;
        if ahead.is_empty() {
            return;
        }
        let of_row = &self.schedule.ahead_of_row;
        for &id in ahead.iter().filter(|_| !is_declared) {
            out.line(format!(
                "{} next_{}[CHUNKS][4];",
                self.names.dtype(id),
                id.0
            ));
        }
        for &id in of_row.iter().filter(|_| !is_declared) {
            out.line(format!("{} next_{};", self.names.dtype(id), id.0));
        }
        let group = if self.has_groups() { " + group" } else { "" };
        let next = format!("min({base}{group}, end - 1)");
        match is_declared {
            true => out.open(format!("if (const int64 next = {next}; {base} < end)")),
            false => out.open(""),
        }
        out.line(match is_declared {
            // Not from an `r` that would be this one.
            true => "const int64 r = next;".to_owned(),
            false => format!("const int64 r = {next};"),
        });
        let loaded = ahead.iter().chain(of_row);
        let operands = loaded.filter_map(|id| match self.nest.values[id.0] {
            Value::Load { operand, .. } => Some(operand.0),
            _ => None,
        });
        self.row_indices(out, &operands.collect::<Vec<_>>(), false);
        for &id in ahead {
            out.lines(self.pointer(id, true).iter().map(Definition::to_string));
            out.line(self.load(id, &format!("next_{}", id.0), "", "here"));
        }
        for &id in of_row {
            let Value::Load { operand, .. } = self.nest.values[id.0] else {
                continue;
            };
            let from = self.names.row_offset(operand.0);
            out.line(format!("next_{} = *({from});", id.0));
        }
        out.close();
    }

    /// Whether a load's array is filled before the row's passes.
    pub(super) fn is_loaded(&self, id: ValueId) -> bool {
        self.schedule.ahead.contains(&id) || self.schedule.shared_loads.contains(&id)
    }

    fn row(&self, out: &mut Text) {
        let stores = self.stages.passes.iter().flat_map(|pass| &pass.stores);
        let targets: Vec<_> = stores.map(|&store| self.target(store)).collect();
        self.define(out, &targets);
        let mut placed: Vec<ValueId> = Vec::new();
        for at in 0..self.stages.between.len() {
            match &self.schedule.late {
                Some(_) if at == 0 => self.values(out, &self.stages.between[0].values),
                Some(_) => {}
                None => self.between(out, at),
            }
            let Some(pass) = self.stages.passes.get(at) else {
                continue;
            };
            let is_new = |id: &ValueId| {
                let is_load = matches!(self.nest.values[id.0], Value::Load { .. });
                is_load && !self.is_loaded(*id) && !placed.contains(id)
            };
            let loads: Vec<ValueId> = pass.values.iter().copied().filter(is_new).collect();
            let pointers = loads.iter().filter_map(|&id| self.pointer(id, true));
            self.define(out, &pointers.collect::<Vec<_>>());
            placed.extend(loads);
            self.pass(out, pass);
        }
        if let Some(late) = &self.schedule.late {
            self.leave(out, late);
        }
    }

    fn between(&self, out: &mut Text, at: usize) {
        let between = &self.stages.between[at];
        match self.names.is_abreast {
            true => self.define(out, &self.definitions(&between.values)),
            false => self.values(out, &between.values),
        }
        let own = if self.has_groups() { " && is_own" } else { "" };
        for &id in &between.last {
            let (reduction, of) = self.names.reduction(id);
            let name = self.names.of(id);
            let sum = Dialect::Cuda.reduced(reduction, &name, &self.names.scalar(of));
            out.line(format!("if (lane == 0{own}) {name} = {sum};"));
        }
        if between.stores.is_empty() {
            return;
        }
        self.open_abreast(out, true);
        for &at in &between.stores {
            let store = &self.nest.stores[at];
            let to = self.names.row_offset(store.operand.0);
            let once = match self.names.is_one_row(store.operand.0) {
                true => " && r == 0",
                false => "",
            };
            out.line(format!(
                "if (lane == 0{own} && first == 0{once}) *({to}) = {};",
                self.names.scalar(store.value)
            ));
        }
        self.close_abreast(out);
    }

    fn pass(&self, out: &mut Text, pass: &Pass) {
        let begin = |&id: &ValueId| Definition {
            dtype: "float".to_owned(),
            name: self.names.defined(id),
            value: self.begins_with(id),
            uses_row: false,
        };
        self.define(out, &pass.reductions.iter().map(begin).collect::<Vec<_>>());
        let reductions = pass.reductions.iter().chain(&pass.last);
        let cells = Cells {
            values: &pass.values,
            kept: &pass.kept,
            fetched: &pass.fetched,
            reductions: reductions.copied().collect(),
            stores: &pass.stores,
        };
        for &id in pass.kept.iter().filter(|id| !self.is_loaded(**id)) {
            self.array(out, id);
        }
        self.in_loop(out, &cells);
        self.reduce(out, &pass.reductions);
    }

    pub(super) fn in_loop(&self, out: &mut Text, cells: &Cells<'_>) {
        if self.schedule.is_looped {
            let step = match self.schedule.takes_pieces {
                true => "(int)pieces * SPAN",
                false => "SPAN",
            };
            out.open(format!(
                "for (int offset = 0; offset < here; offset += {step})"
            ));
            self.cells(out, cells, " + offset");
            out.close();
        } else {
            out.open("");
            self.cells(out, cells, "");
            out.close();
        }
    }
}
