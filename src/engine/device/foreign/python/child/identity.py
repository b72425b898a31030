"""This interpreter's identity, in one line: its version, versions of the packages that compute, a
digest of those of all packages, and the variables that change how they compute."""

import hashlib
import os
import platform
from importlib import metadata

SHOWN = ["numpy", "torch", "triton", "cupy", "jax", "jaxlib", "numba"]
PREFIXES = ("TORCH", "TRITON_", "CUDA_", "CUBLAS", "XLA_", "JAX_", "CUPY_", "OMP_", "MKL_", "OPENBLAS_", "GOTO_",
            "BLIS_", "VECLIB_", "NUMBA_", "NUMEXPR_")
# Places of files, and variables that are set anew for each interpreter.
OTHERS = ("_DIR", "_PATH", "_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_MODULE_LOADING")

versions = {}
for held in metadata.distributions():
    name = (held.metadata["Name"] or "").lower().replace("_", "-")
    versions.setdefault(name, held.version)
shown = [
    f"{name} {version}"
    for name, version in sorted(versions.items())
    if name in SHOWN or name.startswith("cupy-")
]
lines = "\n".join(f"{name}=={version}" for name, version in sorted(versions.items()))
digest = hashlib.sha256(lines.encode()).hexdigest()[:12]
variables = [
    f"{name}={value}"
    for name, value in sorted(os.environ.items())
    if name.startswith(PREFIXES) and not name.endswith(OTHERS)
]
interpreter = f"{platform.python_implementation()} {platform.python_version()}"
print(", ".join([interpreter, *shown, f"packages {digest}", *variables]))
