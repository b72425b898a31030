//! Functions in Python: the request to an interpreter to call one for a problem.

pub mod declaration;
pub mod draft;

use serde_json::{Value as Json, json};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Dtype, Phase, Value};

use super::check::Products;
use super::declaration::Initial;
use super::program::ProblemTensors;
use super::scope::{compile, compile_all, size};
use crate::files::python::PythonFile;
use declaration::{Load, PythonArgument, PythonDeclaration, PythonSource};
use sweeper_model::expression::{Expression, Operand, Scope};

/// A function with its expressions compiled.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) declaration: PythonDeclaration,
    args: Vec<Argument>,
    kwargs: Vec<(String, Argument)>,
    /// Tuned values that are arguments by their own names, with their places among all.
    tuned: Vec<(usize, String)>,
}

/// An argument with its expressions compiled.
#[derive(Debug)]
enum Argument {
    Tensor(String, Option<Vec<Expression>>),
    Value(Expression),
    Literal(Value),
    List(Vec<Argument>),
}

impl Function {
    /// `tune` are the tuned values, whose slots come after those of `parameters`.
    ///
    /// # Errors
    /// A sentence: a text is from another version of the program.
    pub(super) fn new(
        declaration: &PythonDeclaration,
        scope: &Scope,
        parameters: usize,
        tune: &[(String, Vec<Value>)],
    ) -> Result<Self, String> {
        let args = declaration.args.iter();
        let args: Vec<Argument> = args
            .map(|held| Argument::new(held, scope))
            .collect::<Result<_, _>>()?;
        let kwargs = declaration.kwargs.iter();
        let kwargs: Vec<(String, Argument)> = kwargs
            .map(|(name, held)| Ok((name.clone(), Argument::new(held, scope)?)))
            .collect::<Result<_, String>>()?;
        let mut used = Vec::new();
        let all = args.iter().chain(kwargs.iter().map(|(_, held)| held));
        all.for_each(|held| held.add_slots(&mut used));
        let tuned = tune.iter().enumerate();
        let tuned = tuned
            .map(|(at, (name, _))| (parameters + at, name.clone()))
            .filter(|(slot, _)| !used.contains(slot));
        Ok(Function {
            declaration: declaration.clone(),
            args,
            kwargs,
            tuned: tuned.collect(),
        })
    }

    /// The request to an interpreter for a call on a problem.
    ///
    /// # Errors
    /// An output that it does not compute, a tensor that the phase lacks, an expression without a
    /// value.
    pub(super) fn request(
        &self,
        mutates: &[String],
        tensors: &ProblemTensors<'_>,
        slots: &[Operand<'_>],
    ) -> Result<String, String> {
        let declared = &self.declaration;
        let known = Known { tensors, slots };
        let args = known.arguments(&self.args)?;
        let kwargs = self.kwargs.iter();
        let kwargs = kwargs.map(|(name, held)| Ok(json!([name, known.argument(held)?])));
        let mut kwargs: Vec<Json> = kwargs.collect::<Result<_, String>>()?;
        // Those of a model are constants of its source.
        let tuned = self.tuned.iter().filter(|_| declared.model.is_none());
        kwargs.extend(tuned.map(|(slot, name)| json!([name, { "value": plain(&slots[*slot]) }])));
        let outputs = tensors
            .outputs
            .iter()
            .map(|spec| self.output(spec, tensors));
        let outputs: Vec<Json> = outputs.collect::<Result<_, String>>()?;
        let place = &declared.place;
        let mut request = json!({
            "exe": place.exe,
            "path": place.folders,
            "what": declared.shown(),
            "source": self.source(),
            "entry": declared.entry,
            "arrays": declared.arrays,
            "args": args,
            "kwargs": kwargs,
            "returns": declared.returns,
            "outputs": outputs,
            "mutates": mutates,
            "phase": tensors.phase.name(),
            "model": self.model(tensors, slots),
            "torch_compile": declared.torch_compile,
            "autograd": match tensors.phase {
                Phase::Forward => &None,
                _ => &declared.autograd,
            },
        });
        // As it was for all others, so that their identities stay.
        if tensors.products == Products::Tf32 {
            request["tf32"] = json!(true);
        }
        Ok(request.to_string())
    }

    fn source(&self) -> Json {
        match &self.declaration.source {
            PythonSource::Module(name) => json!({ "module": name }),
            PythonSource::Missing(_) => Json::Null,
            PythonSource::Files {
                files,
                load,
                module,
            } => {
                let mut source = self.files(files, *load);
                if let Some(module) = module {
                    source["module"] = json!(module);
                }
                source
            }
        }
    }

    fn files(&self, files: &[PythonFile], load: Load) -> Json {
        let place = &self.declaration.place;
        let files = files.iter().map(|file| {
            let folder = match file.folder.as_str() {
                "" => &place.folder,
                folder => folder,
            };
            let path = format!("{folder}/{}", file.name);
            json!({ "module": file.module, "path": path, "text": file.text })
        });
        let load = match load {
            Load::All => "all",
            Load::Definitions => "definitions",
        };
        json!({ "files": files.collect::<Vec<_>>(), "load": load })
    }

    /// How its model is made, if it is one: constants of the sources have values, weights and
    /// results a type.
    fn model(&self, tensors: &ProblemTensors<'_>, slots: &[Operand<'_>]) -> Json {
        let Some(model) = &self.declaration.model else {
            return Json::Null;
        };
        let constants = model.constants.iter().zip(slots);
        let constants = constants.map(|(name, value)| (name.clone(), plain(value)));
        let tuned = self.tuned.iter();
        let tuned = tuned.map(|(slot, name)| (name.clone(), plain(&slots[*slot])));
        let dtype = real_type(tensors.outputs.iter().chain(tensors.inputs));
        json!({
            "problem": match model.problem.as_slice() {
                [] => self.source(),
                files => self.files(files, Load::All),
            },
            "constants": constants.collect::<serde_json::Map<_, _>>(),
            "tuned": tuned.collect::<serde_json::Map<_, _>>(),
            "dtype": dtype.map(Dtype::name),
            "weights": dtype.map(Dtype::name),
        })
    }

    /// An output of the problem in this phase.
    fn output(&self, spec: &TensorSpec, tensors: &ProblemTensors<'_>) -> Result<Json, String> {
        let declared = &self.declaration;
        let passed = declared.arguments().any(|held| held.is_of(&spec.name));
        let returned = declared.returns.contains(&spec.name);
        let derives = tensors.phase != Phase::Forward;
        let gradients = declared.autograd.iter().filter(|_| derives);
        let mut gradients = gradients.flat_map(|held| &held.by);
        if !passed && !returned && !gradients.any(|(_, result)| *result == spec.name) {
            return Err(format!("it does not compute `{}`", spec.name));
        }
        let initial = match tensors.initial.get(&*spec.name) {
            None | Some(Initial::Poison) => Json::Null,
            Some(Initial::Constant(value)) => json!({ "value": value }),
            Some(Initial::Input(name)) => json!({ "input": name }),
        };
        Ok(json!({
            "name": spec.name,
            "dtype": spec.dtype.name(),
            "shape": spec.shape,
            "passed": passed,
            "initial": initial,
        }))
    }
}

impl Argument {
    fn new(declared: &PythonArgument, scope: &Scope) -> Result<Self, String> {
        Ok(match declared {
            PythonArgument::Tensor { name, shape } => {
                let shape = shape.as_ref().map(|shape| compile_all(shape, scope));
                Argument::Tensor(name.clone(), shape.transpose()?)
            }
            PythonArgument::Expression(text) => Argument::Value(compile(text, scope)?),
            PythonArgument::Literal(value) => Argument::Literal(value.clone()),
            PythonArgument::List(items) => {
                let items = items.iter().map(|item| Argument::new(item, scope));
                Argument::List(items.collect::<Result<_, _>>()?)
            }
        })
    }

    /// Adds the slots that its expressions use.
    fn add_slots(&self, used: &mut Vec<usize>) {
        match self {
            Argument::Tensor(_, shape) => {
                used.extend(shape.iter().flatten().flat_map(Expression::slots).copied());
            }
            Argument::Value(expression) => used.extend_from_slice(expression.slots()),
            Argument::Literal(_) => {}
            Argument::List(items) => items.iter().for_each(|item| item.add_slots(used)),
        }
    }
}

/// The tensors and values that arguments of a call follow from.
struct Known<'a> {
    tensors: &'a ProblemTensors<'a>,
    slots: &'a [Operand<'a>],
}

impl Known<'_> {
    /// Arguments one by one; the name of a series stands for all of its tensors.
    fn arguments(&self, arguments: &[Argument]) -> Result<Vec<Json>, String> {
        let mut found = Vec::new();
        for argument in arguments {
            match argument {
                Argument::Tensor(name, None) if !self.series(name).is_empty() => {
                    let names = self.series(name).into_iter();
                    found.extend(names.map(|name| json!({ "tensor": name })));
                }
                argument => found.push(self.argument(argument)?),
            }
        }
        Ok(found)
    }

    /// The inputs of a series: a workload that lists `wN` has `w1`, `w2` and so on.
    fn series(&self, name: &str) -> Vec<&str> {
        let Some(stem) = name.strip_suffix('N') else {
            return Vec::new();
        };
        let inputs = self.tensors.inputs.iter().map(|spec| spec.name.as_str());
        let is_of = |input: &&str| {
            let number = input.strip_prefix(stem);
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        inputs.filter(is_of).collect()
    }

    fn argument(&self, argument: &Argument) -> Result<Json, String> {
        Ok(match argument {
            Argument::Tensor(name, shape) => self.tensor(name, shape.as_deref())?,
            Argument::Value(expression) => {
                let value = expression.evaluate(self.slots);
                let value = value.map_err(|error| format!("`{}`: {error}", expression.text()))?;
                json!({ "value": plain(&value) })
            }
            Argument::Literal(value) => json!({ "value": value }),
            Argument::List(items) => json!({ "list": self.arguments(items)? }),
        })
    }

    fn tensor(&self, name: &str, shape: Option<&[Expression]>) -> Result<Json, String> {
        let mut specs = self.tensors.inputs.iter().chain(self.tensors.outputs);
        let spec = specs
            .find(|spec| spec.name == name)
            .ok_or_else(|| format!("this phase of the problem has no tensor `{name}`"))?;
        let Some(shape) = shape else {
            return Ok(json!({ "tensor": name }));
        };
        let extents = shape.iter().map(|extent| size(extent, self.slots));
        let extents: Vec<u64> = extents.collect::<Result<_, _>>()?;
        let elements = extents
            .iter()
            .try_fold(1u64, |all, &extent| all.checked_mul(extent));
        if elements != Some(spec.elements()) {
            return Err(format!(
                "`{name}` of {:?} has no shape {extents:?}: {} elements",
                spec.shape,
                spec.elements()
            ));
        }
        Ok(json!({ "tensor": name, "shape": extents }))
    }
}

/// The type of the first tensor of real numbers.
pub(super) fn real_type<'t>(specs: impl IntoIterator<Item = &'t TensorSpec>) -> Option<Dtype> {
    let mut types = specs.into_iter().map(|spec| spec.dtype);
    types.find(|dtype| dtype.is_real())
}

fn plain(value: &Operand<'_>) -> Json {
    match value {
        Operand::Bool(value) => json!(value),
        Operand::Int(value) => json!(value),
        Operand::Float(value) => json!(value),
        Operand::Text(value) => json!(value),
    }
}
