"""What keeps a library's files in the folder of its caches, where no variable does in all versions."""

from .imports import IMPORTS


def precompile_no_headers(config):
    """Tells PyTorch's compiler not to compile headers ahead, of 150 MB.

    It keeps them below the folder of temporary files: that is neither bounded nor there for another
    node, and a C++ compiler reads them again in each run.
    """
    if hasattr(config, "cpp_cache_precompile_headers"):
        config.cpp_cache_precompile_headers = False


def stay_inside():
    """Has libraries that are imported from now on keep their files in these folders."""
    IMPORTS.after["torch._inductor.config"] = precompile_no_headers
