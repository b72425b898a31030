//! The scripts of jobs, as text.

use sweeper_manifest::settings::Cluster;
use sweeper_model::shard::Shard;

/// Seconds before a task's time is over at which Slurm tells it so; Slurm may do so up to a minute
/// earlier.
const NOTICE_S: u32 = 30;

/// The values that scripts are made from.
pub(super) struct Scripts<'a> {
    /// Name of the manifest.
    pub name: &'a str,
    pub cluster: &'a Cluster,
    /// Folder of the scripts and of their output.
    pub folder: &'a str,
    /// Folder in which the jobs run.
    pub place: &'a str,
    /// This program.
    pub program: &'a str,
    /// The manifest with its settings.
    pub manifest: &'a [String],
    /// Digits of the manifest's hash.
    pub hash: &'a str,
    /// Number of shards.
    pub shards: u32,
    /// Statuses of points that are tried again; empty for none.
    pub retry: &'a str,
    /// Whether results of earlier runs are taken.
    pub reuse: bool,
}

/// The purpose of a script's job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Compile,
    Measure,
    Report,
}

impl Scripts<'_> {
    /// Compiles kernels on a node without a GPU, for `arch` or for the processors of the node, into
    /// the cache in `dir` or into the one of the manifest.
    pub(super) fn compile(&self, arch: Option<&str>, dir: Option<&str>) -> String {
        let mut manifest = self.manifest.to_owned();
        if let Some(dir) = dir {
            set_flag(&mut manifest, "--cache-dir", dir);
        }
        let mut words = vec!["compile"];
        words.extend(manifest.iter().map(String::as_str));
        words.extend(arch.into_iter().flat_map(|arch| ["--arch", arch]));
        format!("{}{}\n", self.head(Step::Compile), self.command(&words))
    }

    /// Measures the shard that has the task's number, again and again until it is done.
    pub(super) fn measure(&self) -> String {
        // The shell puts the number in the place of K.
        let some = Shard {
            count: self.shards,
            index: 1,
        };
        let shard = some
            .to_string()
            .replacen('1', "\"$SLURM_ARRAY_TASK_ID\"", 1);
        let mut words = vec!["run"];
        words.extend(self.manifest.iter().map(String::as_str));
        words.extend(["--if-manifest", self.hash, "--requeue"]);
        words.extend(self.reuse.then_some("--reuse"));
        // A task that is started again goes on with those that it has not tried.
        if !self.retry.is_empty() {
            words.extend(["--retry", self.retry]);
        }
        format!(
            "{head}\
             if [ -z \"$SLURM_JOB_END_TIME\" ]; then\n    \
                 # Slurm before 23.02 does not say when a job begins and ends.\n    \
                 task=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID\n    \
                 read -r start end < <(squeue -h -j \"$task\" -o '%S %e' 2>/dev/null)\n    \
                 [ -n \"$end\" ] && SLURM_JOB_START_TIME=$(date -d \"$start\" +%s 2>/dev/null) &&\n        \
                     end=$(date -d \"$end\" +%s 2>/dev/null) && export SLURM_JOB_END_TIME=\"$end\"\n\
             fi\n\
             # By the clock of this node, which may disagree with Slurm's.\n\
             late=$((began - ${{SLURM_JOB_START_TIME:-began}}))\n\
             if [ -n \"$SLURM_JOB_END_TIME\" ] && {{ [ \"$late\" -lt -5 ] || [ \"$late\" -gt 300 ]; }}; then\n    \
                 echo \"this node's clock is $late s ahead of Slurm's\" >&2\n    \
                 export SLURM_JOB_END_TIME=$((SLURM_JOB_END_TIME + late))\n\
             fi\n\
             {command} --shard {shard} &\n\
             sweep=$!\n\
             # Slurm tells this shell when the time is nearly over, and may do so a minute early. A sweep that\n\
             # believes to have much more is wrong.\n\
             left() {{ echo $((${{SLURM_JOB_END_TIME:-0}} - $(date +%s))); }}\n\
             trap '[ -n \"$SLURM_JOB_END_TIME\" ] && [ \"$(left)\" -lt {known_s} ] ||\n    \
                 kill -USR1 \"$sweep\" 2>/dev/null' USR1\n\
             trap 'kill -TERM \"$sweep\" 2>/dev/null' TERM\n\
             wait \"$sweep\"\n\
             code=$?\n\
             # A signal ends the waiting, not the sweep.\n\
             while kill -0 \"$sweep\" 2>/dev/null; do\n    \
                 wait \"$sweep\"\n    \
                 code=$?\n\
             done\n\
             exit \"$code\"\n",
            head = self.head(Step::Measure),
            known_s = NOTICE_S + 90,
            command = self.command(&words),
        )
    }

    /// Makes tables and a report of the rows so far. Journals are not joined: tasks that are
    /// submitted again go on with theirs.
    pub(super) fn report(&self) -> String {
        let report = self.command(&["report", self.folder]);
        format!("{}{report}\n", self.head(Step::Report))
    }

    fn command(&self, words: &[&str]) -> String {
        let all = std::iter::once(self.program).chain(words.iter().copied());
        all.map(quoted).collect::<Vec<_>>().join(" ")
    }

    /// The options, and the lines of one's own.
    fn head(&self, step: Step) -> String {
        let cluster = self.cluster;
        let (suffix, log) = match step {
            Step::Compile => ("-compile", "compile-%j"),
            Step::Measure => ("", "%a"),
            Step::Report => ("-report", "report-%j"),
        };
        let mut options = vec![
            format!("--job-name={}{suffix}", self.name),
            format!("--output={}/logs/{log}.log", self.folder),
            "--open-mode=append".to_owned(),
            format!("--chdir={}", self.place),
            "--ntasks=1".to_owned(),
        ];
        let mut option = |name: &str, value: &Option<String>| {
            options.extend(value.iter().map(|value| format!("--{name}={value}")));
        };
        option("account", &cluster.account);
        let other = cluster.compile_partition.clone();
        match step {
            Step::Measure => option("partition", &cluster.partition),
            Step::Compile | Step::Report => {
                option("partition", &other.or_else(|| cluster.partition.clone()));
            }
        }
        option("time", &cluster.time);
        option("mem", &cluster.memory);
        option(
            "cpus-per-task",
            &cluster.cpus.map(|count| count.to_string()),
        );
        if step == Step::Measure {
            option("gpus", &cluster.gpus);
            options.push("--requeue".to_owned());
            options.push(format!("--signal=B:USR1@{NOTICE_S}"));
            options.extend(cluster.options.iter().cloned());
        }
        let options = options.iter().map(|option| format!("#SBATCH {option}\n"));
        // Before all else: lines of one's own may take a while.
        let began = (step == Step::Measure).then(|| "began=$(date +%s)\n".to_owned());
        let before = cluster.before.iter().map(|line| format!("{line}\n"));
        let lines: String = options.chain(began).chain(before).collect();
        format!("#!/bin/bash\n{lines}")
    }
}

/// Sets a flag, in the place of the value that a command line gives it: it takes each flag once.
pub(super) fn set_flag(words: &mut Vec<String>, flag: &str, value: &str) {
    if let Some(place) = words.iter().position(|word| word == flag) {
        words.drain(place..place + 2);
    }
    words.extend([flag.to_owned(), value.to_owned()]);
}

/// A word that a shell reads as it is.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,+@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// An option of `sbatch` that would not end where it should, if there is one.
pub(super) fn unusable<'c>(cluster: &'c Cluster, paths: &[&'c str]) -> Option<&'c str> {
    let texts = [
        &cluster.partition,
        &cluster.account,
        &cluster.time,
        &cluster.gpus,
        &cluster.memory,
        &cluster.compile_partition,
    ];
    let texts = texts.into_iter().flatten().map(String::as_str);
    let mut words = texts.chain(paths.iter().copied());
    let is_bad = |word: &&str| {
        let bad = |letter: char| letter.is_whitespace() || letter.is_control() || letter == '#';
        word.is_empty() || word.chars().any(bad)
    };
    let lines = cluster.options.iter().chain(&cluster.before);
    let mut lines = lines.map(String::as_str);
    let is_broken = |line: &&str| line.chars().any(char::is_control);
    words.find(is_bad).or_else(|| lines.find(is_broken))
}

/// Numbers as `--array` takes them: `1-3,7`.
pub(super) fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        match run {
            [only] => parts.push(only.to_string()),
            [first, .., last] => parts.push(format!("{first}-{last}")),
            [] => {}
        }
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_as_ranges() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), "1-3,7,9-10");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn kernels_are_compiled_into_the_cache_that_nodes_share() {
        let words = [
            "/a/m.toml",
            "--cache-dir",
            "/tmp/of-node",
            "--set",
            "seed=2",
        ];
        let scripts = Scripts {
            name: "m",
            cluster: &Cluster::default(),
            folder: "/a/s",
            place: "/a",
            program: "/bin/sweeper",
            manifest: &words.map(str::to_owned),
            hash: "00",
            shards: 2,
            retry: "",
            reuse: false,
        };
        let ends = |script: String, end: &str| assert!(script.ends_with(end), "{script}");
        ends(
            scripts.compile(Some("sm_80"), Some("/a/shared")),
            "/bin/sweeper compile /a/m.toml --set seed=2 --cache-dir /a/shared --arch sm_80\n",
        );
        ends(
            scripts.compile(None, None),
            "/bin/sweeper compile /a/m.toml --cache-dir /tmp/of-node --set seed=2\n",
        );
    }

    #[test]
    fn words_reach_the_shell_as_they_are() {
        assert_eq!(quoted("/a/b-c_1.toml"), "/a/b-c_1.toml");
        assert_eq!(quoted("grid.T=1,2"), "grid.T=1,2");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's; rm $HOME"), "'it'\\''s; rm $HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn options_that_break_out_of_their_line_are_found() {
        let cluster = |change: fn(&mut Cluster)| {
            let mut cluster = Cluster::default();
            change(&mut cluster);
            cluster
        };
        assert_eq!(unusable(&Cluster::default(), &["/a"]), None);
        assert_eq!(unusable(&Cluster::default(), &["/a b"]), Some("/a b"));
        let bad = cluster(|cluster| cluster.partition = Some("gpu\nrm".to_owned()));
        assert_eq!(unusable(&bad, &[]), Some("gpu\nrm"));
        let bad = cluster(|cluster| cluster.before = vec!["a\nb".to_owned()]);
        assert_eq!(unusable(&bad, &[]), Some("a\nb"));
        let fine = cluster(|cluster| cluster.before = vec!["module load cuda # 13".to_owned()]);
        assert_eq!(unusable(&fine, &[]), None);
    }
}
