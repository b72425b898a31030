//! One kernel of several nests side by side: which block does what of which.
//!
//! Blocks are dealt out in the order of the nests: those before `end_0` are the first one's, those from there on to
//! before `end_1` the second one's, and so on. All ends but the last are arguments of a launch, before those of the
//! nests. So a text depends on what the nests are, not on their sizes. Nests with the same text stand in it once. On a GPU what
//! they are given is chosen first, and one copy of the text runs with it: a copy each would be long to compile and
//! to fetch.

use super::text::{self, Text};
use super::{ENTRY, Member, Schedule, c, cuda};
use crate::workload::Target;

/// Gives all members on a GPU blocks of the same number of threads: as many as the one with most has.
///
/// # Errors
/// A sentence where that is not possible.
pub(super) fn same_threads(members: &mut [Member]) -> Result<(), String> {
    let threads = |member: &Member| match &member.schedule {
        Schedule::C(_) => 1,
        Schedule::Cuda(schedule) => schedule.threads(),
    };
    let most = members.iter().map(threads).max().unwrap_or(1);
    for member in &mut *members {
        if let Schedule::Cuda(schedule) = &member.schedule {
            member.schedule = Schedule::Cuda(schedule.clone().with_threads(&member.nest, most)?);
        }
    }
    match members.iter().find(|member| threads(member) != most) {
        Some(member) => Err(format!(
            "{} has no blocks of {most} threads",
            member.nest.name
        )),
        None => Ok(()),
    }
}

/// The text of the kernel.
///
/// # Errors
/// A sentence about what can't be generated.
pub(super) fn text(members: &[Member], target: &Target) -> Result<String, String> {
    let first_alike = |(at, own): (usize, &Member)| {
        let mut before = members[..at].iter();
        before
            .position(|other| other.has_text_of(own))
            .unwrap_or(at)
    };
    let pack = Pack {
        members,
        texts: members.iter().enumerate().map(first_alike).collect(),
    };
    let mut out = Text::default();
    let count = members.len();
    out.line(format!("// {count} kernels side by side."));
    match target {
        Target::Cpu => pack.c(&mut out)?,
        Target::Cuda { .. } => pack.cuda(&mut out)?,
    }
    Ok(out.finish())
}

struct Pack<'a> {
    members: &'a [Member],
    /// For each member, the first one with its text.
    texts: Vec<usize>,
}

impl Pack<'_> {
    /// Positions of members whose text no member before has.
    fn distinct(&self) -> impl Iterator<Item = usize> {
        let all = self.texts.iter().enumerate();
        all.filter(|(at, text)| at == *text).map(|(at, _)| at)
    }

    /// Members next to each other with the same text.
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
        format!("// {}.", text::words(&self.members[at].nest).join(", "))
    }

    fn c(&self, out: &mut Text) -> Result<(), String> {
        out.lines(["#include \"cpu.h\"", "#include \"functions.h\""]);
        for at in self.distinct() {
            let Member {
                nest,
                parameters,
                schedule: Schedule::C(schedule),
                ..
            } = &self.members[at]
            else {
                continue;
            };
            out.lines(["".to_owned(), self.heading(at)]);
            c::member(out, nest, schedule, parameters, &format!("m{at}_"))?;
        }
        out.line("");
        out.open(format!("KERNEL({ENTRY}, args, block)"));
        let mut first = self.members.len() - 1;
        for (at, member) in self.members.iter().enumerate() {
            let from = match at {
                0 => "block".to_owned(),
                at => format!("block - (uint32_t)ARG_INT(args, {})", at - 1),
            };
            let run = format!("m{}_run(args + {first}, {from});", self.texts[at]);
            out.line(match at + 1 == self.members.len() {
                true => run,
                false => format!("if (block < ARG_INT(args, {at})) {{ {run} return; }}"),
            });
            first += member.parameters.len();
        }
        out.close();
        Ok(())
    }

    fn cuda(&self, out: &mut Text) -> Result<(), String> {
        out.line("#include \"functions.cuh\"");
        for at in self.distinct() {
            let Member {
                nest,
                parameters,
                schedule: Schedule::Cuda(schedule),
                ..
            } = &self.members[at]
            else {
                continue;
            };
            out.lines(["".to_owned(), self.heading(at)]);
            out.open(format!("struct m{at}"));
            out.line("// What one of several kernels with this text is given, after the block at which it begins.");
            let fields = cuda::declarations(nest, parameters, &|_| cuda::Pointee::Unrestricted, "");
            out.line(format!(
                "struct Given {{ int64 start; {}; }};",
                fields.join("; ")
            ));
            let pointee = |operand| schedule.pointee(nest, operand);
            cuda::member(out, nest, schedule, parameters, &pointee)?;
            out.close_with(";");
        }
        out.line("");
        self.cuda_kernel(out);
        Ok(())
    }

    fn cuda_kernel(&self, out: &mut Text) {
        let mut declared: Vec<String> = (0..self.members.len() - 1)
            .map(|at| format!("int64 end_{at}"))
            .collect();
        for (at, member) in self.members.iter().enumerate() {
            let (nest, prefix) = (&member.nest, format!("m{at}_"));
            let Schedule::Cuda(schedule) = &member.schedule else {
                continue;
            };
            let pointee = |operand| schedule.pointee(nest, operand);
            let own = cuda::declarations(nest, &member.parameters, &pointee, &prefix);
            declared.extend(own);
        }
        out.open(format!(
            "KERNEL({ENTRY}, m0::THREADS)({})",
            declared.join(", ")
        ));
        if let Schedule::Cuda(first) = &self.members[0].schedule {
            out.lines(first.waits());
        }
        out.line("const int64 block = blockIdx.x;");
        for run in self.runs() {
            let is_last = run.end == self.members.len();
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

    /// Blocks of members with the same text.
    fn cuda_run(&self, out: &mut Text, run: std::ops::Range<usize>) {
        let text = self.texts[run.start];
        let names = |at: usize| -> Vec<String> {
            let Member {
                nest, parameters, ..
            } = &self.members[at];
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
        out.line(format!("m{text}::Given given;"));
        for at in run.clone() {
            let assign = format!("given = {{{}}};", given(at));
            let otherwise = if at > run.start { "else " } else { "" };
            out.line(match at + 1 == run.end {
                true => format!("{otherwise}{assign}"),
                false => format!("{otherwise}if (block < end_{at}) {assign}"),
            });
        }
        let fields = names(run.start).into_iter();
        let fields: Vec<String> = fields.map(|name| format!("given.{name}")).collect();
        out.line(format!(
            "m{text}::run((unsigned)(block - given.start), {});",
            fields.join(", ")
        ));
    }
}
