//! References that are functions in Python: right, failing, and kept.

use std::fs;

use super::rows;
use crate::place::{Place, code, text};
use crate::support::has_package;

const SOURCE: &str = "\
import os, time
import numpy as np
from scale import FACTOR

def sums(x, index):
    if COUNTED: open(COUNTED, 'a').write(f'{x.dtype} {index.dtype}\\n')
    return FACTOR * np.sum(x, axis=1), index[::-1]

COUNTED = os.environ.get('COUNTED')

def raises(x, index):
    raise ValueError('no such sum')

def slow(x, index):
    time.sleep(60)

def flat(x, index):
    return np.sum(x), index

def one(x, index):
    return np.sum(x, axis=1)

def double(x, index):
    return np.sum(x.astype(np.float64), axis=1), index[::-1]

def overwrites(x, index):
    x += 1
    return np.sum(x, axis=1), index[::-1]
";

const BACKENDS: &str = "\
import numpy as np

def right(x, index):
    return (2 * np.sum(x.astype(np.float64), axis=1)).astype(np.float32), index[::-1].copy()

def wrong(x, index):
    return (2 * np.sum(x[:, 1:], axis=1)).astype(np.float32), index[::-1].copy()

def unordered(x, index):
    return (2 * np.sum(x, axis=1)).astype(np.float32), index.copy()
";

/// A manifest with the reference `entry` for three backends.
fn manifest(entry: &str, more: &str) -> String {
    let mut text = format!(
        "schema = 1
[python]
exe = \"${{SWEEPER_PYTHON:-python3}}\"
[limits]
oracle_s = 3
[workload.sums]
params = {{ n = {{ int = [1, 1000000] }} }}
inputs.x = {{ dtype = \"f32\", shape = [\"n\", 7] }}
inputs.index = {{ dtype = \"i32\", shape = [\"n\"], fill = \"permutation\" }}
outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}
outputs.back = {{ dtype = \"i32\", shape = [\"n\"] }}
check = {{ reference = {{ python = \"ref.py\", entry = \"{entry}\" }}{more} }}
[case.sums]
workload = \"sums\"
dtypes = [\"f32\"]
sizes = {{ n = [500] }}
backends = [\"right\", \"wrong\", \"unordered\"]
[sweep]
devices = [\"cpu\"]
"
    );
    for name in ["right", "wrong", "unordered"] {
        text += &format!(
            "[backend.{name}]\nworkload = \"sums\"\npython = \"mine.py\"\nentry = \"{name}\"\n\
             args = [\"x\", \"index\"]\nreturns = [\"y\", \"back\"]\n"
        );
    }
    text
}

fn place(entry: &str, more: &str) -> Place {
    let place = Place::new(&manifest(entry, more));
    fs::write(place.path("ref.py"), SOURCE).unwrap();
    fs::write(place.path("scale.py"), "FACTOR = 2\n").unwrap();
    fs::write(place.path("mine.py"), BACKENDS).unwrap();
    place
}
