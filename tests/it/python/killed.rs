//! Processes of a sweep that are killed at random moments: no row is lost, and none comes twice.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::place::{Place, column, text};
use crate::support::{has_package, processes};

const MANIFEST: &str = "\
schema = 1
[python]
exe = \"${SWEEPER_PYTHON:-python3}\"
[workload.affine]
params = { n = { int = [1, 1000000] } }
inputs.x = { dtype = \"f32\", shape = [\"n\"] }
outputs.y = { dtype = \"f32\", shape = [\"n\"] }
check.reference = { python = \"mine.py\", entry = \"reference\", args = [\"x\"] }
check.tolerance = 1e-6
[backend.returned]
workload = \"affine\"
python = \"mine.py\"
entry = \"returned\"
args = [\"x\"]
returns = [\"y\"]
[backend.into]
workload = \"affine\"
python = \"mine.py\"
entry = \"into\"
args = [\"y\", \"x\"]
[backend.native]
workload = \"affine\"
c = \"native.c\"
entry = \"native\"
args = [\"y\", \"x\", { i32 = \"n\" }]
[backend.stepped]
like = \"native\"
entry = \"stepped\"
[case.affine]
workload = \"affine\"
grid = { n = [100, 200, 300, 400, 500, 600] }
[device]
use = \"cpu\"
[measure]
repeats = 5
";

#[test]
fn what_a_function_forked_ends_with_the_sweep() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = Place::new(MANIFEST);
    let forks = "\
        pid = os.fork()\n    if pid == 0:\n        time.sleep(1000)\n    \
        open('forked', 'a').write(f'{pid}\\n')\n    return x";
    let functions = FUNCTIONS.replace("time.sleep(0.02)\n    return x", forks);
    fs::write(place.path("mine.py"), format!("import os\n{functions}")).unwrap();
    fs::write(place.path("native.c"), NATIVE).unwrap();
    let only = [
        "--set=case.affine.backends=[\"returned\"]",
        "--set=case.affine.grid.n=100",
    ];
    let ran = place.sweeper(&[&["run", "m.toml"], &only[..]].concat());
    assert!(text(&ran).contains("(1 ok)"), "{}", text(&ran));
    let forked = fs::read_to_string(place.path("forked")).unwrap();
    assert!(forked.lines().count() > 5, "{forked}");
    // The system takes a moment to end what was killed.
    let late = Instant::now() + Duration::from_secs(5);
    for process in forked.lines() {
        let stat = || fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // One that ended may wait for its new parent.
        while !(stat().is_empty() || stat().contains(") Z ")) {
            assert!(Instant::now() < late, "{}", stat());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// They take so long that there is time to be killed.
const FUNCTIONS: &str = "\
import time
import numpy

def reference(x):
    return 2 * x + 1

def returned(x):
    time.sleep(0.02)
    return x * numpy.float32(2) + numpy.float32(1)

def into(y, x):
    y[...] = returned(x)
";

const NATIVE: &str = "\
void native(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = 2 * x[i] + 1;
}

void stepped(float *y, const float *x, int n)
{
    for (int step = 0; step < 4; step++)
        for (int i = step; i < n; i += 4)
            y[i] = 2 * x[i] + 1;
}
";

const POINTS: usize = 24;
const KILLS: u32 = 15;

/// Numbers by chance, from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A sweep that is begun again whenever it ends.
struct Sweep {
    place: Place,
    main: Child,
}

impl Sweep {
    fn new(place: Place) -> Self {
        let main = Self::begin(&place);
        Sweep { place, main }
    }

    fn begin(place: &Place) -> Child {
        let mut command = place.command(&["run", "m.toml", "--quiet"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// True if the sweep has ended with all points measured; one that ended otherwise goes on.
    fn is_done(&mut self) -> bool {
        let Some(status) = self.main.try_wait().unwrap() else {
            return false;
        };
        if status.success() {
            return true;
        }
        self.main = Self::begin(&self.place);
        false
    }

    /// Its processes of a kind that are there.
    fn victims(&self, kind: u64) -> Vec<String> {
        let words = ["\0-c\0", "\0worker", "\0run\0m.toml"][kind as usize];
        processes(self.place.path("cache").to_str().unwrap(), words)
    }

    /// Kills a process of the sweep, if it is there.
    fn kill(&self, chance: &mut Chance) -> bool {
        let victims = self.victims(chance.below(3));
        let Some(count) = std::num::NonZero::new(victims.len() as u64) else {
            return false;
        };
        let victim = &victims[chance.below(count.get()) as usize];
        // It may have ended by now.
        let killed = Command::new("kill")
            .args(["-9", victim])
            .stderr(Stdio::null())
            .status();
        killed.unwrap().success()
    }
}

/// The statuses of the journal's rows with their reasons, by point.
fn statuses(place: &Place) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in place.read("journal.jsonl").lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        if let (Some(point), Some(status)) = (row["point"].as_str(), row["status"].as_str()) {
            found.entry(point.to_owned()).or_default().push(format!(
                "{status} {}",
                row["reason"].as_str().unwrap_or_default()
            ));
        }
    }
    found
}

#[test]
fn kills_at_random_moments_lose_no_row_and_double_none() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = Place::new(MANIFEST);
    fs::write(place.path("mine.py"), FUNCTIONS).unwrap();
    fs::write(place.path("native.c"), NATIVE).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = now.as_nanos() as u64;
    let mut chance = Chance(seed);
    let mut sweep = Sweep::new(place);
    let (mut kills, begin) = (0, Instant::now());
    while !sweep.is_done() {
        let place = &sweep.place;
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "seed {seed}: no end: {:?}",
            place.path("results").exists().then(|| statuses(place))
        );
        thread::sleep(Duration::from_millis(20));
        if kills < KILLS {
            thread::sleep(Duration::from_millis(chance.below(1500)));
            kills += u32::from(sweep.kill(&mut chance));
        }
    }
    assert!(kills >= KILLS / 2, "seed {seed}: {kills} kills");
    let place = &sweep.place;
    let csv = place.read("records.csv");
    assert_eq!(column(&csv, "status"), ["ok"; POINTS], "seed {seed}\n{csv}");
    let mut points = column(&csv, "point");
    points.sort();
    points.dedup();
    assert_eq!(points.len(), POINTS, "seed {seed}: a row is there twice");
    for (point, statuses) in statuses(place) {
        let measured = statuses.iter().filter(|status| *status == "ok ").count();
        assert_eq!(measured, 1, "seed {seed}: {point}: {statuses:?}");
    }
    let again = place.sweeper(&["run", "m.toml"]);
    assert!(text(&again).contains("nothing to do"), "{}", text(&again));
    let start = Instant::now();
    let cache = place.path("cache");
    loop {
        let left = processes(cache.to_str().unwrap(), "");
        if left.is_empty() {
            break;
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "seed {seed}: left: {left:?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}
