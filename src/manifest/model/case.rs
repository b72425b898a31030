//! A case of a sweep: a workload, its variants, and the axes they are walked over.
//!
//! A case is self-contained: shared axes, rules and derived values were resolved into it. Its axes
//! are held as *dimensions*, which are multiplied; a dimension has one column (a plain axis) or
//! several that walk together (a zip).

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use sweeper_program::workload::{BackendInfo, WorkloadInfo};
use sweeper_program::{Dtype, Phase, Value, Workload};
use sweeper_workloads::registry;

use crate::files::sources::InputFile;
use crate::user::Declared;
use sweeper_model::expression::Expression;
use sweeper_model::status::Status;

/// Slots before the variables: backend, phase, dtype, workload.
pub(crate) const VARIANTS: usize = 4;

/// A named case: workload x backends x phases over a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Name in the manifest; in rows, but in no identity.
    pub name: Arc<str>,
    /// The computation.
    pub workload: KnownWorkload,
    /// The implementations, each once, at least one.
    pub backends: Vec<KnownBackend>,
    /// The timed phases, each once, at least one.
    pub phases: Vec<Phase>,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Tensors from a file instead of generated ones.
    pub inputs: Option<InputFile>,
    /// Cases that must have finished first, as indices into `Manifest::cases`.
    pub needs: Vec<usize>,
    /// Columns of all dimensions, in order.
    pub variables: Vec<Variable>,
    /// The dimensions whose product is the grid, slowest first.
    pub dimensions: Vec<Dimension>,
    /// Named expressions, each after the expressions that it uses.
    pub derived: Vec<Derived>,
    /// Conditions under which a point is skipped.
    pub exclude: Vec<Rule>,
    /// Extra points, not subject to the rules above.
    pub include: Vec<Include>,
    /// The source of each parameter of the workload, in the workload's order.
    pub parameters: Vec<ParameterSource>,
    /// The answers of the scripted test device, where the manifest has a `[null]` table.
    pub null: Option<NullScript>,
}

/// A workload of this build or of the manifest; equal by name and declaration.
#[derive(Clone, Copy)]
pub struct KnownWorkload {
    /// Its description.
    pub info: &'static WorkloadInfo,
    /// What the manifest declares of it, if it does.
    pub declared: Option<&'static Declared>,
}

impl KnownWorkload {
    /// The workload, which makes problems.
    pub fn workload(&self) -> Option<&'static dyn Workload> {
        match self.declared {
            Some(declared) => Some(declared),
            None => registry::workload(self.info.name),
        }
    }

    /// The identity of its problems, beside their parameters: the name, and where the manifest
    /// declares it the digest of the declaration.
    pub fn identity(&self) -> Cow<'static, str> {
        match self.declared.and_then(Declared::definition) {
            Some(definition) => Cow::Owned(format!("{} {}", self.info.name, definition.hex())),
            None => Cow::Borrowed(self.info.name),
        }
    }

    /// The identity of a backend: its name, and where the manifest declares it the digest of its
    /// source, options and geometry.
    pub fn backend_identity(&self, backend: &str) -> String {
        match self
            .declared
            .and_then(|declared| declared.backend_digest(backend))
        {
            Some(digest) => format!("{backend} {}", digest.hex()),
            None => backend.to_owned(),
        }
    }

    /// The identity of a backend in its points: its name, and where the manifest declares it the
    /// digest of its implementation, so that an edited source makes other points.
    pub fn implementation_identity(&self, backend: &str) -> String {
        match self
            .declared
            .and_then(|declared| declared.implementation_digest(backend))
        {
            Some(digest) => format!("{backend} {}", digest.hex()),
            None => backend.to_owned(),
        }
    }
}

/// A backend of a workload; equal by name.
#[derive(Clone, Copy)]
pub struct KnownBackend(pub &'static BackendInfo);

/// One column of a dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Name of the axis.
    pub name: Arc<str>,
    /// Index into `Case::dimensions`.
    pub dimension: usize,
    /// Column of that dimension.
    pub column: usize,
    /// Given by the manifest, not a default of the workload.
    pub given: bool,
}

/// Something that is walked: rows of values for one or more variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Dimension {
    /// Indices into `Case::variables`.
    pub columns: Vec<usize>,
    /// Rows, no two alike; rows from `swept` on are reached by [`Include`] alone.
    pub rows: Vec<Vec<Value>>,
    /// Number of rows that the grid walks, at least one.
    pub swept: usize,
    /// The dimension exists only where this holds.
    pub when: Option<Conditional>,
}

/// When a dimension exists.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditional {
    /// Condition over variants and dimensions that come before.
    pub condition: Expression,
    /// Values of the columns where the dimension does not exist.
    pub otherwise: Vec<Value>,
}

/// A named expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// Name of the derived value.
    pub name: Arc<str>,
    /// The expression of the value.
    pub expression: Expression,
}

/// A condition with a reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The condition.
    pub when: Expression,
    /// Why, for people; part of no identity.
    pub reason: Arc<str>,
}

/// An extra point, for some variants.
#[derive(Clone, Debug, PartialEq)]
pub struct Include {
    /// One row of each dimension, as an index into its `rows`.
    pub rows: Vec<usize>,
    /// Indices into `Case::backends`.
    pub backends: Vec<usize>,
    /// Phases.
    pub phases: Vec<Phase>,
}

/// The source of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterSource {
    /// A variable, by index.
    Variable(usize),
    /// A derived value, by index.
    Derived(usize),
}

/// The answers of the scripted test device for the points of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct NullScript {
    /// Median time in nanoseconds, a positive number.
    pub time_ns: Expression,
    /// Peak memory in bytes; where absent the program's own account stands.
    pub memory_bytes: Option<Expression>,
    /// Relative standard deviation of samples.
    pub noise: f64,
    /// The first condition that holds decides the status; `ok` where none holds.
    pub outcomes: Vec<(Expression, Status)>,
}

impl Case {
    /// The index of the variable called `name`.
    pub fn variable(&self, name: &str) -> Option<usize> {
        self.variables
            .iter()
            .position(|variable| &*variable.name == name)
    }

    /// Values of a variable that are walked, in order, with repetitions where it is tied to others.
    pub fn values(&self, variable: usize) -> impl Iterator<Item = &Value> {
        let Variable {
            dimension, column, ..
        } = self.variables[variable];
        let dimension = &self.dimensions[dimension];
        dimension.rows[..dimension.swept]
            .iter()
            .map(move |row| &row[column])
    }
}

impl Deref for KnownWorkload {
    type Target = WorkloadInfo;

    fn deref(&self) -> &WorkloadInfo {
        self.info
    }
}

impl PartialEq for KnownWorkload {
    fn eq(&self, other: &Self) -> bool {
        let json = |known: &Self| known.declared.map(Declared::json);
        self.name == other.name && json(self) == json(other)
    }
}

impl fmt::Debug for KnownWorkload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

impl Deref for KnownBackend {
    type Target = BackendInfo;

    fn deref(&self) -> &BackendInfo {
        self.0
    }
}

impl PartialEq for KnownBackend {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for KnownBackend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// The workloads of this build, as `Manifest::resolve` wants them.
pub fn registry() -> Vec<&'static WorkloadInfo> {
    let workloads = sweeper_workloads::registry::workloads().iter();
    workloads.map(|workload| workload.info()).collect()
}
