//! Runs programs for CUDA devices on the CPU: their text, compiled by the system's C++ compiler
//! against `shim/shim.h`, in a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use sweeper::device::cpu::arena::tensor_of;
use sweeper::device::cpu::run::check_writes_are_exclusive;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{
    Arg, Attention, AttentionPass, Binding, Dtype, Heads, Kernel, KernelSource, Library, Precision,
    Program, Scalar, Step, Tensors, View,
};

use crate::support::Made;

/// The way in which kernels are compiled: as fast code, or with AddressSanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Fast,
    Sanitized,
}

impl Mode {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Mode::Fast => &["-O2"],
            Mode::Sanitized => &["-O1", "-g", "-fsanitize=address"],
        }
    }
}

/// True if there is a C++ compiler. Reports a missing one, and fails if one is required.
pub(crate) fn is_here() -> bool {
    let found = Command::new("g++").arg("--version").output().is_ok();
    if !found {
        crate::support::skip(
            "cxx",
            "CUDA kernels on the CPU need g++ (apt-get install g++)",
        );
    }
    found
}

/// The order in which the blocks of a launch run. A block that waits for the results of others goes
/// on after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    Ascending,
    Descending,
}

/// Runs a program once: its prologue, then its steps. Results and scratch memory begin as NaN.
pub(crate) fn run(
    program: &Program,
    inputs: &Tensors,
    specs: &[TensorSpec],
    mode: Mode,
) -> Tensors {
    run_blocks(program, inputs, specs, mode, Blocks::Ascending)
}

/// Runs a program with the blocks of each launch in an order.
pub(crate) fn run_blocks(
    program: &Program,
    inputs: &Tensors,
    specs: &[TensorSpec],
    mode: Mode,
    blocks: Blocks,
) -> Tensors {
    // As devices do.
    check_writes_are_exclusive(program).unwrap();
    let executable = executable(program, mode);
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("program"), folder.path().join("results"));
    let encoded = encode(program, inputs);
    // Another order of threads for each program, but always one order for one program.
    let seed = crc32fast::hash(&encoded);
    fs::write(&input, encoded).unwrap();
    let ran = Command::new(&executable)
        .args([&input, &output])
        .env("SHIM_BLOCKS", format!("{blocks:?}"))
        .env("SHIM_SEED", seed.to_string())
        .env(
            "ASAN_OPTIONS",
            "detect_leaks=0:detect_stack_use_after_return=0",
        )
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", text(&ran));
    decode(program, specs, &fs::read(&output).unwrap())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Everything that is compiled, for as long as the tests run.
struct Build {
    folder: tempfile::TempDir,
    /// Files made so far.
    count: AtomicUsize,
    /// Objects and executables, by their inputs.
    made: Made<PathBuf>,
}

impl Build {
    /// A name that no other file has.
    fn path(&self, extension: &str) -> PathBuf {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.folder.path().join(format!("{number}.{extension}"))
    }
}

fn build() -> &'static Build {
    static BUILD: OnceLock<Build> = OnceLock::new();
    BUILD.get_or_init(|| Build {
        folder: tempfile::tempdir().unwrap(),
        count: AtomicUsize::new(0),
        made: Made::default(),
    })
}

fn compile(args: &[&str], mode: Mode, to: &Path) {
    let common = ["-std=c++17", "-fno-strict-aliasing", "-DSWEEPER_SHIM"];
    let shim = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/tests/it/shim");
    let output = Command::new("g++")
        .args(common)
        .args(mode.flags())
        .arg(shim)
        .args(args)
        .arg("-o")
        .arg(to)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}\n{}", text(&output));
}

/// The executable that holds all kernels of a program. Its sources are compiled at once.
fn executable(program: &Program, mode: Mode) -> PathBuf {
    let build = build();
    let sources = program.sources().into_par_iter();
    let mut objects: Vec<PathBuf> = sources.map(|source| object(source, mode)).collect();
    objects.push(build.made.get(format!("shim {mode:?}"), || {
        let to = build.path("o");
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/shim/shim.cpp");
        compile(&["-c", file], mode, &to);
        to
    }));
    build.made.get(format!("{objects:?}"), || {
        let to = build.path("exe");
        let names: Vec<&str> = objects.iter().map(|path| path.to_str().unwrap()).collect();
        compile(&names, mode, &to);
        to
    })
}

/// A source's files in a folder of their own, compiled, with all kernels that are in it.
fn object(source: &KernelSource, mode: Mode) -> PathBuf {
    let names = source.user.as_ref().map(|user| &user.names);
    let key = format!("{} {names:?} {mode:?}", source.title());
    build().made.get(key, || {
        let folder = build().path("d");
        fs::create_dir(&folder).unwrap();
        for file in source.files.iter() {
            fs::write(folder.join(&*file.name), &*file.text).unwrap();
        }
        let main = folder.join(source.main_file());
        let defines = source.defines.iter();
        let mut args: Vec<String> = defines
            .map(|(name, value)| format!("-D{name}={value}"))
            .collect();
        let mut unit = match &source.user {
            // Users' sources have no headers of ours.
            Some(_) => format!("#include \"shim.h\"\n#include {main:?}\n"),
            None => format!("#include {main:?}\n"),
        };
        let named = source.user.iter().flat_map(|user| &user.names);
        for (number, name) in named.enumerate() {
            let unique = unique(source, name);
            unit += &match name.starts_with('&') {
                true => format!("SHIM_VARIABLE({number}, {unique:?}, {name});\n"),
                false => format!("SHIM_NAMED({number}, {unique:?}, ({name}));\n"),
            };
        }
        if source.user.is_none() {
            for name in kernels(&main, &args) {
                unit += &format!("SHIM_ENTRY({name}, {:?});\n", unique(source, &name));
            }
        }
        fs::write(folder.join("unit.cpp"), unit).unwrap();
        args.extend([
            "-c".to_owned(),
            folder.join("unit.cpp").display().to_string(),
        ]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        compile(&args, mode, &folder.join("unit.o"));
        folder.join("unit.o")
    })
}

/// A name that no kernel of another source, or of the same with other macros, has.
fn unique(source: &KernelSource, entry: &str) -> String {
    format!("{entry} of {}", source.title())
}

/// The names of all kernels of a source, as the preprocessor finds them.
fn kernels(main: &Path, defines: &[String]) -> Vec<String> {
    let to = main.with_extension("list");
    let mut args = vec!["-E", "-P", "-DSHIM_LIST", "-xc++"];
    args.extend(defines.iter().map(String::as_str));
    args.push(main.to_str().unwrap());
    compile(&args, Mode::Fast, &to);
    let text = fs::read_to_string(&to).unwrap();
    let after = text.split("shim_kernel ").skip(1);
    let names = after.filter_map(|text| text.split(['(', ' ', '\n']).next());
    names.map(str::to_owned).collect()
}

/// A program as a sequence of words, see `shim.cpp`.
struct Encoder<'a> {
    program: &'a Program,
    bytes: Vec<u8>,
}

impl Encoder<'_> {
    fn word(&mut self, word: u64) {
        self.bytes.extend(word.to_le_bytes());
    }

    fn view(&mut self, view: &View, iterations: &[i64]) {
        let buffer = &self.program.buffers[view.buffer.0];
        self.word(view.buffer.0 as u64);
        self.word(view.offset.at(iterations) as u64 * buffer.dtype.size_bytes() as u64);
    }

    fn element_bytes(&self, view: &View) -> u64 {
        self.program.buffers[view.buffer.0].dtype.size_bytes() as u64
    }

    /// Encodes steps, loops written out; how many.
    fn steps(&mut self, steps: &[Step], iterations: &mut Vec<i64>) -> u64 {
        let mut count = 0;
        for step in steps {
            if let Step::Repeat { count: times, body } = step {
                for iteration in 0..*times as i64 {
                    iterations.push(iteration);
                    count += self.steps(body, iterations);
                    iterations.pop();
                }
                continue;
            }
            count += 1;
            self.step(step, iterations);
        }
        count
    }

    /// A call of a library: its sizes, then its operands, then its scratch memory after how long it
    /// is.
    fn call_library(&mut self, library: &Library, args: &[Arg], iterations: &[i64]) {
        match library {
            Library::Matmul(call) => {
                self.word(3);
                let sizes = [call.batch, call.m, call.n, call.k];
                let matrices = [call.a, call.b, call.out];
                let steps = matrices.map(|it| [it.row_step, it.column_step, it.batch_step]);
                for word in sizes.into_iter().chain(steps.into_iter().flatten()) {
                    self.word(word as u64);
                }
                self.word(u64::from(call.has_bias));
                self.word(call.activation as u64);
                self.word(u64::from(call.scale.get().to_bits()));
                self.word(match call.precision {
                    Precision::Bf16 => Dtype::Bf16.size_bytes() as u64,
                    Precision::F32 | Precision::Tf32 => Dtype::F32.size_bytes() as u64,
                });
                self.word(call.stores.size_bytes() as u64);
            }
            Library::Conv2d(call) => {
                self.word(4);
                let [height, width] = call.out_picture();
                let sizes = [
                    call.pass as usize,
                    call.batch,
                    call.channels_in,
                    call.channels_out,
                ];
                let sizes = sizes.into_iter().chain(call.picture).chain(call.kernel);
                for word in sizes.chain([call.stride, call.padding, height, width]) {
                    self.word(word as u64);
                }
                self.word(u64::from(call.has_bias));
                self.word(call.activation as u64);
            }
            Library::Attention(call) => self.attention(call),
        }
        let (operands, scratch) = args.split_at(library.operand_lens().len());
        for arg in operands {
            if let Arg::Read(view) | Arg::Write(view) = arg {
                self.view(view, iterations);
            }
        }
        match scratch {
            [Arg::Write(view)] => {
                self.word(view.len as u64);
                self.view(view, iterations);
            }
            _ => self.word(0),
        }
    }

    /// What is computed of an attention, its sizes, and how operands lie.
    fn attention(&mut self, call: &Attention) {
        self.word(5);
        let none = Heads::dense(0, 0, 0);
        let (is_gradient, with_sums, [grad_out, out]) = match call.pass {
            AttentionPass::Forward { with_sums } => (false, with_sums, [none; 2]),
            AttentionPass::Gradients { grad_out, out } => (true, false, [grad_out, out]),
        };
        for flag in [is_gradient, with_sums, call.is_causal] {
            self.word(u64::from(flag));
        }
        let heads = [call.heads, call.key_heads()];
        for size in [
            call.batch,
            heads[0],
            heads[1],
            call.queries,
            call.keys,
            call.width,
        ] {
            self.word(size as u64);
        }
        self.word(u64::from(call.scale.get().to_bits()));
        for lies in [call.q, call.k, call.v, grad_out, out] {
            for step in [lies.batch_step, lies.head_step, lies.row_step] {
                self.word(step as u64);
            }
        }
    }

    fn step(&mut self, step: &Step, iterations: &[i64]) {
        match step {
            Step::Launch {
                kernel,
                geometry,
                args,
            } => {
                let program = self.program;
                if let Kernel::Library(library) = &program.kernels[kernel.0] {
                    self.call_library(library, args, iterations);
                    return;
                }
                self.word(0);
                let Kernel::Compiled(source) = &program.kernels[kernel.0] else {
                    panic!("only kernels in CUDA run on the shim")
                };
                let name = unique(source, &source.entry);
                self.word(name.len() as u64);
                self.bytes.extend(name.bytes());
                assert_eq!(geometry.cluster, 1, "the shim has no clusters");
                let sizes = geometry.grid.into_iter().chain(geometry.block);
                for size in sizes.chain([geometry.shared_bytes]) {
                    self.word(u64::from(size));
                }
                self.word(args.len() as u64);
                for arg in args {
                    match arg {
                        Arg::Read(view) | Arg::Write(view) => {
                            self.word(1);
                            self.view(view, iterations);
                        }
                        Arg::Int(index) => {
                            self.word(0);
                            self.word(index.at(iterations) as u64);
                        }
                        Arg::Float(value) => {
                            self.word(0);
                            self.word(u64::from(value.to_bits()));
                        }
                        Arg::Scalar(scalar) => {
                            self.word(0);
                            self.word(scalar.bits());
                        }
                    }
                }
            }
            Step::Copy { from, to } => {
                self.word(1);
                self.view(to, iterations);
                self.view(from, iterations);
                self.word(to.len as u64 * self.element_bytes(to));
            }
            Step::Fill { view, value } => {
                self.word(2);
                self.view(view, iterations);
                self.word(view.len as u64);
                self.word(self.element_bytes(view));
                let dtype = self.program.buffers[view.buffer.0].dtype;
                self.word(Scalar::real(dtype, *value).bits());
            }
            Step::Repeat { .. } => unreachable!("loops are written out"),
        }
    }
}

fn encode(program: &Program, inputs: &Tensors) -> Vec<u8> {
    program.validate().unwrap();
    let bytes = Vec::new();
    let mut encoder = Encoder { program, bytes };
    encoder.word(program.buffers.len() as u64);
    for buffer in &program.buffers {
        encoder.word(buffer.size_bytes());
        encoder.word(u64::from(buffer.result().is_some()));
        if let Binding::Symbol { kernel, name } = &buffer.binding {
            encoder.word(2);
            let Kernel::Compiled(source) = &program.kernels[kernel.0] else {
                panic!("only sources have variables")
            };
            let name = unique(source, name);
            encoder.word(name.len() as u64);
            encoder.bytes.extend(name.bytes());
            continue;
        }
        let is_given = buffer.is_given();
        encoder.word(u64::from(is_given));
        if is_given {
            encoder.bytes.extend(inputs[&*buffer.name].data().bytes());
        }
    }
    encoder.word(program.adjacent.len() as u64);
    for together in &program.adjacent {
        encoder.word(together.len() as u64);
        for buffer in together {
            encoder.word(buffer.0 as u64);
        }
    }
    let steps: Vec<Step> = program
        .prologue
        .iter()
        .chain(&program.steps)
        .cloned()
        .collect();
    let at = encoder.bytes.len();
    encoder.word(0);
    let count = encoder.steps(&steps, &mut Vec::new());
    encoder.bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
    encoder.bytes
}

/// Results, which are all f32.
fn decode(program: &Program, specs: &[TensorSpec], bytes: &[u8]) -> Tensors {
    let mut rest = bytes;
    let mut results = Tensors::new();
    for buffer in &program.buffers {
        let Some(name) = buffer.result() else {
            continue;
        };
        let (own, others) = rest.split_at(buffer.size_bytes() as usize);
        rest = others;
        let spec = specs.iter().find(|spec| spec.name == name).unwrap();
        results.insert(name.to_owned(), tensor_of(own, spec));
    }
    results
}
