"""Functions of the user that judge outputs: a call of one, and what its result means."""

import numpy

from . import faults, sources, tensors


def judge(request):
    """Calls a judge with tensors by name: inputs, outputs, and right outputs where they are known.
    It gets copies, which it may change."""
    module = sources.load(request["source"], request["path"])
    function = sources.entry(module, request["entry"], request["what"])
    groups = {"inputs": {}, "outputs": {}}
    if request["knows_expected"]:
        groups["expected"] = {}
    for key, tensor in tensors.read(request["file"]).items():
        group, name = key.split("/", 1)
        groups[group][name] = numpy.array(tensor.array)
    named = {name: held["value"] for name, held in request["kwargs"]}
    return judgement(function(*groups.values(), **named), request["bound"])


def judgement(held, bound):
    """A result that is a judgement. Anything else is refused: it must not pass for one."""
    if bound is not None:
        if is_number(held):
            return {"value": repr(float(held))}
        raise refused(held, "a number, as there is a `bound`")
    if is_truth(held):
        return {"is_right": bool(held), "reason": ""}
    if isinstance(held, tuple) and len(held) == 2 and is_truth(held[0]) and isinstance(held[1], str):
        return {"is_right": bool(held[0]), "reason": held[1]}
    if is_number(held):
        raise refused(held, "True or False, as there is no `bound`")
    raise refused(held, "True, False, or one of them with a reason")


def is_truth(held):
    return isinstance(held, (bool, numpy.bool_))


def is_number(held):
    return isinstance(held, (int, float, numpy.integer, numpy.floating)) and not is_truth(held)


def refused(held, wanted):
    shown = repr(held)
    shown = shown if len(shown) <= 60 else shown[:60] + "..."
    return faults.Refused("error", f"it returns {shown}, and not {wanted}")
