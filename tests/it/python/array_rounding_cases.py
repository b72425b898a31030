"""Honest programs of NumPy or JAX in f32 against what the child's model of rounding says of them: prints, for
each function, the error over the predicted one, and names of operations without a model. The folder of the
child's modules and the library are the arguments."""

import sys
import types

package = types.ModuleType("sweeper_child")
package.__path__ = [sys.argv[1]]
sys.modules["sweeper_child"] = package
LIBRARY = sys.argv[2]

import numpy
from sweeper_child import arrays, probes
from sweeper_child.tensors import Tensor

TEXT = """
def softmax(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)

def layernorm(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)

def product(x):
    return x[:, :300] @ x[:, 300:600].T

def attention(x):
    q, k = x[:, :96].reshape(4, 16, 96), x[:, 400:496].reshape(4, 16, 96)
    return np.einsum("bqk,bkd->bqd", softmax(np.einsum("bqd,bkd->bqk", q, k) / 9.7979), q)

def total(x):
    return np.abs(x).sum(1)

def cumulated(x):
    return np.cumsum(x, axis=1)

def norm(x):
    return np.linalg.norm(x, axis=1)

def scaled(x):
    return x * 3.14

def logsumexp(x):
    return np.log(np.exp(x).sum(1))

def recurrence(x):
    state, states = x[:, 0], []
    for step in range(40):
        state = 0.9 * state + np.tanh(x[:, step])
        states.append(state)
    return np.stack(states)
"""
HEAD = {"numpy": "import numpy as np", "jax": "import jax.numpy as np"}[LIBRARY]
SOURCE = {"files": [{"path": "cases.py", "text": HEAD + TEXT, "module": "cases"}], "load": "all"}

x = numpy.random.default_rng(5).standard_normal((64, 1000)).astype(numpy.float32)
framework = arrays.FRAMEWORKS[LIBRARY]("cpu")
space = {}
exec(HEAD + TEXT, space)
for name in [name for name, held in space.items() if isinstance(held, types.FunctionType)]:
    found = numpy.asarray(space[name](framework.of(Tensor("f32", x))))
    request = {"arrays": LIBRARY, "judged": "f32", "with_spread": True, "what": "the reference", "path": [],
               "source": SOURCE, "entry": name, "args": [{"tensor": "x"}], "kwargs": [], "returns": ["out"],
               "mutates": [],
               "outputs": [{"name": "out", "dtype": "f64", "shape": list(found.shape), "passed": False}]}
    given = probes.answer(request, framework, {"x": Tensor("f32", x)})
    answer = given["out"].array
    noises = [held.array - answer for key, held in given.items() if key.startswith("probe ")]
    unknown = given.get("operations without a model")
    error = probes.rms(found.reshape(answer.shape) - answer)
    print("f32", name, error / probes.rms(numpy.array(noises)), unknown and bytes(unknown.array).decode() or "{}",
          sep="\t")
