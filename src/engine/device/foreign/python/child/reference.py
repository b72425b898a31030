"""A reference of PyTorch: its answer in f64, what rounding to the judged format does to it, and how far
it is from its own answer where it is evaluated in that format. On a GPU where there is one that has room,
and where it agrees with the CPU."""

import contextlib
import gc
import math
import time

import numpy
import torch

from .state import Turn
from . import faults, rounding, spread
from .program import Program
from .tensors import Tensor

# Before each evaluation, so that all draw equal numbers.
SEED = 42

# Outputs of more elements than this show in two evaluations with noise what rounding does. Of others
# there are more, unless two take so long.
MANY_ELEMENTS = 100_000
FEW_PROBES, MANY_PROBES = 2, 8
LONG_S = 5.0

# Noise of more than this is kept in f32.
MANY_BYTES = 1 << 29

# Problems of no more elements than this are evaluated on the CPU as well.
SMALL_ELEMENTS = 1 << 20

# On a larger problem, what a GPU computes in f64 may be so far from what it computes in the format.
FAR = 1e-3

# Between processors, answers in f64 may differ by this part of what rounding to the format does.
NEAR = 1e-2

# Formats of less are judged so far from their answers that f64 has room for noise.
EXACT = "f64"

# Answers that stay here, where they were computed: by problem, slot and name.
KEPT = {}

# How large the noise of outputs is for the published inputs of a problem whose answers are kept, by name.
SIZES = {}

# They stay on a GPU if all of them take no more than this part of what others leave of its memory: what is
# measured needs some.
KEPT_SHARE = 0.25


def answer(request, frameworks, inputs):
    """Tensors by name: right outputs, unless they are kept here; `noise sums of` each real one, and `own error of`
    it where it could be evaluated in the judged format; `overflows` where an output was not finite there."""
    found, own = None, None
    if request.get("keep"):
        forget(frameworks, **request["keep"])
    if "cuda" in frameworks:
        found, own = on_gpu(request, frameworks, inputs)
        free(frameworks)
    if found is None:
        found = Evaluation(request, frameworks["cpu"], inputs, own).all()
    return found


def free(frameworks):
    """Hands back what nothing refers to."""
    gc.collect()
    if "cuda" in frameworks:
        torch.cuda.empty_cache()


def forget(frameworks, problem=None, slot=None):
    """Lets kept answers go, but those of a problem in other slots."""
    for held in [held for held in KEPT if held != problem]:
        del KEPT[held]
        SIZES.pop(held, None)
    KEPT.get(problem, {}).pop(slot, None)
    free(frameworks)


def compare(request, outputs):
    """`error sums of` each output of a problem, a tensor on some processor, by the answer that was kept here."""
    keep = request["keep"]
    answers = KEPT.get(keep["problem"], {}).get(keep["slot"])
    if answers is None:
        raise faults.Refused("error", "the interpreter that had its answer has ended")
    found = {}
    for name, answer in answers.items():
        found[f"error sums of {name}"] = numbers(spread.error_sums(answer, outputs[name]))
    return found


def on_gpu(request, frameworks, inputs):
    """The answer of the GPU, or None where the CPU's is needed, and the reference's own outputs in the judged
    format, in memory of the host, where they could be had: an answer of the CPU's is a line for the GPU, too."""
    held = sum(tensor.array.size for tensor in inputs.values())
    written = sum(int(numpy.prod(output["shape"])) for output in request["outputs"])
    free, _ = torch.cuda.mem_get_info()
    if 8 * (held + 3 * written) > free:
        return None, None
    evaluation = None
    try:
        evaluation = Evaluation(request, frameworks["cuda"], inputs)
        found = evaluation.all()
        if held + written + sum(one.numel() for one in evaluation.weights()) > SMALL_ELEMENTS:
            is_right = evaluation.is_near_own()
        else:
            by_cpu = Evaluation(request, frameworks["cpu"], inputs)
            is_right = evaluation.agrees(by_cpu.evaluate(rounding.Widened(by_cpu.dtype)))
        if is_right:
            return found, None
    except Exception as error:
        # Without it the CPU may still have an answer. A context that is lost has none, and what the reference is off
        # in the judged format is known here alone.
        status = faults.status_of(error)
        if status == "crashed" or status == "oom" and evaluation and evaluation.own is None:
            raise
        error.__traceback__ = None
    # Once an answer was held against them, they are none of an answer that is not to be trusted.
    own = evaluation.own if evaluation and not evaluation.own_errors else None
    return None, own and {name: held.cpu() for name, held in own.items()}


class Evaluation:
    """Evaluations of a reference on one processor."""

    def __init__(self, request, framework, inputs, own=None):
        self.request, self.framework = request, framework
        # The reference's outputs in the judged format that were not compared yet; none before they were found.
        self.own = own
        self.dtype = request["judged"]
        self.factor = rounding.TF32 if request.get("tf32") and self.dtype == "f32" else 0.0
        given = {name: framework.of(tensor) for name, tensor in inputs.items()}
        self.given = {name: held.double() if held.is_floating_point() else held for name, held in given.items()}
        # Models are made in f32, so that their weights are those of the models that are measured.
        self.program = Program(request, framework, self.given, Turn())
        self.module = self.program.function if isinstance(self.program.function, torch.nn.Module) else None
        self.state = {name: held.clone() for name, held in self.module.named_buffers()} if self.module else {}
        self.unknown = {}
        self.answers = {}
        self.own_errors = {}
        self.overflows = False
        # Without spreads of its own, an answer has those of the published inputs.
        self.sizes = SIZES.get((request.get("keep") or {}).get("problem"), {})
        self.has_long_sums = False

    def versions(self):
        """How often each input was written."""
        return {name: held._version for name, held in self.given.items()}

    def weights(self):
        return [*self.module.parameters(), *self.module.buffers()] if self.module else []

    def all(self):
        """All tensors in memory of the host."""
        if self.own is None:
            self.own = self.own_outputs()
        before = self.versions()
        mode = rounding.Widened(self.dtype)
        self.answers = self.kept(self.evaluate(mode))
        if mode.draws:
            self.refuse_chance()
        for name, held in self.answers.items():
            self.program.refuse_others(name, held)
        changed = [name for name, version in self.versions().items() if before[name] != version]
        if changed:
            raise faults.Refused("error", f"it overwrote the input `{changed[0]}`")
        found = {}
        for name, held in self.real_answers().items():
            if name in self.own:
                output = self.own.pop(name).reshape(held.shape)
                self.overflows |= spread.overflows(held, output)
                self.own_errors[name] = spread.rms_by_slice(output.double().sub_(held))
                del output
                found[f"own error of {name}"] = numbers(self.own_errors[name])
        if self.request["with_spread"]:
            self.sizes = {}
            found.update({f"noise sums of {name}": held for name, held in self.noise_sums_or_own().items()})
        if self.has_long_sums:
            found.update({f"tight spread of {name}": numbers([held]) for name, held in self.tight_noise().items()})
        if self.overflows:
            found["overflows"] = numbers([1.0])
        if self.unknown:
            # As bytes of UTF-8: an answer has nothing but tensors.
            text = ", ".join(f"{name} ({count})" for name, count in sorted(self.unknown.items()))
            found["operations without a model"] = Tensor("u8", numpy.frombuffer(text.encode(), numpy.uint8))
        if self.request.get("keep"):
            self.keep(**self.request["keep"])
        else:
            found.update({name: self.program.bits(name, held) for name, held in self.answers.items()})
        return found

    def refuse_chance(self):
        """Refuses a function whose results follow from the seed."""
        others = self.evaluate(rounding.Widened(self.dtype), SEED + 1)
        if not all(torch.equal(held, others[name]) for name, held in self.answers.items()):
            raise faults.refused_for_chance()

    def keep(self, problem, slot):
        """Keeps the answers for `compare`."""
        held = self.answers
        if self.framework.device == "cuda":
            # What this process has will be free, but for answers.
            room = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
            kept = [one for slot in KEPT.get(problem, {}).values() for one in slot.values() if one.is_cuda]
            if 8 * sum(one.numel() for one in [*kept, *held.values()]) > KEPT_SHARE * room:
                held = {name: one.cpu() for name, one in held.items()}
        KEPT.setdefault(problem, {})[slot] = {
            name: one.reshape(self.program.outputs[name]["shape"]) for name, one in held.items()}
        SIZES.setdefault(problem, self.sizes)

    def real_answers(self):
        return {name: held for name, held in self.answers.items() if held.is_floating_point()}

    def noise_sums_or_own(self):
        """Sums over noise; where there is no memory for it, of the error of the reference itself."""
        try:
            return self.noise_sums()
        except Exception as error:
            if faults.status_of(error) != "oom":
                raise
            error.__traceback__ = None
        gc.collect()
        if self.framework.device == "cuda":
            torch.cuda.empty_cache()
        self.unknown["all, for lack of memory"] = 1
        answers, own = self.real_answers(), self.own_outputs()
        if not own:
            raise faults.Refused("oom", "there is no memory to find out what rounding does")
        return {name: self.sums(name, [self.noise(own.pop(name).double(), held)] * 2)
                for name, held in answers.items()}

    def noise_sums(self):
        """The sums over the noise of each real output."""
        answers = self.real_answers()
        many = sum(held.numel() for held in answers.values()) > MANY_ELEMENTS
        noises = {name: [] for name in answers}
        start = math.inf
        for probe in range(FEW_PROBES if many else MANY_PROBES):
            if probe >= FEW_PROBES and probe % 2 == 0 and time.monotonic() - start > LONG_S:
                break
            mode = rounding.Rounded(self.dtype, probe + 1, self.unknown, self.factor)
            outputs = self.kept(self.evaluate(mode))
            self.has_long_sums |= mode.has_long_sums
            for name in answers:
                noises[name].append(self.noise(outputs.pop(name).double(), answers[name]))
            # The first imports what decomposes operations.
            start = min(start, time.monotonic())
        return {name: self.sums(name, noises.pop(name)) for name in answers}

    def tight_noise(self):
        """The rms of each real output's noise where long sums are made of blocks; nothing where there is no memory
        to find it out."""
        answers = self.real_answers()
        many = sum(held.numel() for held in answers.values()) > MANY_ELEMENTS
        probes = 1 if many else MANY_PROBES
        squares = dict.fromkeys(answers, 0.0)
        try:
            for probe in range(probes):
                mode = rounding.Rounded(self.dtype, MANY_PROBES + probe + 1, {}, self.factor, rounding.BLOCK)
                outputs = self.kept(self.evaluate(mode))
                for name in squares:
                    noise = self.noise(outputs.pop(name).double(), answers[name])
                    squares[name] += spread.rms(noise) ** 2 / probes
        except Exception as error:
            if faults.status_of(error) != "oom":
                raise
            error.__traceback__ = None
            return {}
        return {name: held ** 0.5 for name, held in squares.items()}

    def noise(self, output, answer):
        """An output, which nothing else refers to, less the answer."""
        output = output.reshape(answer.shape)
        # Several outputs may be one tensor.
        held = output.sub_(answer) if len(self.answers) == 1 else output - answer
        return held.float() if held.numel() > MANY_BYTES // 8 else held

    def sums(self, name, noises):
        u, least = rounding.FORMATS[self.dtype]
        answer = self.answers[name]
        held = spread.sums(answer, noises, self.framework.dtypes[self.dtype], rounding.RMS * u * least)
        self.sizes[name] = spread.mean_square(held, answer.numel()) ** 0.5
        return numbers(held)

    def evaluate(self, mode=None, seed=SEED):
        """The outputs, which the next evaluation may overwrite."""
        program = self.program
        for name, held in self.module.named_buffers() if self.module else ():
            held.copy_(self.state[name])
        program.results = None
        torch.manual_seed(seed)
        program.restore()
        with plain() if mode is not None else contextlib.nullcontext(), mode or contextlib.nullcontext():
            program.call()
        outputs = {name: held.detach() for name, held in program.arrays().items()}
        program.results = None
        return outputs

    def kept(self, outputs):
        """Outputs of their own: those that lie in arguments are copied."""
        program = self.program
        lent = {held.untyped_storage().data_ptr() for held in
                [*self.given.values(), *program.targets.values(), *program.own.values(), *self.weights()]}

        def is_own(held):
            # Elements of an expanded tensor are one in memory, and can't be written one by one.
            is_expanded = any(stride == 0 and size > 1 for stride, size in zip(held.stride(), held.shape))
            return held.untyped_storage().data_ptr() not in lent and not is_expanded

        return {name: held if is_own(held) else held.clone(memory_format=torch.contiguous_format)
                for name, held in outputs.items()}

    def own_outputs(self):
        """The outputs of the reference as it is, evaluated in the judged format; none where it can't be. A lack of
        memory is an error: the line would be narrower than the reference itself is exact."""
        if self.dtype == EXACT:
            return {}
        program, dtype = self.program, self.framework.dtypes[self.dtype]
        if program.targets or program.own:
            return {}
        narrow = {name: held.to(dtype) if held.is_floating_point() else held for name, held in self.given.items()}
        try:
            if self.module:
                self.module.to(dtype)
            program.use(narrow)
            return self.kept(self.evaluate())
        except Exception as error:
            if faults.status_of(error) == "oom":
                raise
            # Not every operation has every format.
            error.__traceback__ = None
            return {}
        finally:
            if self.module:
                self.module.double()
            program.use(self.given)

    def is_near_own(self):
        """Whether the answer is near to that in the judged format, by which it is judged on a GPU alone."""
        if self.overflows:
            return True

        def is_near(name, held):
            own = self.own_errors.get(name)
            u, _ = rounding.FORMATS[self.dtype]
            most = max(FAR, 64.0 * u) * spread.rms(held) + 1e3 * self.sizes.get(name, 0.0)
            return own is not None and own[0] <= most

        return all(is_near(name, held) for name, held in self.real_answers().items())

    def agrees(self, others):
        """Whether answers of another processor are alike."""
        def is_alike(name, held):
            error = spread.rms(others[name].to(held.device).double() - held)
            # Where nothing was simulated, rounding is as large as it is for one operation.
            noise = self.sizes.get(name, rounding.FORMATS[self.dtype][0] * spread.rms(held))
            return error <= NEAR * noise + 1e-12 * spread.rms(held)

        return all(is_alike(name, held) for name, held in self.real_answers().items())


@contextlib.contextmanager
def plain():
    """Attention and networks as operations, and f64 where a function does not say of what type it wants
    new tensors to be."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    before, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    torch.set_default_dtype(torch.float64)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.set_default_dtype(before)
        torch.backends.mha.set_fastpath_enabled(fast)


def numbers(values):
    return Tensor("f64", numpy.array(values, numpy.float64))
