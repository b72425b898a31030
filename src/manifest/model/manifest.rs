//! A manifest that was read and found right.

use super::case::Case;
use super::settings::{
    CacheSettings, Cluster, DeviceSettings, Limits, Measure, NullDevice, Output, PlanSettings,
    Report,
};
use crate::text::diagnostics::Diagnostics;
use crate::text::provenance::Provenance;
use crate::user::Declared;
use crate::user::read::DeclaredTable;

/// Version of the format.
pub const SCHEMA: i64 = 1;

/// A sweep, checked against the workloads that there are.
#[derive(Clone, Debug, PartialEq)]
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
    pub(crate) declared: Vec<DeclaredTable>,
    pub(crate) provenance: Aside<Provenance>,
    pub(crate) warnings: Aside<Diagnostics>,
}

impl Manifest {
    /// A manifest with the default of each setting, and without cases.
    pub(crate) fn with_defaults(name: String) -> Self {
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
            provenance: Aside::default(),
            warnings: Aside::default(),
        }
    }

    /// The script of the test device, which is created when one of its keys is set.
    pub(crate) fn null_mut(&mut self) -> &mut NullDevice {
        self.null.get_or_insert_default()
    }

    /// The sources of kernels that it declares: paths below the folder of its
    /// [`Manifest::resolved_toml`], and texts.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.declared.iter().flat_map(|table| &table.copies);
        files.map(|file| (&*file.name, &*file.text))
    }

    /// The origins of the values.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance.0
    }

    /// Warnings: parts of the manifest that are probably not intended.
    pub fn warnings(&self) -> &Diagnostics {
        &self.warnings.0
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

/// Something beside a manifest's values: manifests are equal if their values are, wherever these
/// were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aside<T>(pub(crate) T);

impl<T> PartialEq for Aside<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
