"""Gradients by PyTorch's autograd: of a backward pass alone, or with the forward pass before it."""

import contextlib

from . import faults


def runner(program, gradient, phase):
    """The object that calls the function in a phase."""
    if program.framework.name != "torch":
        raise faults.Refused("unavailable", "`autograd` is of PyTorch")
    if phase == "forward":
        from .program import Forward

        return Forward(program)
    return {"backward": Backward, "both": Both}[phase](program, gradient)


class Gradients:
    """The graph of a call, and the gradients by some of its arguments."""

    def __init__(self, program, gradient):
        self.program = program
        self.torch = program.framework.torch
        self.names = program.request["returns"]
        self.of = [self.names.index(name) for name in gradient["of"]]
        self.by = [name for name, _ in gradient["by"]]
        self.gradients = [result for _, result in gradient["by"]]
        self.leaves = {}
        held = program.request
        for place, arguments in ((program.positional, enumerate(held["args"])),
                                 (program.named, held["kwargs"])):
            for key, argument in arguments:
                if argument.get("tensor") in self.by:
                    leaf = place[key].detach().requires_grad_(True)
                    self.leaves[argument["tensor"]] = place[key] = leaf
        missing = [name for name in self.by if name not in self.leaves]
        if missing:
            raise faults.Refused("error", f"`{missing[0]}` is not an argument: it has no gradient")
        self.incoming = [program.given[name] for name in gradient.get("incoming", [])]

        self.around = contextlib.nullcontext()

    def bound(self):
        return self.call

    def outputs(self):
        program = self.program
        held = program.function(*program.positional, **program.named)
        return list(held) if isinstance(held, (tuple, list)) else [held]

    def by_leaves(self, outputs):
        roots = [outputs[place] for place in self.of]
        if not self.incoming:
            # Made once, whatever its inputs: the gradient at a result is given, and not computed
            # by the function.
            if self.program.ones is None:
                self.program.ones = [self.torch.ones_like(root) for root in roots]
            self.incoming = self.program.ones
        incoming = [held.reshape(root.shape) for held, root in zip(self.incoming, roots)]
        leaves = [self.leaves[name] for name in self.by]
        return list(self.torch.autograd.grad(roots, leaves, incoming))


class Backward(Gradients):
    """The backward pass; the forward pass before it is not timed."""

    has_prologue = True

    def __init__(self, program, gradient):
        super().__init__(program, gradient)
        self.returns = self.gradients
        self.held = None

    def prologue(self):
        self.held = None
        self.held = self.outputs()

    def call(self):
        held, self.held = self.held, None
        return self.by_leaves(held)


class Both(Gradients):
    """The forward and the backward pass."""

    has_prologue = False

    def __init__(self, program, gradient):
        super().__init__(program, gradient)
        self.returns = [*self.names, *self.gradients]

    def prologue(self):
        pass

    def call(self):
        outputs = self.outputs()
        return [*outputs, *self.by_leaves(outputs)]
