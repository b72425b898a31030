"""What torch.compile makes of functions. Those of a problem begin without what it learnt from others: after a second
size it compiles for any, and after some it gives up. A function that it does not compile has no row under its name."""

import sys

from . import faults

# Versions of a function's code: backends and phases of one problem have one each.
MOST_VERSIONS = 64

# Code that it has compiled graphs of.
COMPILED = set()


def set_up():
    """Lets it fail where it would give up, once it is imported."""
    config = sys.modules["torch._dynamo"].config
    for name in ("recompile_limit", "cache_size_limit"):
        if hasattr(config, name):
            setattr(config, name, max(getattr(config, name), MOST_VERSIONS))
            break
    if hasattr(config, "fail_on_recompile_limit_hit"):
        config.fail_on_recompile_limit_hit = True


def forget():
    """Forgets all that it has compiled and learnt."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    COMPILED.clear()


def graphs():
    """How many graphs it has compiled."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils.counters["stats"].get("unique_graphs", 0) if utils else 0


def refuse_eager(function, before):
    """Refuses a function of which nothing is compiled, once it was called: there were so many graphs `before`."""
    code = getattr(function, "__code__", type(function))
    if graphs() > before:
        COMPILED.add(code)
    elif code not in COMPILED:
        reason = "torch.compile compiled nothing of it: it runs eagerly (TORCH_LOGS=graph_breaks says why)"
        raise faults.Refused("error", reason)
