//! Earlier submissions of a manifest: their queued tasks, and the number of shards that they set.

use std::collections::BTreeSet;
use std::path::Path;

use super::Refusal;
use crate::cli::exit::Exit;
use crate::cli::slurm;
use sweeper_results::record::parts;
use sweeper_results::record::submission::Submission;

/// Tasks of a submission that are queued or running.
///
/// # Errors
/// A sentence.
pub(super) fn queued(submission: &Submission) -> Result<BTreeSet<u32>, String> {
    let mut all = BTreeSet::new();
    for array in &submission.arrays {
        let tasks = slurm::queued(array)?.into_iter();
        let numbers = tasks.filter_map(|task| task.split_once('_')?.1.parse::<u32>().ok());
        all.extend(numbers);
    }
    Ok(all)
}

/// Refuses another number of shards than tasks on nodes of this kind have that are queued, or the
/// run that they have begun: each of the new tasks would refuse it, once it has its turn.
///
/// # Errors
/// A sentence that says what to do.
pub(super) fn refuse_other_count(fresh: &Submission, results: &Path) -> Result<(), Refusal> {
    let all = Submission::all(results).into_iter();
    for (folder, other) in all.filter(|(_, other)| fresh.is_shared_otherwise(other)) {
        let tasks = queued(&other).map_err(|reason| (reason, Exit::Impossible))?;
        if !tasks.is_empty() {
            let reason = format!(
                "{} tasks of this manifest in {count} shards are queued or running: submit with --shards {count}, or \
                 cancel them first: sweeper cancel {}",
                tasks.len(),
                folder.display(),
                count = other.shards
            );
            return Err((reason, Exit::Files));
        }
        for run in other.runs(results) {
            let shards = parts::shards(&run.path).unwrap_or_default().into_iter();
            let mut counts = shards.map(|shard| shard.count);
            if let Some(count) = counts.find(|&count| count != fresh.shards) {
                let path = run.path.display();
                let reason = format!(
                    "{path}: this run is shared between {count} shards; submit with --shards {count}, or join what is \
                     there with `sweeper merge {path}`, after which any number of shards will do"
                );
                return Err((reason, Exit::Files));
            }
        }
    }
    Ok(())
}
