//! A declared problem: tensors, right answer, tolerance, work.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rayon::prelude::*;
use sweeper_program::check::{Check, Metric, TensorCheck, as_f64, compare};
use sweeper_program::inputs::InputKey;
use sweeper_program::spread::{self, Spread};
use sweeper_program::workload::{AnswerSource, ParameterInfo, TensorSpec, Work};
use sweeper_program::{
    Dtype, Element, Foreign, Phase, Runner, Tensor, Tensors, Value, with_element_type,
};
use sweeper_workloads::showing::make_rows;

use super::check::{PeerDeclaration, Products, Reference, Tolerance};
use super::declaration::{Initial, ProblemDeclaration, TensorDeclaration};
use super::fill::Filler;
use super::program::ProblemTensors;
use super::python::{Function, real_type};
use super::real_types::RealTypes;
use super::reference::{Elementwise, given, reference_scope, strides};
use super::scope::{compile, compile_all, fill_scope, operands, problem_scope, real, reals, size};
use super::template::Template;
use crate::files::expected::{ExpectedFile, FileReference};
use sweeper_model::expression::{Expression, Operand, Precision};
use sweeper_model::identity::Digest;

/// The tolerance of an output whose reference has no derived one.
const EXACT: f64 = 0.0;

/// A tensor with its shape's expressions compiled.
#[derive(Debug)]
pub(super) struct Shaped {
    name: String,
    dtype: Option<Dtype>,
    shape: Vec<Expression>,
}

impl Shaped {
    /// # Errors
    /// A sentence: a text is from another version of the program.
    pub(super) fn new(
        declared: &TensorDeclaration,
        scope: &sweeper_model::expression::Scope,
    ) -> Result<Self, String> {
        Ok(Shaped {
            name: declared.name.clone(),
            dtype: declared.dtype,
            shape: compile_all(&declared.shape, scope)?,
        })
    }

    /// The tensor of a problem.
    ///
    /// # Errors
    /// An extent that is not a size, in a sentence.
    pub(super) fn spec(&self, dtype: Dtype, slots: &[Operand<'_>]) -> Result<TensorSpec, String> {
        let extent = |expression: &Expression| {
            let extent = size(expression, slots);
            extent
                .map(|extent| extent as usize)
                .map_err(|reason| format!("`{}`: {reason}", self.name))
        };
        let shape: Vec<usize> = self.shape.iter().map(extent).collect::<Result<_, _>>()?;
        let elements = shape
            .iter()
            .try_fold(1usize, |all, &extent| all.checked_mul(extent));
        if elements.is_none_or(|elements| elements > isize::MAX as usize / 8) {
            return Err(format!("`{}` of {shape:?} is too large", self.name));
        }
        Ok(TensorSpec {
            name: self.name.clone(),
            dtype: self.dtype.unwrap_or(dtype),
            shape,
        })
    }
}

/// A declared problem without its parameters.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) declaration: ProblemDeclaration,
    pub(super) digest: Digest,
    inputs: Vec<Shaped>,
    fills: Vec<Filler>,
    /// The function that makes the inputs in place of fills.
    inputs_from: Option<Function>,
    outputs: Vec<Shaped>,
    reference: Option<Elementwise>,
    /// The reference in Python.
    function: Option<Function>,
    /// The name of the file with the right outputs.
    file: Option<Template>,
    judge: Option<Function>,
    flops: Option<Expression>,
    bytes: Option<Expression>,
}

/// The tensors and the work of a declared problem whose parameters are given.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) values: Vec<Value>,
    pub(super) inputs: Vec<TensorSpec>,
    pub(super) outputs: Vec<TensorSpec>,
    pub(super) work: Work,
}

impl Definition {
    /// # Errors
    /// A sentence: a text is from another version of the program.
    pub(super) fn new(
        declaration: ProblemDeclaration,
        parameters: &[ParameterInfo],
    ) -> Result<Self, String> {
        let scope = problem_scope(parameters);
        let with_index = fill_scope(parameters);
        let inputs = declaration.inputs.iter();
        let outputs = declaration.outputs.iter();
        let names = declaration.inputs.iter().map(|input| &*input.tensor.name);
        let function = |function| Function::new(function, &scope, parameters.len(), &[]);
        let (mut reference, mut by_function, mut file) = (None, None, None);
        match &declaration.reference {
            Reference::Expr(texts) => {
                let scope = reference_scope(parameters, names);
                reference = Some(Elementwise::new(texts, &scope)?);
            }
            Reference::Python(declared) => by_function = Some(function(declared)?),
            Reference::File(declared) => file = Some(Template::new(&declared.name, &scope)?),
            Reference::Backend(_) | Reference::None => {}
        }
        let inputs_from = declaration.inputs_from.as_ref().map(function).transpose()?;
        let judge = declaration.judge.as_ref();
        let judge = judge.map(|judge| function(&judge.function)).transpose()?;
        let optional = |text: &Option<String>| {
            let compiled = text.as_ref().map(|text| compile(text, &scope));
            compiled.transpose()
        };
        Ok(Definition {
            digest: declaration.digest(),
            inputs: inputs
                .clone()
                .map(|input| Shaped::new(&input.tensor, &scope))
                .collect::<Result<_, _>>()?,
            fills: inputs
                .map(|input| Filler::new(&input.fill, &with_index))
                .collect::<Result<_, _>>()?,
            inputs_from,
            outputs: outputs
                .map(|output| Shaped::new(&output.tensor, &scope))
                .collect::<Result<_, _>>()?,
            reference,
            function: by_function,
            file,
            judge,
            flops: optional(&declaration.flops)?,
            bytes: optional(&declaration.bytes)?,
            declaration,
        })
    }

    /// The tensors and the work for these values of the parameters.
    ///
    /// # Errors
    /// A shape or an amount of work that is none.
    pub(super) fn sizes(&self, values: Vec<Value>, dtype: Dtype) -> Result<Sizes, String> {
        let slots = operands(&values);
        let specs = |tensors: &[Shaped]| -> Result<Vec<TensorSpec>, String> {
            tensors
                .iter()
                .map(|tensor| tensor.spec(dtype, &slots))
                .collect()
        };
        let (inputs, outputs) = (specs(&self.inputs)?, specs(&self.outputs)?);
        let once = inputs.iter().chain(&outputs).map(TensorSpec::size_bytes);
        let once = once.sum::<u64>() as f64;
        let amount = |expression: &Option<Expression>, default: f64| match expression {
            Some(expression) => real(expression, &slots),
            None => Ok(default),
        };
        let work = Work {
            flops: amount(&self.flops, 0.0)?,
            compulsory_bytes: amount(&self.bytes, once)?,
        };
        drop(slots);
        Ok(Sizes {
            values,
            inputs,
            outputs,
            work,
        })
    }

    /// The inputs of a problem.
    pub(super) fn generate(&self, sizes: &Sizes, key: &InputKey) -> Tensors {
        let parameters = reals(&sizes.values);
        let tensors = sizes.inputs.iter().zip(&self.fills).map(|(spec, fill)| {
            let row = spec.shape.last().copied().unwrap_or(1);
            let len = spec.elements() as usize;
            let stream = key.stream(&spec.name);
            let data = fill.data(stream, spec.dtype, len, row, &parameters);
            (spec.name.clone(), Tensor::new(spec.shape.clone(), data))
        });
        tensors.collect()
    }

    /// Inputs that show mistakes, where it is known what rounding does to them: the first that is
    /// normal numbers, of rows if there is such a one, has rows of all kinds.
    pub(super) fn showing(&self, sizes: &Sizes, key: &InputKey) -> Option<Tensors> {
        // A judge of the user may know no other inputs than those of the manifest.
        let has_spreads = sizes.outputs.iter().all(|spec| self.has_spread(spec));
        let is_judged = has_spreads && self.answers_any_inputs() && self.judge.is_none();
        let inputs = sizes.inputs.iter().zip(&self.fills);
        let normal = inputs.filter(|(spec, fill)| spec.dtype.is_real() && fill.is_normal());
        let normal: Vec<&TensorSpec> = normal.map(|(spec, _)| spec).collect();
        let mut of_rows = normal.iter().filter(|spec| spec.shape.len() > 1);
        let spec = of_rows.next().or(normal.first())?;
        if !is_judged || self.inputs_from.is_some() {
            return None;
        }
        let mut inputs = self.generate(sizes, &key.other("showing"));
        let plain = as_f64(inputs.get(&spec.name)?);
        let mut values: Vec<f32> = plain.iter().map(|&value| value as f32).collect();
        make_rows(&mut values, &spec.shape, &key.stream("showing"));
        let data = with_element_type!(spec.dtype, T => {
            let elements = values.iter().map(|&value| T::from_f64(value.into()));
            Element::data(elements.collect::<Vec<T>>())
        });
        let shown = Tensor::new(spec.shape.clone(), data);
        inputs.insert(spec.name.clone(), shown);
        Some(inputs)
    }

    /// The call of the function that makes the inputs, if there is one.
    pub(super) fn foreign_inputs(&self, sizes: &Sizes, dtype: Dtype, seed: u32) -> Option<Foreign> {
        let function = self.inputs_from.as_ref()?;
        let mut call = foreign("the inputs", function, sizes, (&[], &[]), Products::F32)?;
        let mut request: serde_json::Value = serde_json::from_str(&call.request).ok()?;
        request["seed"] = seed.into();
        // It may choose by the case's type where an input has it.
        let is_open = self.inputs.iter().any(|input| input.dtype.is_none());
        request["dtype"] = is_open.then(|| dtype.name()).into();
        let inputs = sizes.inputs.iter();
        let inputs = inputs.map(|spec| {
            serde_json::json!({
                "name": spec.name,
                "dtype": spec.dtype.name(),
                "shape": spec.shape,
            })
        });
        request["inputs"] = inputs.collect();
        call.request = request.to_string();
        Some(call)
    }

    /// The right answer, with its spread where the tolerance follows from that; empty where there
    /// is none.
    pub(super) fn oracle(&self, sizes: &Sizes, inputs: &Tensors) -> Tensors {
        let mut answers = Tensors::new();
        let Some(reference) = &self.reference else {
            return answers;
        };
        let given = given(&sizes.inputs, inputs);
        let parameters = reals(&sizes.values);
        for spec in &sizes.outputs {
            let exact = reference.evaluate(spec, &parameters, &given, Precision::F64);
            let Some(exact) = exact else {
                continue;
            };
            if self.has_spread(spec) {
                let probes = reference.probes(spec, &parameters, &given);
                let spread = Spread::from_probes(spec.dtype, &spec.shape, &exact, &probes);
                answers.insert(spread::name_of(&spec.name), spread.into_tensor());
            }
            answers.insert(spec.name.clone(), Tensor::f64(spec.shape.clone(), exact));
        }
        answers
    }

    /// Whether the tolerance of an output follows from what rounding does to it.
    fn has_spread(&self, output: &TensorSpec) -> bool {
        let in_f64 = |peer: &PeerDeclaration| peer.is_in_f64;
        let peer = self.declaration.reference.peer();
        let is_evaluated = self.answers_any_inputs() || peer.is_some_and(in_f64);
        let is_derived = self.declaration.tolerance == Tolerance::Derived;
        is_evaluated && is_derived && output.dtype.is_real()
    }

    /// Whether the reference can be asked about other inputs than the published ones.
    fn answers_any_inputs(&self) -> bool {
        self.reference.is_some() || self.function.is_some()
    }

    /// The call of the reference in Python, if there is one: with real numbers of type f64.
    pub(super) fn foreign_oracle(&self, sizes: &Sizes) -> Option<Foreign> {
        let function = self.function.as_ref()?;
        let dtype = Dtype::F64;
        let typed = |specs: &[TensorSpec]| -> Vec<TensorSpec> {
            let typed = |spec: &TensorSpec| TensorSpec {
                dtype: if spec.dtype.is_real() {
                    dtype
                } else {
                    spec.dtype
                },
                ..spec.clone()
            };
            specs.iter().map(typed).collect()
        };
        let (inputs, outputs) = (typed(&sizes.inputs), typed(&sizes.outputs));
        let tensors = (inputs.as_slice(), outputs.as_slice());
        let products = self.declaration.products;
        let mut call = foreign("the reference", function, sizes, tensors, products)?;
        let judged = real_type(sizes.outputs.iter().chain(&sizes.inputs));
        let mut request: serde_json::Value = serde_json::from_str(&call.request).ok()?;
        if function.declaration.model.is_some() {
            // Weights are rounded as those of the measured models are.
            request["model"]["weights"] = judged.map(Dtype::name).into();
        }
        let is_derived = self.declaration.tolerance == Tolerance::Derived;
        request["judged"] = judged.map_or(Dtype::F64.name(), Dtype::name).into();
        request["with_spread"] = is_derived.into();
        call.request = request.to_string();
        Some(call)
    }

    /// The call of the judge, if there is one. Tensors are handed over with it.
    pub(super) fn judge(&self, sizes: &Sizes) -> Option<Foreign> {
        let mut call = foreign(
            "the judge",
            self.judge.as_ref()?,
            sizes,
            (&[], &[]),
            Products::F32,
        )?;
        let mut request: serde_json::Value = serde_json::from_str(&call.request).ok()?;
        request["bound"] = self.declaration.judge.as_ref()?.bound.into();
        call.request = request.to_string();
        Some(call)
    }

    /// Where right outputs come from that are neither computed here nor by a function.
    pub(super) fn answer_source(&self, sizes: &Sizes) -> Option<AnswerSource> {
        match &self.declaration.reference {
            Reference::Backend(peer) => {
                let is_derived = self.declaration.tolerance == Tolerance::Derived;
                Some(AnswerSource::Backend {
                    name: peer.program_name(),
                    judged: (peer.is_in_f64 && is_derived).then(|| peer.name.clone()),
                })
            }
            Reference::File(reference) => {
                let file = self.expected_file(reference, sizes).ok()?;
                Some(AnswerSource::File {
                    path: format!("{}/{}", reference.folder, file.name),
                    sha256: file.sha256.clone(),
                })
            }
            Reference::Expr(_) | Reference::Python(_) | Reference::None => None,
        }
    }

    /// What contradicts itself in the declaration of this problem, if something does: an output and
    /// the input that it begins with, or the reference and the tensors.
    pub(super) fn objection(&self, sizes: &Sizes) -> Option<String> {
        let of_initial = || self.initial_objection(sizes);
        let of_broadcast = || self.broadcast_objection(sizes);
        let of_file = || self.file_objection(sizes);
        of_initial().or_else(of_broadcast).or_else(of_file)
    }

    /// Why an output can't begin as a copy of an input.
    fn initial_objection(&self, sizes: &Sizes) -> Option<String> {
        let outputs = self.declaration.outputs.iter().zip(&sizes.outputs);
        outputs.into_iter().find_map(|(declared, output)| {
            let Initial::Input(name) = &declared.initial else {
                return None;
            };
            let input = sizes.inputs.iter().find(|input| input.name == *name)?;
            if (input.dtype, &input.shape) == (output.dtype, &output.shape) {
                return None;
            }
            Some(format!(
                "`outputs.{}.init`: `{name}` is {} {:?}, and the output {} {:?}",
                output.name,
                input.dtype.name(),
                input.shape,
                output.dtype.name(),
                output.shape
            ))
        })
    }

    /// Why an elementwise reference has no value for each element of an output.
    fn broadcast_objection(&self, sizes: &Sizes) -> Option<String> {
        let reference = self.reference.as_ref()?;
        let outputs = sizes.outputs.iter();
        let mut pairs = outputs.flat_map(|output| sizes.inputs.iter().map(move |it| (output, it)));
        let (output, input) = pairs.find(|(output, input)| {
            reference.reads(&output.name, &input.name)
                && strides(&input.shape, &output.shape).is_none()
        })?;
        Some(format!(
            "`check.reference`: `{}` of {:?} does not broadcast to `{}` of {:?}, as an elementwise \
             reference wants it",
            input.name, input.shape, output.name, output.shape
        ))
    }

    /// Why a file with right outputs does not hold those of this problem, if so.
    fn file_objection(&self, sizes: &Sizes) -> Option<String> {
        let Reference::File(reference) = &self.declaration.reference else {
            return None;
        };
        let mut outputs = sizes.outputs.iter();
        let reason = match self.expected_file(reference, sizes) {
            Ok(file) => outputs
                .find_map(|spec| file.objection(&spec.name, spec.dtype, Some(&spec.shape)))?,
            Err(reason) => reason,
        };
        Some(format!("`check.reference`: {reason}"))
    }

    /// The file that has a problem's right outputs.
    fn expected_file<'r>(
        &self,
        reference: &'r FileReference,
        sizes: &Sizes,
    ) -> Result<&'r ExpectedFile, String> {
        let name = self
            .file
            .as_ref()
            .map(|name| name.text(&operands(&sizes.values)));
        let name = name.unwrap_or_else(|| Ok(reference.name.clone()))?;
        let mut files = reference.files.iter();
        let found = files.find(|file| file.name == name);
        found.ok_or_else(|| format!("there is no file {}/{name}", reference.folder))
    }

    /// Operations of [`Definition::oracle`]; without end where there is none, or where another
    /// process is asked, which has a time limit.
    pub(super) fn oracle_operations(&self, sizes: &Sizes) -> f64 {
        match &self.reference {
            // Walking a tree costs about as much as an exponential, each node.
            Some(reference) => reference.operations(&sizes.outputs),
            None => f64::INFINITY,
        }
    }

    /// Judges outputs.
    pub(super) fn check(&self, sizes: &Sizes, outputs: &Tensors, answers: &Tensors) -> Check {
        let judged = sizes.outputs.iter().filter_map(|spec| {
            let expected = answers.get(&spec.name)?;
            let out = outputs.get(&spec.name);
            Some(match self.has_spread(spec) {
                true => by_spread(spec, out, answers),
                false => self.compare(spec, out, expected),
            })
        });
        Check {
            tensors: judged.collect(),
        }
    }

    fn compare(&self, spec: &TensorSpec, out: Option<&Tensor>, expected: &Tensor) -> TensorCheck {
        let finite = finite(spec.dtype, out, expected);
        let (out, expected) = match &finite {
            Some((out, expected)) => (out.as_ref(), expected),
            None => (out, expected),
        };
        let exact = expected.as_f64().unwrap_or_default();
        let stated = match &self.declaration.tolerance {
            Tolerance::L2(tolerances) => tolerances.get(&spec.name).copied(),
            Tolerance::Derived | Tolerance::Exact => None,
        };
        if let Some(tolerance) = stated {
            return compare(&spec.name, out, expected, Metric::RelativeL2, tolerance);
        }
        // Equal to the answer, as the output's type can hold it.
        let rounded = exact.iter().map(|&value| held(spec.dtype, value));
        let rounded = Tensor::f64(spec.shape.clone(), rounded.collect());
        compare(&spec.name, out, &rounded, Metric::MaxRelative, EXACT)
    }
}

/// A call of a function about the problem of these sizes.
fn foreign(
    name: &str,
    function: &Function,
    sizes: &Sizes,
    (inputs, outputs): (&[TensorSpec], &[TensorSpec]),
    products: Products,
) -> Option<Foreign> {
    let tensors = ProblemTensors {
        inputs,
        outputs,
        initial: BTreeMap::new(),
        parameters: &sizes.values,
        // Of no tensor: those of the problem have their types.
        dtype: Dtype::F64,
        products,
        phase: Phase::Forward,
        reals: RealTypes::AsWritten,
    };
    // That each output is computed was checked with the manifest, and parameters have values.
    let request = function.request(&[], &tensors, &operands(&sizes.values));
    Some(Foreign {
        runner: Runner::Python,
        name: name.to_owned(),
        is_deterministic: true,
        is_untrusted: false,
        request: request.ok()?,
    })
}

/// A value as a type of elements holds it.
pub(super) fn held(dtype: Dtype, value: f64) -> f64 {
    with_element_type!(dtype, T => T::from_f64(value).to_f64())
}

/// Judges an output by its spread. A right value that its type can't hold is infinite or NaN there.
/// An answer in f64 is itself off by as much as a program in f64 may be.
fn by_spread(spec: &TensorSpec, out: Option<&Tensor>, answers: &Tensors) -> TensorCheck {
    let is_f64 = spec.dtype == Dtype::F64;
    let special = finite(spec.dtype, out, &answers[&spec.name]);
    if special.is_none() && !is_f64 {
        return spread::judge(&spec.name, out, answers);
    }
    let (out, exact) = match special {
        Some((out, zeroed)) => (out.map(Cow::Owned), zeroed),
        None => (out.map(Cow::Borrowed), answers[&spec.name].clone()),
    };
    let names = [
        spread::name_of(&spec.name),
        spread::name_of_own_error(&spec.name),
    ];
    let beside = names.into_iter().filter_map(|name| {
        let tensor = answers.get(&name)?.clone();
        Some((name, tensor))
    });
    let mut answers: Tensors = beside.collect();
    if is_f64 {
        let values = as_f64(&exact);
        let squares: f64 = values.iter().map(|value| value * value).sum();
        let size = (squares / values.len().max(1) as f64).sqrt();
        let own = Tensor::f64([1], vec![4.0 / 3.0 * spec.dtype.unit_roundoff() * size]);
        answers.insert(spread::name_of_own_error(&spec.name), own);
    }
    answers.insert(spec.name.clone(), exact);
    spread::judge(&spec.name, out.as_deref(), &answers)
}

/// Where the right answer is infinite or NaN in `dtype`, or where `dtype` can't hold it: both
/// tensors with zeros in these places, and no output at all where it has another value there.
/// `None` where all is finite.
fn finite(
    dtype: Dtype,
    out: Option<&Tensor>,
    expected: &Tensor,
) -> Option<(Option<Tensor>, Tensor)> {
    let exact = expected.as_f64()?;
    // Every real type holds smaller values, which are most: they are not converted to tell.
    let may_be = |value: f64| value.is_nan() || value.abs() > 1e4;
    let is_special =
        |value: f64| may_be(value) && dtype.is_real() && !held(dtype, value).is_finite();
    let pieces = exact.par_chunks(1 << 16);
    if !pieces
        .into_par_iter()
        .any(|piece| piece.iter().any(|&value| is_special(value)))
    {
        return None;
    }
    let zeroed = |values: &[f64]| -> Vec<f64> {
        let pairs = values.iter().zip(exact);
        let zeroed = pairs.map(|(&value, &exact)| if is_special(exact) { 0.0 } else { value });
        zeroed.collect()
    };
    let same = |(value, exact): (&f64, &f64)| {
        let expected = held(dtype, *exact);
        !is_special(*exact) || *value == expected || value.is_nan() && expected.is_nan()
    };
    let shape = expected.shape();
    let out = out.filter(|out| out.shape() == shape).and_then(|out| {
        let values = as_f64(out);
        let is_same = values.iter().zip(exact).all(same);
        is_same.then(|| Tensor::f64(shape, zeroed(&values)))
    });
    Some((out, Tensor::f64(shape, zeroed(exact))))
}
