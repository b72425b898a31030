//! Functions of a user's source, compiled by this program: for the CPU from C, for GPUs from CUDA.

use std::borrow::Cow;

use sweeper_program::{Dtype, KernelSource, SourceFile, UserOptions};

use super::declaration::{ArgDeclaration, DeclaredLanguage, KernelsDeclaration, LaunchDeclaration};
use super::definition::Shaped;
use super::real_types::{self, RealTypes};
use super::scope::{compile, compile_all};
use super::template::Template;
use sweeper_model::expression::{Expression, Operand, Scope};

/// The main file of a C source: it includes the user's, and calls its functions.
const CALLER: &str = "sweeper_call.c";

/// The main file of a CUDA source whose text is compiled with `double` for `float`.
const IN_F64: &str = "sweeper_in_f64.cu";

/// A launch with its expressions compiled.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) entry: Template,
    pub(super) args: Vec<LaunchArg>,
    pub(super) grid: Vec<Expression>,
    pub(super) block: Vec<Expression>,
    pub(super) shared: Option<Expression>,
    pub(super) cluster: Option<Expression>,
}

/// An argument of a launch with its expression compiled.
#[derive(Debug)]
pub(super) enum LaunchArg {
    Tensor(String, Option<Expression>),
    Scalar(Dtype, Expression),
}

/// The kernels of a backend with their expressions compiled.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) declaration: KernelsDeclaration,
    pub(super) launches: Vec<Launch>,
    pub(super) scratch: Vec<Shaped>,
    defines: Vec<(String, Expression)>,
    options: Vec<Template>,
    files: Vec<SourceFile>,
}

impl Kernels {
    /// # Errors
    /// A sentence: a text is from another version of the program.
    pub(super) fn new(declaration: &KernelsDeclaration, scope: &Scope) -> Result<Self, String> {
        let launches = declaration.launches.iter();
        let scratch = declaration.scratch.iter();
        let defines = declaration
            .defines
            .iter()
            .map(|(name, text)| Ok((name.clone(), compile(text, scope)?)));
        let options = declaration.options.iter();
        let options = options.map(|text| Template::new(text, scope));
        Ok(Kernels {
            launches: launches
                .map(|launch| compiled(launch, scope))
                .collect::<Result<_, _>>()?,
            scratch: scratch
                .map(|scratch| Shaped::new(&scratch.tensor, scope))
                .collect::<Result<_, _>>()?,
            defines: defines.collect::<Result<_, String>>()?,
            options: options.collect::<Result<_, String>>()?,
            files: files(declaration, RealTypes::AsWritten),
            declaration: declaration.clone(),
        })
    }

    /// The source of one of its kernels. All launches of a configuration share one source, which
    /// is asked for `names`.
    ///
    /// # Errors
    /// A macro's expression without a value.
    pub(super) fn source(
        &self,
        launch: usize,
        names: &[String],
        slots: &[Operand<'_>],
        reals: RealTypes,
    ) -> Result<KernelSource, String> {
        let define = |(name, expression): &(String, Expression)| {
            let value = expression.evaluate(slots);
            let value = value.map_err(|error| format!("`{}`: {error}", expression.text()))?;
            Ok((Cow::Owned(name.clone()), value.to_string()))
        };
        let is_c = self.declaration.language == DeclaredLanguage::C;
        let mut distinct = names.to_vec();
        let constants = self.declaration.constants.iter();
        distinct.extend(constants.map(|(name, _)| address_of(name)));
        distinct.sort();
        distinct.dedup();
        Ok(KernelSource {
            language: self.declaration.language.of_kernels(),
            files: Cow::Owned(match reals {
                RealTypes::AsWritten => self.files.clone(),
                RealTypes::InF64 => files(&self.declaration, reals),
            }),
            entry: Cow::Owned(match is_c {
                true => caller(launch),
                false => names[launch].clone(),
            }),
            defines: self
                .defines
                .iter()
                .map(define)
                .collect::<Result<_, String>>()?,
            options: self
                .options
                .iter()
                .map(|option| option.text(slots).map(Cow::Owned))
                .collect::<Result<_, String>>()?,
            user: Some(Box::new(UserOptions {
                libraries: self.declaration.libraries.clone(),
                names: if is_c { Vec::new() } else { distinct },
                is_untrusted: false,
            })),
        })
    }
}

/// The name expression of a variable's address.
pub(super) fn address_of(variable: &str) -> String {
    format!("&{variable}")
}

fn compiled(launch: &LaunchDeclaration, scope: &Scope) -> Result<Launch, String> {
    let optional = |text: &Option<String>| {
        let compiled = text.as_ref().map(|text| compile(text, scope));
        compiled.transpose()
    };
    let arg = |arg: &ArgDeclaration| {
        Ok(match arg {
            ArgDeclaration::Tensor { name, offset } => {
                LaunchArg::Tensor(name.clone(), optional(offset)?)
            }
            ArgDeclaration::Scalar(dtype, text) => LaunchArg::Scalar(*dtype, compile(text, scope)?),
        })
    };
    Ok(Launch {
        entry: Template::new(&launch.entry, scope)?,
        args: launch.args.iter().map(arg).collect::<Result<_, String>>()?,
        grid: compile_all(&launch.grid, scope)?,
        block: compile_all(&launch.block, scope)?,
        shared: optional(&launch.shared)?,
        cluster: optional(&launch.cluster)?,
    })
}

/// The files that a compiler gets.
fn files(declaration: &KernelsDeclaration, reals: RealTypes) -> Vec<SourceFile> {
    let user = declaration.files.first().map_or("", |file| &file.name);
    let user = match reals {
        RealTypes::AsWritten => format!("#include \"{user}\"\n"),
        RealTypes::InF64 => {
            let prelude = real_types::prelude(declaration.language);
            format!("{prelude}#include \"{user}\"\n")
        }
    };
    let own = declaration.files.iter().map(|file| SourceFile {
        name: Cow::Owned(file.name.clone()),
        text: Cow::Owned(file.text.clone()),
    });
    let main = |name, text| SourceFile {
        name: Cow::Borrowed(name),
        text: Cow::Owned(text),
    };
    let main = match (declaration.language, reals) {
        (DeclaredLanguage::Cuda, RealTypes::AsWritten) => None,
        (DeclaredLanguage::Cuda, RealTypes::InF64) => Some(main(IN_F64, user)),
        (DeclaredLanguage::C, _) => Some(main(CALLER, caller_text(declaration, &user, reals))),
    };
    main.into_iter().chain(own).collect()
}

fn caller(launch: usize) -> String {
    format!("sweeper_call_{launch}")
}

/// The text of [`CALLER`]: a function of the form that kernels have for each launch, which hands
/// 64-bit cells on as the user's function takes them.
fn caller_text(declaration: &KernelsDeclaration, user: &str, reals: RealTypes) -> String {
    let mut text = format!(
        "#include <stdint.h>\n#include <string.h>\n{user}\n\
         static inline float sweeper_f32(uint64_t cell) {{\n    \
         uint32_t bits = (uint32_t)cell;\n    float value;\n    \
         memcpy(&value, &bits, sizeof value);\n    return value;\n}}\n\
         static inline double sweeper_f64(uint64_t cell) {{\n    double value;\n    \
         memcpy(&value, &cell, sizeof value);\n    return value;\n}}\n"
    );
    for (number, launch) in declaration.launches.iter().enumerate() {
        let args = launch.args.iter().enumerate();
        let args: Vec<String> = args.map(|(at, arg)| argument(at, arg, reals)).collect();
        text.push_str(&format!(
            "\n__attribute__((visibility(\"default\"))) void {}(const uint64_t *args, \
             uint32_t block) {{\n    (void)args;\n    (void)block;\n    {}({});\n}}\n",
            caller(number),
            launch.entry,
            args.join(", ")
        ));
    }
    text
}

fn argument(at: usize, arg: &ArgDeclaration, reals: RealTypes) -> String {
    let cell = format!("args[{at}]");
    match arg {
        ArgDeclaration::Tensor { .. } => format!("(void *)(uintptr_t){cell}"),
        ArgDeclaration::Scalar(dtype, _) => match reals.dtype(*dtype) {
            Dtype::F32 => format!("sweeper_f32({cell})"),
            Dtype::F64 => format!("sweeper_f64({cell})"),
            Dtype::I8 => format!("(int8_t){cell}"),
            Dtype::I16 => format!("(int16_t){cell}"),
            Dtype::I32 => format!("(int32_t){cell}"),
            Dtype::I64 => format!("(int64_t){cell}"),
            Dtype::U8 | Dtype::Bool => format!("(uint8_t){cell}"),
            Dtype::U16 | Dtype::F16 | Dtype::Bf16 => format!("(uint16_t){cell}"),
            Dtype::U32 => format!("(uint32_t){cell}"),
            Dtype::U64 => cell,
        },
    }
}
