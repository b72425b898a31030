//! A user's source and its configurations: one for each combination of tuned values.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use sweeper_program::workload::ParameterInfo;
use sweeper_program::{KernelSource, SourceFile, UserOptions, Value};

use super::declaration::{
    ArgDeclaration, BackendDeclaration, DeclaredLanguage, LaunchDeclaration, Requirement,
};
use super::definition::Shaped;
use super::scope::{LIMITS, compile, compile_all, number, problem_scope};
use crate::expression::{Expression, Kind, Operand, Scope};
use sweeper_program::Dtype;

/// The main file of a C source: it includes the user's, and calls its functions.
const CALLER: &str = "sweeper_call.c";

/// The names that expressions of a backend use: parameters, tuned values, limits of the device.
pub(crate) fn backend_scope(parameters: &[ParameterInfo], tune: &[(String, Vec<Value>)]) -> Scope {
    let mut scope = problem_scope(parameters);
    let tuned = tune.iter().map(|(name, values)| {
        let kind = values.first().map_or(Kind::Int, Kind::of);
        number(name, kind)
    });
    scope.names.extend(tuned);
    let limits = LIMITS.iter().map(|name| number(name, Kind::Int));
    scope.names.extend(limits);
    scope
}

/// The most combinations of tuned values that are looked at.
const MOST_COMBINATIONS: usize = 1_000_000;

/// Every combination of tuned values that conditions over these alone allow, the last name
/// fastest; one without values where nothing is tuned. Where a sample is wanted, so many of them:
/// the first, which is the default, and those whose names have the least digests, so that a sample
/// of a larger space has most of the same.
///
/// `None` where more than [`MOST_COMBINATIONS`] have to be looked at.
pub(crate) fn configurations(
    parameters: usize,
    tune: &[(String, Vec<Value>)],
    rules: &[Expression],
    sample: Option<u32>,
) -> Option<Vec<Vec<Value>>> {
    let mut combinations: Vec<Vec<Value>> = vec![Vec::new()];
    for (at, (_, values)) in tune.iter().enumerate() {
        if combinations.len().checked_mul(values.len())? > MOST_COMBINATIONS {
            return None;
        }
        let extended = combinations.iter().flat_map(|held| {
            values.iter().map(move |value| {
                let mut longer = held.clone();
                longer.push(value.clone());
                longer
            })
        });
        combinations = extended.collect();
        // As soon as a condition has all of its values: what it leaves out is not extended.
        let (new, known) = (parameters + at, parameters..=parameters + at);
        let is_due = |rule: &&Expression| {
            let slots = rule.slots();
            slots.contains(&new) && slots.iter().all(|slot| known.contains(slot))
        };
        for rule in rules.iter().filter(is_due) {
            combinations.retain(|values| {
                let mut slots = vec![Operand::Int(0); parameters];
                slots.extend(values.iter().map(Operand::from));
                rule.holds(&slots) != Ok(false)
            });
        }
    }
    if let Some(sample) = sample.map(|sample| sample as usize)
        && combinations.len() > sample
    {
        let digest = |values: &Vec<Value>| Sha256::digest(format!("{values:?}"));
        let mut others = combinations.split_off(1);
        others.sort_by_cached_key(digest);
        combinations.extend(others.into_iter().take(sample.saturating_sub(1)));
    }
    Some(combinations)
}

/// A launch with its expressions compiled.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) entry: Entry,
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

/// The name of a function, in which expressions stand between texts.
#[derive(Debug)]
pub(super) struct Entry {
    /// Texts, each with the expression after it; the last has none.
    parts: Vec<(String, Option<Expression>)>,
}

impl Entry {
    /// # Errors
    /// A brace without its other, or what stands between two.
    pub(super) fn new(text: &str, scope: &Scope) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((inside, behind)) = after.split_once('}') else {
                return Err(format!("`{text}` has a `{{` that is not closed"));
            };
            parts.push((before.to_owned(), Some(compile(inside, scope)?)));
            rest = behind;
        }
        parts.push((rest.to_owned(), None));
        Ok(Entry { parts })
    }

    /// The name for some values.
    ///
    /// # Errors
    /// An expression without a value.
    pub(super) fn name(&self, slots: &[Operand<'_>]) -> Result<String, String> {
        let mut name = String::new();
        for (text, expression) in &self.parts {
            name.push_str(text);
            if let Some(expression) = expression {
                let value = expression.evaluate(slots);
                let value = value.map_err(|error| format!("`{}`: {error}", expression.text()))?;
                name.push_str(&value.to_string());
            }
        }
        Ok(name)
    }
}

/// A backend with its expressions compiled.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) declaration: BackendDeclaration,
    pub(super) launches: Vec<Launch>,
    pub(super) scratch: Vec<Shaped>,
    /// Conditions, with the reasons for configurations that do not meet them.
    pub(super) require: Vec<(Expression, String)>,
    defines: Vec<(String, Expression)>,
    files: Vec<SourceFile>,
    /// Tuned values of each configuration, and its name.
    pub(super) configurations: Vec<(Vec<Value>, String)>,
}

impl Backend {
    /// # Errors
    /// A sentence: a text is from another version of the program.
    pub(super) fn new(
        declaration: BackendDeclaration,
        parameters: &[ParameterInfo],
    ) -> Result<Self, String> {
        let scope = backend_scope(parameters, &declaration.tune);
        let launches = declaration.launches.iter();
        let require = declaration
            .require
            .iter()
            .map(|Requirement { that, reason }| Ok((compile(that, &scope)?, reason.clone())));
        let require: Vec<(Expression, String)> = require.collect::<Result<_, String>>()?;
        let rules: Vec<Expression> = require.iter().map(|(rule, _)| rule.clone()).collect();
        let defines = declaration
            .defines
            .iter()
            .map(|(name, text)| Ok((name.clone(), compile(text, &scope)?)));
        let scratch = declaration.scratch.iter();
        Ok(Backend {
            launches: launches
                .map(|launch| compiled(launch, &scope))
                .collect::<Result<_, _>>()?,
            scratch: scratch
                .map(|scratch| Shaped::new(&scratch.tensor, &scope))
                .collect::<Result<_, _>>()?,
            require,
            defines: defines.collect::<Result<_, String>>()?,
            files: files(&declaration),
            configurations: configurations(
                parameters.len(),
                &declaration.tune,
                &rules,
                declaration.sample,
            )
            .unwrap_or_default()
            .into_iter()
            .map(|values| {
                let name = configured(&declaration, &values);
                (values, name)
            })
            .collect(),
            declaration,
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
    ) -> Result<KernelSource, String> {
        let define = |(name, expression): &(String, Expression)| {
            let value = expression.evaluate(slots);
            let value = value.map_err(|error| format!("`{}`: {error}", expression.text()))?;
            Ok((Cow::Owned(name.clone()), value.to_string()))
        };
        let is_c = self.declaration.language == DeclaredLanguage::C;
        let mut distinct = names.to_vec();
        distinct.sort();
        distinct.dedup();
        Ok(KernelSource {
            language: self.declaration.language.of_kernels(),
            files: Cow::Owned(self.files.clone()),
            entry: Cow::Owned(match is_c {
                true => caller(launch),
                false => names[launch].clone(),
            }),
            defines: self
                .defines
                .iter()
                .map(define)
                .collect::<Result<_, String>>()?,
            user: Some(Box::new(UserOptions {
                options: self.declaration.options.clone(),
                libraries: self.declaration.libraries.clone(),
                names: if is_c { Vec::new() } else { distinct },
            })),
        })
    }
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
        entry: Entry::new(&launch.entry, scope)?,
        args: launch.args.iter().map(arg).collect::<Result<_, String>>()?,
        grid: compile_all(&launch.grid, scope)?,
        block: compile_all(&launch.block, scope)?,
        shared: optional(&launch.shared)?,
        cluster: optional(&launch.cluster)?,
    })
}

/// The name of a configuration: `add{block_size=256}`.
fn configured(declaration: &BackendDeclaration, values: &[Value]) -> String {
    if values.is_empty() {
        return declaration.name.clone();
    }
    let pairs = declaration.tune.iter().zip(values);
    let pairs: Vec<String> = pairs
        .map(|((name, _), value)| format!("{name}={value}"))
        .collect();
    format!("{}{{{}}}", declaration.name, pairs.join(","))
}

/// The files that a compiler gets.
fn files(declaration: &BackendDeclaration) -> Vec<SourceFile> {
    let own = declaration.files.iter().map(|file| SourceFile {
        name: Cow::Owned(file.name.clone()),
        text: Cow::Owned(file.text.clone()),
    });
    match declaration.language {
        DeclaredLanguage::Cuda => own.collect(),
        DeclaredLanguage::C => {
            let main = SourceFile {
                name: Cow::Borrowed(CALLER),
                text: Cow::Owned(caller_text(declaration)),
            };
            std::iter::once(main).chain(own).collect()
        }
    }
}

fn caller(launch: usize) -> String {
    format!("sweeper_call_{launch}")
}

/// The text of [`CALLER`]: a function of the form that kernels have for each launch, which hands
/// 64-bit cells on as the user's function takes them.
fn caller_text(declaration: &BackendDeclaration) -> String {
    let user = declaration.files.first().map_or("", |file| &file.name);
    let mut text = format!(
        "#include <stdint.h>\n#include <string.h>\n#include \"{user}\"\n\n\
         static inline float sweeper_f32(uint64_t cell) {{\n    \
         uint32_t bits = (uint32_t)cell;\n    float value;\n    \
         memcpy(&value, &bits, sizeof value);\n    return value;\n}}\n\
         static inline double sweeper_f64(uint64_t cell) {{\n    double value;\n    \
         memcpy(&value, &cell, sizeof value);\n    return value;\n}}\n"
    );
    for (number, launch) in declaration.launches.iter().enumerate() {
        let args = launch.args.iter().enumerate();
        let args: Vec<String> = args.map(|(at, arg)| argument(at, arg)).collect();
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

fn argument(at: usize, arg: &ArgDeclaration) -> String {
    let cell = format!("args[{at}]");
    match arg {
        ArgDeclaration::Tensor { .. } => format!("(void *)(uintptr_t){cell}"),
        ArgDeclaration::Scalar(dtype, _) => match dtype {
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
