//! The manifest: the definition of a sweep, as data.
//!
//! [`Sources`] reads files at the edge; [`Manifest::resolve`] is pure. It lays settings from
//! outside over the text, reads it, checks everything against the existing workloads, and reports
//! all errors at once. The result is plain typed data that is known to be valid.
//!
//! Reading order: [`settings`], [`plots`] and [`case`] are the result; `setting` is the table of
//! all keys of settings. On the way there: `text`, `tree` (TOML with places), `merge` and
//! [`overrides`], `section` (typed access), `decode` (settings), `wire`, `axis` and `forms` (cases
//! as written), `build`, `dimensions` and `rules` (checked cases); checks that need all points are
//! in `grid::check`, together with [`Manifest::resolve`]. [`sweeper_model::expression`] is the
//! language of conditions; [`diagnostics`], [`codes`] and [`render`] make and print errors.

pub mod user;
pub mod grid;
pub mod plan;
pub mod import;
pub mod settings;
pub mod plots;
pub mod case;
pub mod sources;
pub mod overrides;
pub mod diagnostics;
pub mod codes;
pub mod render;
pub mod provenance;
pub mod difference;
mod text;
mod tree;
mod merge;
mod like;
mod variables;
mod suggest;
mod section;
mod setting;
mod decode;
mod wire;
mod named;
pub mod includes;
pub mod python_files;
mod expected_files;
mod axis;
mod forms;
mod null;
mod build;
mod dimensions;
mod uses;
mod ties;
pub(crate) mod rules;
mod relate;
mod chosen;
mod resolve;
mod hash;
mod print;
mod schema;
mod reference;
mod starter;

use sweeper_program::workload::WorkloadInfo;

pub(crate) use crate::build::Places;
pub use crate::case::Case;
pub use crate::diagnostics::{Diagnostic, Diagnostics};
pub(crate) use crate::dimensions::{Misfit, fitted};
pub use crate::null::NullDevice;
pub use crate::overrides::{OverrideOrigin, Overrides};
pub use crate::provenance::{Origin, Provenance};
pub use crate::reference::reference;
pub(crate) use crate::resolve::Draft;
pub use crate::schema::schema;
pub(crate) use crate::section::Context;
pub use crate::settings::{
    CacheSettings, Canonical, Cluster, DeviceSettings, Limits, Measure, Output, PlanSettings,
    Report,
};
pub use crate::sources::Sources;
pub use crate::starter::STARTER;
pub(crate) use crate::text::At;
pub(crate) use crate::wire::WireText;
pub use crate::wire::objection;

use crate::user::Declared;
use sweeper_model::identity::ManifestHash;

/// Version of the format.
pub const SCHEMA: i64 = 1;

/// A sweep, checked against the workloads that there are.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Name, which names folders.
    pub name: String,
    /// The question that the sweep answers.
    pub about: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Seed of generated inputs and of orders.
    pub seed: u64,
    /// Cases in the order in which they are run: each after the cases that it needs.
    pub cases: Vec<Case>,
    /// `[plan]`
    pub plan: PlanSettings,
    /// `[device]`
    pub device: DeviceSettings,
    /// `[cache]`
    pub cache: CacheSettings,
    /// `[measure]`
    pub measure: Measure,
    /// `[limits]`
    pub limits: Limits,
    /// `[cluster]`
    pub cluster: Cluster,
    /// `[output]`
    pub output: Output,
    /// `[report]`
    pub report: Report,
    /// `[null]`
    pub null: Option<NullDevice>,
    /// `[workload.X]` and `[backend.Y]`, as they are printed.
    declared: Vec<user::read::DeclaredTable>,
    provenance: Provenance,
    warnings: Diagnostics,
}

impl Manifest {
    /// A manifest with the default of each setting, and without cases.
    fn with_defaults(name: String) -> Self {
        Manifest {
            name,
            about: String::new(),
            tags: Vec::new(),
            seed: 42,
            cases: Vec::new(),
            plan: PlanSettings::default(),
            device: DeviceSettings::default(),
            cache: CacheSettings::default(),
            measure: Measure::default(),
            limits: Limits::default(),
            cluster: Cluster::default(),
            output: Output::default(),
            report: Report::default(),
            null: None,
            declared: Vec::new(),
            provenance: Provenance::default(),
            warnings: Diagnostics::default(),
        }
    }

    /// The script of the test device, which is created when one of its keys is set.
    fn null_mut(&mut self) -> &mut NullDevice {
        self.null.get_or_insert_default()
    }

    /// The identity of this manifest's meaning.
    pub fn hash(&self) -> ManifestHash {
        hash::hash(self)
    }

    /// The full manifest as TOML, which resolves to an equal manifest beside the copies of its
    /// [`Manifest::sources`].
    pub fn resolved_toml(&self) -> String {
        print::toml(self, false)
    }

    /// [`Manifest::resolved_toml`] with the origin of each value as a comment.
    pub fn resolved_toml_with_origins(&self) -> String {
        print::toml(self, true)
    }

    /// The sources of kernels that it declares: paths below the folder of its
    /// [`Manifest::resolved_toml`], and texts.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.declared.iter().flat_map(|table| &table.copies);
        files.map(|file| (&*file.name, &*file.text))
    }

    /// The origins of the values.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Warnings: parts of the manifest that are probably not intended.
    pub fn warnings(&self) -> &Diagnostics {
        &self.warnings
    }

    /// The workloads that it declares or extends and that cases use, each once.
    pub fn declared(&self) -> impl Iterator<Item = &'static Declared> {
        let mut seen: Vec<&'static Declared> = Vec::new();
        for declared in self.cases.iter().filter_map(|case| case.workload.declared) {
            if !seen.iter().any(|held| std::ptr::eq(*held, declared)) {
                seen.push(declared);
            }
        }
        seen.into_iter()
    }

    /// The case called `name`.
    pub fn case(&self, name: &str) -> Option<&Case> {
        self.cases.iter().find(|case| &*case.name == name)
    }
}

/// Manifests are equal if their values are, wherever these were written.
impl PartialEq for Manifest {
    fn eq(&self, other: &Self) -> bool {
        let Manifest {
            name,
            about,
            tags,
            seed,
            cases,
            plan,
            device,
            cache,
            measure,
            limits,
            cluster,
            output,
            report,
            null,
            declared,
            provenance: _,
            warnings: _,
        } = self;
        *name == other.name
            && *about == other.about
            && *tags == other.tags
            && *seed == other.seed
            && *cases == other.cases
            && *plan == other.plan
            && *device == other.device
            && *cache == other.cache
            && *measure == other.measure
            && *limits == other.limits
            && *cluster == other.cluster
            && *output == other.output
            && *report == other.report
            && *null == other.null
            && *declared == other.declared
    }
}

/// The workloads of this build, as [`Manifest::resolve`] wants them.
pub fn registry() -> Vec<&'static WorkloadInfo> {
    let workloads = sweeper_workloads::registry::workloads().iter();
    workloads.map(|workload| workload.info()).collect()
}
