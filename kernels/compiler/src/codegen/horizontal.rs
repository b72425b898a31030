//! Horizontal fusion: one kernel of several independent nests.
//!
//! Blocks are dealt out in the order of the nests: the blocks before `end_0` belong to the first
//! nest, the blocks from there to before `end_1` to the second one, and so on. All ends but the
//! last are arguments of a launch, before the arguments of the nests, so that a text does not
//! depend on sizes. Nests with equal texts share it. On a GPU a block selects the arguments of its
//! nest first, and all blocks run one copy of the text: several copies would take long to compile
//! and to fetch.

use super::text::{self, Text};
use super::{ENTRY, Schedule, SubKernel, c, cuda};
use sweeper_program::workload::Target;

/// Gives all sub-kernels on a GPU blocks with equally many threads: the greatest number of any
/// sub-kernel.
///
/// # Errors
/// A sentence where this is not possible.
pub(super) fn equalize_threads(sub_kernels: &mut [SubKernel]) -> Result<(), String> {
    let threads = |it: &SubKernel| match &it.schedule {
        Schedule::C(_) => 1,
        Schedule::Cuda(schedule) => schedule.tile.threads(),
    };
    let most = sub_kernels.iter().map(threads).max().unwrap_or(1);
    for it in &mut *sub_kernels {
        if let Schedule::Cuda(schedule) = &it.schedule {
            it.schedule = Schedule::Cuda(schedule.clone().with_threads(&it.nest, most)?);
        }
    }
    match sub_kernels.iter().find(|it| threads(it) != most) {
        Some(it) => Err(format!("{} has no blocks of {most} threads", it.nest.name)),
        None => Ok(()),
    }
}

/// The text of the kernel.
///
/// # Errors
/// A sentence that says why the kernel can't be generated.
pub(super) fn text(sub_kernels: &[SubKernel], target: &Target) -> Result<String, String> {
    let first_alike = |(at, own): (usize, &SubKernel)| {
        let mut before = sub_kernels[..at].iter();
        before
            .position(|other| other.has_text_of(own))
            .unwrap_or(at)
    };
    let fused = Fused {
        sub_kernels,
        texts: sub_kernels.iter().enumerate().map(first_alike).collect(),
    };
    let mut out = Text::default();
    let count = sub_kernels.len();
    out.line(format!("// Horizontal fusion of {count} kernels."));
    match target {
        Target::Cpu => fused.c(&mut out)?,
        Target::Cuda { .. } => fused.cuda(&mut out)?,
    }
    Ok(out.finish())
}

struct Fused<'a> {
    sub_kernels: &'a [SubKernel],
    /// For each sub-kernel, the first one with its text.
    texts: Vec<usize>,
}

impl Fused<'_> {
    /// Positions of sub-kernels whose text no earlier one has.
    fn distinct(&self) -> impl Iterator<Item = usize> {
        let all = self.texts.iter().enumerate();
        all.filter(|(at, text)| at == *text).map(|(at, _)| at)
    }

    /// Runs of neighbouring sub-kernels with equal texts.
    fn runs(&self) -> Vec<std::ops::Range<usize>> {
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        for (at, text) in self.texts.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if self.texts[run.start] == *text => run.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    fn heading(&self, at: usize) -> String {
        format!("// {}.", text::words(&self.sub_kernels[at].nest).join(", "))
    }

    fn c(&self, out: &mut Text) -> Result<(), String> {
        out.lines(["#include \"cpu.h\"", "#include \"functions.h\""]);
        for at in self.distinct() {
            let SubKernel {
                nest,
                parameters,
                schedule: Schedule::C(schedule),
                ..
            } = &self.sub_kernels[at]
            else {
                continue;
            };
            out.lines(["".to_owned(), self.heading(at)]);
            c::sub_kernel(out, nest, schedule, parameters, &format!("m{at}_"))?;
        }
        out.line("");
        out.open(format!("KERNEL({ENTRY}, args, block)"));
        let mut first = self.sub_kernels.len() - 1;
        for (at, sub_kernel) in self.sub_kernels.iter().enumerate() {
            let from = match at {
                0 => "block".to_owned(),
                at => format!("block - (uint32_t)ARG_INT(args, {})", at - 1),
            };
            let run = format!("m{}_run(args + {first}, {from});", self.texts[at]);
            out.line(match at + 1 == self.sub_kernels.len() {
                true => run,
                false => format!("if (block < ARG_INT(args, {at})) {{ {run} return; }}"),
            });
            first += sub_kernel.parameters.len();
        }
        out.close();
        Ok(())
    }

    fn cuda(&self, out: &mut Text) -> Result<(), String> {
        out.line("#include \"functions.cuh\"");
        for at in self.distinct() {
            let SubKernel {
                nest,
                parameters,
                schedule: Schedule::Cuda(schedule),
                ..
            } = &self.sub_kernels[at]
            else {
                continue;
            };
            out.lines(["".to_owned(), self.heading(at)]);
            out.open(format!("struct m{at}"));
            out.line("// Arguments of one of the kernels with this text, after the block at which it starts.");
            let fields = cuda::declarations(nest, parameters, &|_| cuda::Pointee::Unrestricted, "");
            out.line(format!(
                "struct Arguments {{ int64 start; {}; }};",
                fields.join("; ")
            ));
            let pointee = |operand| schedule.pointee(nest, operand);
            cuda::sub_kernel(out, nest, schedule, parameters, &pointee)?;
            out.close_with(";");
        }
        out.line("");
        self.cuda_kernel(out);
        Ok(())
    }

    fn cuda_kernel(&self, out: &mut Text) {
        let mut declared: Vec<String> = (0..self.sub_kernels.len() - 1)
            .map(|at| format!("int64 end_{at}"))
            .collect();
        for (at, sub_kernel) in self.sub_kernels.iter().enumerate() {
            let (nest, prefix) = (&sub_kernel.nest, format!("m{at}_"));
            let Schedule::Cuda(schedule) = &sub_kernel.schedule else {
                continue;
            };
            let pointee = |operand| schedule.pointee(nest, operand);
            let own = cuda::declarations(nest, &sub_kernel.parameters, &pointee, &prefix);
            declared.extend(own);
        }
        out.open(format!(
            "KERNEL({ENTRY}, m0::THREADS)({})",
            declared.join(", ")
        ));
        if let Schedule::Cuda(first) = &self.sub_kernels[0].schedule {
            out.lines(first.dependency_wait());
        }
        out.line("const int64 block = blockIdx.x;");
        for run in self.runs() {
            let is_last = run.end == self.sub_kernels.len();
            match is_last {
                true => out.open(""),
                false => out.open(format!("if (block < end_{})", run.end - 1)),
            }
            self.cuda_run(out, run);
            if !is_last {
                out.line("return;");
            }
            out.close();
        }
        out.close();
    }

    /// Blocks of sub-kernels with equal texts.
    fn cuda_run(&self, out: &mut Text, run: std::ops::Range<usize>) {
        let text = self.texts[run.start];
        let names = |at: usize| -> Vec<String> {
            let SubKernel {
                nest, parameters, ..
            } = &self.sub_kernels[at];
            parameters.iter().map(|it| it.name(nest)).collect()
        };
        let given = |at: usize| -> String {
            let start = match at {
                0 => "0".to_owned(),
                at => format!("end_{}", at - 1),
            };
            let own = names(at).into_iter().map(|name| format!("m{at}_{name}"));
            let all: Vec<String> = std::iter::once(start).chain(own).collect();
            all.join(", ")
        };
        out.line(format!("m{text}::Arguments arguments;"));
        for at in run.clone() {
            let assign = format!("arguments = {{{}}};", given(at));
            let otherwise = if at > run.start { "else " } else { "" };
            out.line(match at + 1 == run.end {
                true => format!("{otherwise}{assign}"),
                false => format!("{otherwise}if (block < end_{at}) {assign}"),
            });
        }
        let fields = names(run.start).into_iter();
        let fields: Vec<String> = fields.map(|name| format!("arguments.{name}")).collect();
        out.line(format!(
            "m{text}::run((unsigned)(block - arguments.start), {});",
            fields.join(", ")
        ));
    }
}
