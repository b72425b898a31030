//! All workloads, in the order in which they are listed.

use std::sync::LazyLock;

use crate::copy::Copy;
use crate::graph_workload::GraphWorkload;
use crate::operations::SizedOperation;
use crate::semicrf::SemiCrf;
use crate::{economics, operations, patterns, transformer};
use sweeper_program::parameters::Parameters;
use sweeper_program::workload::{ParameterKind, Workload, WorkloadInfo};

/// One operation each, of a batch of sequences.
pub(crate) static OPERATIONS: &[&GraphWorkload<SizedOperation>] = &[
    &operations::layernorm::WORKLOAD,
    &operations::rmsnorm::WORKLOAD,
    &operations::softmax::WORKLOAD,
    &operations::gelu::WORKLOAD,
    &operations::swish::WORKLOAD,
    &operations::mse::WORKLOAD,
    &operations::cross_entropy::WORKLOAD,
];

static OTHERS: &[&dyn Workload] = &[
    &economics::matmul_chain::WORKLOAD,
    &economics::mlp::WORKLOAD,
    &economics::attention_block::WORKLOAD,
    &economics::mixed::WORKLOAD,
    &patterns::matmul::WORKLOAD,
    &patterns::linear::WORKLOAD,
    &patterns::conv::WORKLOAD,
    &patterns::attention::WORKLOAD,
    &transformer::WORKLOAD,
    #[cfg(feature = "faults")]
    &crate::faults::Faults,
];

static WORKLOADS: LazyLock<Vec<&'static dyn Workload>> = LazyLock::new(|| {
    let mut all: Vec<&dyn Workload> = vec![&Copy, &SemiCrf];
    all.extend(operations());
    all.extend(OTHERS);
    all
});

/// Every workload of this build.
pub fn workloads() -> &'static [&'static dyn Workload] {
    &WORKLOADS
}

/// Those of them that are one operation of a batch of sequences.
pub fn operations() -> impl Iterator<Item = &'static dyn Workload> {
    OPERATIONS
        .iter()
        .map(|&operation| operation as &dyn Workload)
}

/// The workload called `name`.
pub fn workload(name: &str) -> Option<&'static dyn Workload> {
    workloads()
        .iter()
        .copied()
        .find(|workload| workload.info().name == name)
}

/// Each combination of the words that a workload's parameters take, without its sizes.
pub fn forms(info: &WorkloadInfo) -> Vec<Parameters> {
    let mut forms = vec![Parameters::new()];
    for parameter in info.parameters {
        let ParameterKind::Choice(words) = parameter.kind else {
            continue;
        };
        let with = |(form, word): (&Parameters, &'static str)| {
            let mut form = form.clone();
            form.set(parameter.name, word);
            form
        };
        let words = words.iter().map(|(word, _)| *word);
        let pairs = words.flat_map(|word| forms.iter().map(move |form| (form, word)));
        forms = pairs.map(with).collect();
    }
    forms
}
