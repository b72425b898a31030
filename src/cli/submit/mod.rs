//! `sweeper submit`: an array of Slurm's jobs that measures a manifest.
//!
//! There is no scheduler here: three scripts are written and handed over, and Slurm does the rest.

mod earlier;
mod script;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::screen::Screen;
use super::settings::ManifestArgs;
use super::slurm;
use crate::run;
use crate::run::retry::Retry;
use script::Scripts;
use sweeper_manifest::Manifest;
use sweeper_manifest::settings::Cluster;
use sweeper_model::identity::{Digest, Encoder};
use sweeper_results::record::submission::{FOLDER, Submission, nothing_begun};

/// Arguments of `submit`.
#[derive(Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Tasks that share the sweep (cluster.shards)
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// Partition of the tasks (cluster.partition)
    #[arg(long)]
    partition: Option<String>,
    /// Account that pays (cluster.account)
    #[arg(long)]
    account: Option<String>,
    /// Longest time of a task, as Slurm writes it (cluster.time)
    #[arg(long)]
    time: Option<String>,
    /// GPUs of a task, such as 1 or a100:2 (cluster.gpus)
    #[arg(long)]
    gpus: Option<String>,
    /// Processors of a task (cluster.cpus)
    #[arg(long)]
    cpus: Option<u32>,
    /// Memory of a task, such as 16G (cluster.memory)
    #[arg(long)]
    memory: Option<String>,
    /// Tasks at once (cluster.at_once)
    #[arg(long, value_name = "N")]
    at_once: Option<u32>,
    /// Architecture of the GPUs, such as sm_90: kernels are compiled for it once, ahead, on a node
    /// without a GPU (cluster.arch)
    #[arg(long)]
    arch: Option<String>,
    /// An option of sbatch, such as --constraint=ib; may be given again (cluster.options)
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    option: Vec<String>,
    /// A line of a shell before the command, such as `module load cuda`; may be given again
    /// (cluster.before)
    #[arg(long, value_name = "LINE")]
    before: Vec<String>,
    /// Have tasks try points again that have no result, as `run --retry` does; those that are done
    /// are submitted, too, if they have such points
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    retry: Vec<String>,
    /// Tasks take results of earlier runs, as `run --reuse` does
    #[arg(long)]
    reuse: bool,
    /// Print the scripts and submit nothing
    #[arg(long)]
    dry_run: bool,
}

impl SubmitArgs {
    fn settings(&self) -> Vec<(&'static str, String, &'static str)> {
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        // As strings of TOML: an account may look like a number.
        let text = |value: &Option<String>| value.as_ref().map(|value| format!("{value:?}"));
        let list = |values: &[String]| (!values.is_empty()).then(|| format!("{values:?}"));
        let all = [
            ("cluster.shards", number(self.shards), "--shards"),
            ("cluster.partition", text(&self.partition), "--partition"),
            ("cluster.account", text(&self.account), "--account"),
            ("cluster.time", text(&self.time), "--time"),
            ("cluster.gpus", text(&self.gpus), "--gpus"),
            ("cluster.cpus", number(self.cpus), "--cpus"),
            ("cluster.memory", text(&self.memory), "--memory"),
            ("cluster.at_once", number(self.at_once), "--at-once"),
            ("cluster.arch", text(&self.arch), "--arch"),
            ("cluster.options", list(&self.option), "--option"),
            ("cluster.before", list(&self.before), "--before"),
        ];
        let given = all.into_iter();
        given
            .filter_map(|(key, value, flag)| Some((key, value?, flag)))
            .collect()
    }
}

/// The texts of the three steps.
struct Steps {
    /// None where nothing is to be compiled ahead.
    compile: Option<String>,
    measure: String,
    report: String,
}

/// Submits a manifest.
pub fn submit(args: &SubmitArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load_with(&args.settings(), screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    let Some(shards) = manifest.cluster.shards else {
        screen.error(
            "into how many tasks? Say so with --shards N, or as `cluster.shards` in the manifest",
        );
        return Exit::Usage;
    };
    let retry = match Retry::parse(&args.retry) {
        Ok(retry) => retry,
        Err(reason) => {
            screen.error(&format!("--retry: {reason}"));
            return Exit::Usage;
        }
    };
    let made = prepare(args, &manifest, shards, screen);
    let (folder, steps) = match made {
        Ok(made) => made,
        Err(reason) => {
            screen.error(&reason);
            return Exit::Usage;
        }
    };
    if args.dry_run {
        let all = [
            steps.compile.as_deref(),
            Some(&steps.measure),
            Some(&steps.report),
        ];
        let texts: Vec<&str> = all.into_iter().flatten().collect();
        screen.line(texts.join("\n").trim_end());
        return Exit::Fine;
    }
    match hand_over(&manifest, (shards, &retry), &folder, &steps, screen) {
        Ok(()) => Exit::Fine,
        Err((reason, exit)) => {
            screen.error(&reason);
            exit
        }
    }
}

/// The folder of the submission, and the scripts.
fn prepare(
    args: &SubmitArgs,
    manifest: &Manifest,
    shards: u32,
    screen: &Screen,
) -> Result<(PathBuf, Steps), String> {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| format!("{} is not text", path.display()))
    };
    let results = absolute(&manifest.output.dir)?;
    let place = absolute(Path::new("."))?;
    let program =
        std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
    let program = absolute(&program)?;
    let cluster = &manifest.cluster;
    let hash = manifest.hash().0;
    let name = format!("{}-{}", manifest.name, key(&hash, shards, cluster));
    let folder = Path::new(&results).join(FOLDER).join(name);
    let folder_text = absolute(&folder)?;
    if let Some(word) = script::unusable(cluster, &[&folder_text, &place]) {
        return Err(format!(
            "`{}` can't be an option of a job: it has white space, a `#` or a control character, or is empty",
            word.escape_debug()
        ));
    }
    let mut words = args.manifest.again();
    script::set_flag(&mut words, "--output-dir", &results);
    let scripts = Scripts {
        name: &manifest.name,
        cluster,
        folder: &folder_text,
        place: &place,
        program: &program,
        manifest: &words,
        hash: &hash.to_string(),
        shards,
        retry: &args.retry.join(","),
        reuse: args.reuse,
    };
    let steps = Steps {
        compile: compile(manifest, &scripts, screen),
        measure: scripts.measure(),
        report: scripts.report(),
    };
    Ok((folder, steps))
}

/// The digest of the kind of nodes that are asked for: a run is of one type of device.
fn nodes(cluster: &Cluster) -> Digest {
    let mut encoder = Encoder::new("nodes");
    for (tag, text) in [("partition", &cluster.partition), ("gpus", &cluster.gpus)] {
        encoder.text(tag, text.as_deref().unwrap_or_default());
    }
    encoder.list("options", cluster.options.len());
    for option in &cluster.options {
        encoder.text("option", option);
    }
    encoder.finish()
}

/// The digest that tells submissions apart: of their runs, and of where these run.
fn key(hash: &Digest, shards: u32, cluster: &Cluster) -> Digest {
    let mut encoder = Encoder::new("submission");
    encoder.digest("manifest", hash);
    encoder.unsigned("shards", shards.into());
    encoder.digest("nodes", &nodes(cluster));
    encoder.finish()
}

/// The script that compiles, where there is something to compile and the target is known.
fn compile(manifest: &Manifest, scripts: &Scripts<'_>, screen: &Screen) -> Option<String> {
    let cluster = &manifest.cluster;
    let dir = shared_cache(manifest);
    let dir = dir.as_deref();
    if let Some(arch) = &cluster.arch {
        return Some(scripts.compile(Some(arch), dir));
    }
    let facts = run::likely_kind(manifest).facts();
    if !facts.computes {
        return None;
    }
    if !facts.is_gpu && cluster.gpus.is_none() {
        return Some(scripts.compile(None, dir));
    }
    screen.note(
        "kernels are compiled by the tasks, since it is not known for which GPU: `cluster.arch` (such as \
         sm_90) compiles them once, ahead",
    );
    None
}

/// The cache that a step of its own fills for all nodes: the first upstream, where it is a folder
/// of this user, or none yet. Without upstreams all nodes have one cache, that of the manifest.
fn shared_cache(manifest: &Manifest) -> Option<String> {
    let first = manifest.cache.upstream.first()?;
    let user = rustix::process::geteuid().as_raw();
    let is_ours = match fs::metadata(first) {
        Ok(found) => found.is_dir() && found.uid() == user,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let path = std::path::absolute(first).ok().filter(|_| is_ours)?;
    path.to_str().map(str::to_owned)
}

/// Why nothing could be handed over.
type Refusal = (String, Exit);

/// Writes the scripts, and submits the tasks that are neither done nor queued.
fn hand_over(
    manifest: &Manifest,
    (shards, retry): (u32, &Retry),
    folder: &Path,
    steps: &Steps,
    screen: &Screen,
) -> Result<(), Refusal> {
    let engine = env!("SWEEPER_ENGINE_DIGEST").parse();
    let fresh = Submission {
        name: manifest.name.clone(),
        manifest: manifest.hash(),
        engine: engine.unwrap_or(Digest::from_bytes([0; 32])),
        nodes: Some(nodes(&manifest.cluster)),
        shards,
        arrays: Vec::new(),
        others: Vec::new(),
    };
    let results = &manifest.output.dir;
    earlier::refuse_other_count(&fresh, results)?;
    let before = Submission::read(folder).filter(|held| {
        held.manifest == fresh.manifest && held.engine == fresh.engine && held.shards == shards
    });
    let mut submission = before.unwrap_or(fresh);
    let mut done = submission.done(results);
    for again in submission.having(results, |state| retry.covers_any(&state.statuses)) {
        done.remove(&again);
    }
    let queued = earlier::queued(&submission).map_err(|reason| (reason, Exit::Impossible))?;
    let is_missing = |index: &u32| !done.contains(index) && !queued.contains(index);
    let missing: Vec<u32> = (1..=shards).filter(is_missing).collect();
    if missing.is_empty() {
        return said(&submission, folder, &missing, &done, &queued, screen);
    }
    warn(&submission, folder, results, &queued, screen);
    let at_once = manifest.cluster.at_once;
    let at_once = at_once.map(|count| format!("%{count}")).unwrap_or_default();
    let array = format!("--array={}{at_once}", script::ranges(&missing));
    queue(&mut submission, folder, steps, array)?;
    said(&submission, folder, &missing, &done, &queued, screen)
}

/// Warns where it seems that nodes don't see the folder of results.
fn warn(
    submission: &Submission,
    folder: &Path,
    results: &Path,
    queued: &BTreeSet<u32>,
    screen: &Screen,
) {
    let results = std::path::absolute(results).unwrap_or_else(|_| results.to_owned());
    let mut local = ["/tmp", "/var/tmp", "/dev/shm", "/run"].iter();
    if local.any(|folder| results.starts_with(folder)) {
        screen.warning(&format!(
            "{} is likely a folder of this machine alone; all nodes must see the folder of results (`output.dir`)",
            results.display()
        ));
    }
    if !submission.arrays.is_empty() && queued.is_empty() && submission.runs(&results).is_empty() {
        screen.warning(&format!("earlier: {}", nothing_begun(folder)));
    }
}

/// Writes the scripts and queues the three steps, each after the one before.
fn queue(
    submission: &mut Submission,
    folder: &Path,
    steps: &Steps,
    array: String,
) -> Result<(), Refusal> {
    let files = |error: std::io::Error| (format!("{}: {error}", folder.display()), Exit::Files);
    fs::create_dir_all(folder.join("logs")).map_err(files)?;
    let write = |name: &str, text: &str| {
        sweeper_model::files::write(&folder.join(name), text.as_bytes()).map_err(files)?;
        Ok::<_, Refusal>(folder.join(name).display().to_string())
    };
    let sbatch = |script: &str, options: &[String]| {
        let mut args = vec!["--parsable"];
        args.extend(options.iter().map(String::as_str));
        args.push(script);
        let number = slurm::call("sbatch", &args).map_err(|reason| (reason, Exit::Impossible))?;
        // `NUMBER;CLUSTER` where there are several clusters.
        Ok::<_, Refusal>(number.split(';').next().unwrap_or_default().to_owned())
    };
    let keep = |submission: &Submission| submission.write(folder).map_err(files);
    let after = |job: &str| format!("--dependency=afterany:{job}");
    let mut options = vec![array];
    let mut compiling = None;
    if let Some(text) = &steps.compile {
        let job = sbatch(&write("compile.sh", text)?, &[])?;
        // Tasks report the compiler's refusals with their points.
        options.push(after(&job));
        submission.others.push(job.clone());
        keep(submission)?;
        compiling = Some(job);
    }
    let array = sbatch(&write("array.sh", &steps.measure)?, &options).inspect_err(|_| {
        // Nothing needs its kernels. Where that fails, too, `cancel` knows of it.
        compiling.map(|job| slurm::call("scancel", &[&job]));
    })?;
    submission.arrays.push(array.clone());
    keep(submission)?;
    let report = sbatch(&write("report.sh", &steps.report)?, &[after(&array)])?;
    submission.others.push(report);
    keep(submission)
}

/// Prints the submitted jobs.
fn said(
    submission: &Submission,
    folder: &Path,
    missing: &[u32],
    done: &BTreeSet<u32>,
    queued: &BTreeSet<u32>,
    screen: &Screen,
) -> Result<(), Refusal> {
    if screen.json {
        screen.json(&json!({
            "folder": folder, "submitted": missing, "done": done, "queued": queued,
            "arrays": submission.arrays, "others": submission.others,
        }));
        return Ok(());
    }
    let what = match (missing.len(), submission.arrays.last()) {
        (0, _) => "nothing to submit".to_owned(),
        (count, job) => format!(
            "{count} tasks submitted as job {}",
            job.map_or("?", String::as_str)
        ),
    };
    screen.line(&format!(
        "{what}; {} done, {} queued or running",
        done.len(),
        queued.len()
    ));
    let folder = folder.display();
    screen.note(&format!("scripts and what they say: {folder}"));
    screen.note(&format!(
        "how far they are, once one has begun: sweeper status {folder}"
    ));
    Ok(())
}
