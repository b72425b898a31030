//! The right answer of a declared problem and how outputs are judged, as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sweeper_program::Dtype;

use super::python::declaration::PythonDeclaration;
use super::real_types::RealTypes;
use crate::files::expected::{ExpectedFile, FileReference};
use sweeper_model::word::Word;

/// The right answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// An elementwise expression of the inputs for each output, evaluated in f64. Inputs are
    /// broadcast as NumPy does.
    Expr(BTreeMap<String, String>),
    /// A function in Python, called with f64 on a CPU, in a process of its own.
    Python(Box<PythonDeclaration>),
    /// A backend of the manifest, for the same inputs and on the measured device: rows of others
    /// say `checked = peer`.
    Backend(PeerDeclaration),
    /// Tensors in files, by the names of the outputs.
    File(FileReference),
    /// There is none: rows say `checked = none`, unless a judge needs none.
    #[default]
    None,
}

/// A backend whose outputs are the right ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerDeclaration {
    /// Its name; of a tuned one, that of a configuration.
    pub name: String,
    /// SHA-256 of its implementation in hex digits.
    pub sha256: String,
    /// Its text is compiled with `double` for `float`, and gets f64 for f32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_in_f64: bool,
}

/// How far from the right answer an output may be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tolerance {
    /// What rounding does to the reference ([`sweeper_program::spread`]).
    #[default]
    Derived,
    /// Whole numbers and truth values: equal; real numbers: equal to the f64 answer, rounded once.
    Exact,
    /// Relative L2 norms, by output.
    L2(BTreeMap<String, f64>),
}

/// What factors of products of matrices and convolutions in f32 may be rounded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Products {
    /// They are not rounded.
    #[default]
    F32,
    /// To tf32, as tensor cores do.
    Tf32,
}

impl Word for Products {
    const WORDS: &'static [(&'static str, Self)] = &[("f32", Self::F32), ("tf32", Self::Tf32)];
}

impl Products {
    /// Whether factors are not rounded.
    pub fn is_f32(&self) -> bool {
        *self == Self::F32
    }
}

/// A function in Python that judges outputs, in a process of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgeDeclaration {
    /// The function; it has arguments by name alone, after the tensors.
    pub function: PythonDeclaration,
    /// The greatest distance that is right, where it returns a distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
}

/// What follows the name of a backend whose text is compiled with `double` for `float`.
const IN_F64: &str = " in f64";

impl PeerDeclaration {
    /// The name by which its problem has the program.
    pub fn program_name(&self) -> String {
        match self.is_in_f64 {
            true => format!("{}{IN_F64}", self.name),
            false => self.name.clone(),
        }
    }

    /// The backend of such a name, and the types that its text computes in.
    pub(super) fn parse_program_name(name: &str) -> (&str, RealTypes) {
        match name.strip_suffix(IN_F64) {
            Some(backend) => (backend, RealTypes::InF64),
            None => (name, RealTypes::AsWritten),
        }
    }
}

impl Reference {
    /// Removes what is part of no identity.
    pub(super) fn clear_places(&mut self) {
        match self {
            Reference::Python(function) => **function = function.without_place(),
            Reference::File(file) => {
                file.folder.clear();
                // They follow from the contents, of which there are digests.
                file.files
                    .iter_mut()
                    .for_each(|held| held.tensors = Ok(Vec::new()));
            }
            Reference::Expr(_) | Reference::Backend(_) | Reference::None => {}
        }
    }

    /// The backend whose outputs are right, if one's are.
    pub fn peer(&self) -> Option<&PeerDeclaration> {
        match self {
            Reference::Backend(peer) => Some(peer),
            _ => None,
        }
    }

    /// Where the right answer comes from, for people.
    pub fn shown(&self) -> String {
        match self {
            Reference::Expr(_) => "elementwise expressions in f64".to_owned(),
            Reference::Python(function) => {
                format!("`{}` of {} in f64", function.entry, function.shown())
            }
            Reference::Backend(peer) => format!("the backend `{}`", peer.program_name()),
            Reference::File(file) => format!("tensors of {}/{}", file.folder, file.name),
            Reference::None => "none".to_owned(),
        }
    }
}

impl Tolerance {
    /// The tolerance, for people.
    pub fn shown(&self) -> String {
        match self {
            Tolerance::Derived => "derived".to_owned(),
            Tolerance::Exact => "exact".to_owned(),
            Tolerance::L2(norms) => {
                let norms = norms
                    .iter()
                    .map(|(output, norm)| format!("{norm:e} ({output})"));
                let norms: Vec<String> = norms.collect();
                format!("relative L2 norm {}", norms.join(", "))
            }
        }
    }
}

impl JudgeDeclaration {
    /// The function, for people.
    pub fn shown(&self) -> String {
        let function = &self.function;
        let shown = format!("`{}` of {}", function.entry, function.shown());
        match self.bound {
            Some(bound) => format!("{shown}, bound {bound:e}"),
            None => shown,
        }
    }
}

impl ExpectedFile {
    /// The reason for which it does not hold an output of this name, type and shape, if so; the
    /// shape is not looked at where it is not known.
    pub fn objection(&self, name: &str, dtype: Dtype, shape: Option<&[usize]>) -> Option<String> {
        let file = &self.name;
        let tensors = match &self.tensors {
            Ok(tensors) => tensors,
            Err(reason) => return Some(format!("{file}: {reason}")),
        };
        let Some(held) = tensors.iter().find(|held| held.name == name) else {
            let names: Vec<&str> = tensors.iter().map(|held| &*held.name).collect();
            let held = match names.as_slice() {
                [] => "nothing".to_owned(),
                names => format!("`{}`", names.join("`, `")),
            };
            return Some(format!("{file} has no tensor `{name}`, only {held}"));
        };
        if !can_be(held.dtype, dtype) {
            let held = held.dtype;
            return Some(format!("{file}: `{name}` is {held}, the output is {dtype}"));
        }
        let shape = shape.filter(|shape| **shape != held.shape)?;
        let held = &held.shape;
        Some(format!(
            "{file}: `{name}` has shape {held:?}, the output has {shape:?}"
        ))
    }
}

/// Whether right values of an output may be of another type: real ones of any real type, as a
/// reference may be more exact.
fn can_be(held: Dtype, output: Dtype) -> bool {
    held == output || held.is_real() && output.is_real()
}
