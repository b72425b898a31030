//! A microkernel to hold `fused` against: one exponential an edge, and the edges read once.

use std::borrow::Cow;

use super::sizes::Sizes;
use sweeper_program::headers::{CPU_H, ELEMENTARY_H, VECTOR_H};
use sweeper_program::tensor::Dtype;
use sweeper_program::{
    Arg, Binding, Geometry, Index, Kernel, KernelSource, Language, Program, Role, SourceFile, Step,
};

static FILES: [SourceFile; 4] = [
    SourceFile::embedded("exp_floor.c", include_str!("exp_floor.c")),
    CPU_H,
    VECTOR_H,
    ELEMENTARY_H,
];

/// The program for materialized potentials of `sizes` and full lengths.
pub fn program(sizes: &Sizes) -> Program {
    let mut program = Program::default();
    let end = sizes.last_end();
    let elements = sizes.b * end * sizes.k * sizes.c * sizes.c;
    let edge = program.buffer(
        "edge",
        Dtype::F32,
        elements,
        Role::Potentials,
        Binding::Given,
    );
    let sums = program.buffer(
        "sums",
        Dtype::F32,
        sizes.b,
        Role::Workspace,
        Binding::Scratch,
    );
    let longest = sizes.longest().min(end);
    let numbers = [sizes.k, sizes.c, longest, sizes.first_duration_index(), end];
    let mut args: Vec<Arg> = numbers.map(|n| Arg::Int(Index::from(n))).into();
    args.push(Arg::Read(program.all(edge)));
    args.push(Arg::Write(program.all(sums)));
    let kernel = program.kernel(Kernel::Compiled(KernelSource {
        language: Language::C,
        files: Cow::Borrowed(&FILES),
        entry: "semicrf_exp_floor".into(),
        defines: vec![],
        options: Vec::new(),
        user: None,
    }));
    program.steps.push(Step::Launch {
        kernel,
        geometry: Geometry::blocks(sizes.b as u32),
        args,
    });
    program
}
