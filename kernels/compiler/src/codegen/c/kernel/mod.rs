//! The text of a kernel in C.
//!
//! Each pass over the columns is a function of a vector of them, or of fewer at the end of a row.
//! The values of the row that it needs are in a `Row`, which the compiler takes apart: everything
//! is inlined.

mod passes;

use crate::graph::op::Reduction;
use crate::nest::{CrossBlock, Nest, Value, ValueId};

use super::super::names::Names;
use super::super::scalar::Dialect;
use super::super::stages::{Pass, Stages};
use super::super::text::{self, Text};
use super::super::{ENTRY, launch::Parameter};
use super::nontemporal::Nontemporal;
use super::vectors::{Steps, Vectors};
use super::{Home, Schedule};

/// Chains of sums that a reduction over columns keeps apart, so that additions overlap.
const CHAINS: usize = 4;

/// The text of the kernel.
///
/// # Errors
/// As [`Stages::new`].
pub(in super::super) fn text(
    nest: &Nest,
    schedule: &Schedule,
    parameters: &[Parameter],
) -> Result<String, String> {
    let mut out = Text::default();
    out.line(format!("// {}.", text::words(nest).join(", ")));
    out.lines(["#include \"cpu.h\"", "#include \"functions.h\"", ""]);
    let stages = Stages::new(nest, schedule.residency)?;
    let writer = Writer::new(nest, schedule, parameters, &stages, "");
    writer.all(&mut out, &format!("KERNEL({ENTRY}, args, block)"));
    Ok(out.finish())
}

/// Writes the function `{prefix}run`, which computes a block of a nest, and the functions that it
/// needs.
///
/// # Errors
/// As [`Stages::new`].
pub(in super::super) fn sub_kernel(
    out: &mut Text,
    nest: &Nest,
    schedule: &Schedule,
    parameters: &[Parameter],
    prefix: &str,
) -> Result<(), String> {
    let stages = Stages::new(nest, schedule.residency)?;
    let writer = Writer::new(nest, schedule, parameters, &stages, prefix);
    let function = format!("static void {prefix}run(const uint64_t *args, uint32_t block)");
    writer.all(out, &function);
    Ok(())
}

struct Writer<'a> {
    nest: &'a Nest,
    schedule: &'a Schedule,
    parameters: &'a [Parameter],
    vectors: Vectors<'a>,
    stages: &'a Stages,
    nontemporal: Nontemporal,
    names: Names<'a>,
    /// Begins the names of types and functions.
    prefix: &'a str,
}

impl<'a> Writer<'a> {
    fn new(
        nest: &'a Nest,
        schedule: &'a Schedule,
        parameters: &'a [Parameter],
        stages: &'a Stages,
        prefix: &'a str,
    ) -> Writer<'a> {
        Writer {
            nest,
            schedule,
            parameters,
            vectors: Vectors { nest, stages },
            stages,
            nontemporal: Nontemporal::new(nest, schedule, stages),
            names: Names {
                nest,
                stages,
                dialect: Dialect::C,
                of_row: "row.",
                has_row_arrays: false,
            },
            prefix,
        }
    }
}

impl Writer<'_> {
    /// Types, passes, and the function of a block, which begins with `function`.
    fn all(&self, out: &mut Text, function: &str) {
        self.row_type(out);
        for pass in 0..self.stages.passes.len() {
            self.pass(out, pass);
        }
        self.finish_columns(out);
        self.kernel(out, function);
    }

    fn finishes_columns(&self) -> bool {
        let mut stores = self.stages.after_rows.stores.iter();
        stores.any(|&store| self.names.is_of_columns(store) && !self.names.is_partial(store))
    }

    fn kernel(&self, out: &mut Text, function: &str) {
        out.open(function);
        self.arguments(out);
        out.lines([
            "const int64_t column_block = block % column_blocks, row_block = block / column_blocks;",
            "const int64_t first_column = column_block * block_columns, begin = row_block * block_rows;",
            "const int64_t extent = columns - first_column < block_columns ? columns - first_column : block_columns;",
            "const int64_t end = rows - begin < block_rows ? rows : begin + block_rows;",
        ]);
        out.line(format!(
            "{}Row row = {{.first_column = first_column}};",
            self.prefix
        ));
        out.lines(self.nontemporal.of_launch(&self.names));
        for parameter in self.parameters {
            if let Parameter::ColumnStep(_) | Parameter::IndexStep(_) = parameter {
                let name = parameter.name(self.nest);
                out.line(format!("row.{name} = {name};"));
            }
        }
        self.values(out, &self.stages.uniform);
        self.memory(out);
        out.open("for (int64_t r = begin; r < end; r++)");
        self.row(out);
        out.close();
        out.lines(self.nontemporal.end());
        self.finish(out);
        out.close();
    }

    fn arguments(&self, out: &mut Text) {
        for (at, parameter) in self.parameters.iter().enumerate() {
            let name = parameter.name(self.nest);
            out.line(match *parameter {
                Parameter::Pointer(operand) => {
                    let operand = &self.nest.operands[operand];
                    let dtype = text::element(operand.dtype, "int64_t");
                    let (constant, kind) = match operand.is_written {
                        true => ("", "WRITE"),
                        false => ("const ", "READ"),
                    };
                    format!("{constant}{dtype} *{name} = ARG_{kind}(args, {at}, {dtype});")
                }
                Parameter::Scalar(_) => format!("const float {name} = ARG_FLOAT(args, {at});"),
                _ => format!("const int64_t {name} = ARG_INT(args, {at});"),
            });
        }
    }

    /// Memory of kept values, and of reductions over rows and over all.
    fn memory(&self, out: &mut Text) {
        for (id, home) in &self.schedule.homes {
            if let Home::Stack(floats) = home {
                out.line(format!("float kept_{}[{floats}];", id.0));
                out.line(format!("row.kept_{0} = kept_{0};", id.0));
            }
        }
        for id in self.stages.over_rows(self.nest) {
            let (reduction, _) = self.names.reduction(id);
            let identity = Dialect::C.identity(reduction);
            match self.schedule.sums {
                Some(floats) => {
                    out.line(format!("float part_{}[{floats}];", id.0));
                    out.line(format!("row.partials_{0} = part_{0};", id.0));
                }
                None => {
                    let part = self.names.partials_of(id);
                    out.line(format!(
                        "row.partials_{} = {part} + row_block * columns + first_column;",
                        id.0
                    ));
                }
            }
            out.line(format!(
                "for (int64_t c = 0; c < extent; c++) row.partials_{}[c] = {identity};",
                id.0
            ));
        }
        for id in self.stages.over_all(self.nest) {
            let (reduction, of) = self.names.reduction(id);
            let (name, identity) = (self.names.of(id), Dialect::C.identity(reduction));
            if self.stages.varies[of.0].columns {
                let each = vec![format!("v_all({identity})"); CHAINS].join(", ");
                out.line(format!("vf {name}[{CHAINS}] = {{{each}}};"));
            } else {
                out.line(format!("double {name} = {identity};"));
            }
        }
    }

    /// Assigns values that are one number.
    fn values(&self, out: &mut Text, ids: &[ValueId]) {
        for &id in ids {
            let expression = match &self.nest.values[id.0] {
                Value::Constant(_) => continue,
                Value::Reduce { .. } => self.folded(id),
                _ => self.names.expression(id),
            };
            out.line(format!("row.{} = {expression};", self.names.of(id)));
        }
    }

    /// A reduction from its chains of lanes.
    fn folded(&self, id: ValueId) -> String {
        let name = self.names.of(id);
        match self.names.reduction(id).0 {
            Reduction::Sum => {
                format!("v_sum_wide(({name}[0] + {name}[1]) + ({name}[2] + {name}[3]))")
            }
            Reduction::Max => format!(
                "v_greatest(v_max(v_max({name}[0], {name}[1]), v_max({name}[2], {name}[3])))"
            ),
        }
    }

    fn row(&self, out: &mut Text) {
        let dims = self.nest.row_dims;
        if dims == 1 {
            out.line("const int64_t row_0 = r;");
        } else {
            out.line("int64_t rest = r;");
            for dim in (1..dims).rev() {
                out.line(format!(
                    "const int64_t row_{dim} = rest % rows_{dim}; rest /= rows_{dim};"
                ));
            }
            out.line("const int64_t row_0 = rest;");
        }
        out.line("row.index = r;");
        for store in self.stages.passes.iter().flat_map(|pass| &pass.stores) {
            self.store_pointer(out, *store);
        }
        for (id, home) in &self.schedule.homes {
            if let Home::Output(store) = home {
                out.line(format!("row.kept_{} = row.to_{store};", id.0));
            }
        }
        let mut placed: Vec<ValueId> = Vec::new();
        for at in 0..self.stages.between.len() {
            self.between(out, at);
            let Some(pass) = self.stages.passes.get(at) else {
                continue;
            };
            for &id in &pass.values {
                if let Value::Load { operand, index } = self.nest.values[id.0]
                    && !placed.contains(&id)
                {
                    placed.push(id);
                    let offset = self.names.row_offset(operand.0);
                    self.load_pointer(out, id, operand.0, index, offset);
                }
            }
            self.loop_of(out, at, pass);
        }
    }

    fn store_pointer(&self, out: &mut Text, at: usize) {
        let operand = self.nest.stores[at].operand.0;
        let first = Steps::of(self.nest, operand).offset("row.first_column");
        let first = first.replace("row->", "row.");
        out.line(format!(
            "row.to_{at} = {} + {first};",
            self.names.row_offset(operand)
        ));
    }

    fn load_pointer(
        &self,
        out: &mut Text,
        id: ValueId,
        operand: usize,
        index: Option<ValueId>,
        offset: String,
    ) {
        let first = Steps::of(self.nest, operand).offset("row.first_column");
        let first = first.replace("row->", "row.");
        let index = index.filter(|index| !self.stages.varies[index.0].columns);
        let index = self.names.index(operand, index);
        out.line(format!("row.at_{} = {offset} + {first}{index};", id.0));
    }

    /// Values and stores of the row before a pass.
    fn between(&self, out: &mut Text, at: usize) {
        let between = &self.stages.between[at];
        self.values(out, &between.values);
        for &id in &between.cross_block {
            let (reduction, of) = self.names.reduction(id);
            let (name, value) = (self.names.of(id), self.names.scalar(of));
            out.line(match reduction {
                Reduction::Sum => format!("{name} += {value};"),
                Reduction::Max => format!("{name} = {value} > {name} ? {value} : {name};"),
            });
        }
        for &at in &between.stores {
            let store = &self.nest.stores[at];
            let to = self.names.row_offset(store.operand.0);
            let is_once = self.names.is_row_invariant(store.operand.0);
            let once = if is_once { " && r == 0" } else { "" };
            out.line(format!(
                "if (first_column == 0{once}) *({to}) = {};",
                self.names.scalar(store.value)
            ));
        }
    }

    /// The loop over columns of a pass.
    fn loop_of(&self, out: &mut Text, at: usize, pass: &Pass) {
        for &id in &pass.reductions {
            let identity = self.names.identity(id);
            let each = vec![format!("v_all({identity})"); CHAINS].join(", ");
            out.line(format!("vf {}[{CHAINS}] = {{{each}}};", self.names.of(id)));
        }
        let prefix = self.prefix;
        let accumulators = self.accumulators(pass);
        let chain = |chain: &str| -> String {
            let names = accumulators.iter();
            names
                .map(|&id| format!(", &{}[{chain}]", self.names.of(id)))
                .collect()
        };
        out.open("");
        out.line("int64_t c = 0;");
        if !accumulators.is_empty() {
            out.line(format!(
                "for (; c + {CHAINS} * LANES <= extent; c += {CHAINS} * LANES)"
            ));
            out.line(format!(
                "    for (int i = 0; i < {CHAINS}; i++) {prefix}pass_{at}(&row, c + i * LANES, LANES{});",
                chain("i")
            ));
        }
        out.line(format!(
            "for (; c + LANES <= extent; c += LANES) {prefix}pass_{at}(&row, c, LANES{});",
            chain("0")
        ));
        out.line(format!(
            "if (c < extent) {prefix}pass_{at}(&row, c, extent - c{});",
            chain("0")
        ));
        out.close();
    }

    /// Work after all rows of the block.
    fn finish(&self, out: &mut Text) {
        let all = self.stages.over_all(self.nest);
        if self.nest.cross_block == CrossBlock::Partials {
            for id in all {
                let part = self.names.partials_of(id);
                out.line(format!("{part}[block] = {};", self.total(id)));
            }
            return;
        }
        for id in all {
            out.line(format!("row.{} = {};", self.names.of(id), self.total(id)));
        }
        self.values(out, &self.stages.after_rows.uniform);
        for &at in &self.stages.after_rows.stores {
            if !self.names.is_of_columns(at) {
                let store = &self.nest.stores[at];
                let to = self.names.operand(store.operand.0);
                out.line(format!("*{to} = {};", self.names.scalar(store.value)));
            }
        }
        if !self.finishes_columns() {
            return;
        }
        for store in &self.stages.after_rows.stores {
            if self.names.is_of_columns(*store) {
                let operand = self.nest.stores[*store].operand.0;
                let first = Steps::of(self.nest, operand).offset("row.first_column");
                let (name, first) = (self.names.operand(operand), first.replace("row->", "row."));
                out.line(format!("row.to_{store} = {name} + {first};"));
            }
        }
        for &id in &self.stages.after_rows.columns {
            if let Value::Load { operand, index } = self.nest.values[id.0] {
                let offset = self.names.operand(operand.0);
                self.load_pointer(out, id, operand.0, index, offset);
            }
        }
        let finish = format!("{}finish", self.prefix);
        out.line("int64_t c = 0;");
        out.line(format!(
            "for (; c + LANES <= extent; c += LANES) {finish}(&row, c, LANES);"
        ));
        out.line(format!("if (c < extent) {finish}(&row, c, extent - c);"));
    }

    /// A reduction over everything, from the block's rows.
    fn total(&self, id: ValueId) -> String {
        let (_, of) = self.names.reduction(id);
        match self.stages.varies[of.0].columns {
            true => self.folded(id),
            false => self.names.of(id),
        }
    }
}
