"""What a problem of KernelBench has: inputs and outputs, and how their shapes follow from the whole
numbers that its file names.

Nothing is computed: tensors are of PyTorch's device `meta`, which have shapes and no elements. The
file is executed with other constants, one changed at a time and then all, and for each extent the
simplest expression is taken that holds in every trial.
"""

import ast
import inspect
import itertools
import math

from . import faults, sources

# Values of a constant that are tried beside its own; so many that work are enough.
TRIALS = [lambda v: 2 * v, lambda v: v + 1, lambda v: 3 * v, lambda v: v + 8, lambda v: v // 2]
ENOUGH_TRIALS = 3

# Steps of windows that are looked for in extents.
MOST_STRIDE = 16

# A file that `meta` can't serve is computed with inputs of at most so many bytes.
MOST_BYTES = 1 << 26


def examine(request, framework):
    """Parameters, inputs and outputs as a manifest has them, and doubts."""
    problem = Problem(request, framework)
    constants = whole_numbers(request["source"]["files"][0]["text"])
    base = problem.trial({})
    trials = {}
    for name, value in constants.items():
        found = problem.trials(name, value)
        if any(held["shapes"] != base["shapes"] for _, held in found):
            trials[name] = found
    # What its elements are, and how many tensors of which ranks, belongs to the problem as it is.
    for name, found in list(trials.items()):
        if any(kind(held) != kind(base) for _, held in found):
            del trials[name]
    names, shapes = expressed(problem, constants, base, trials)
    taken = set(names)
    args = base["args"]
    own_names = [own for own, held in zip(problem.input_names(len(args)), args) if held is None]
    inputs = []
    for spec, own, shape in zip(base["inputs"], own_names, shapes):
        inputs.append({**spec, "name": free(own, taken), "shape": shape})
    outputs = []
    for at, spec in enumerate(base["outputs"]):
        own = "out" if len(base["outputs"]) == 1 else f"out{at + 1}"
        outputs.append({**spec, "name": free(own, taken), "shape": shapes[len(inputs) + at]})
    return {
        "params": [[name, constants[name]] for name in names],
        "args": args,
        "inputs": inputs,
        "outputs": outputs,
        "random": base["random"],
        "bytes": base["bytes"],
    }


def kind(trial):
    """What constants must not change."""
    ranks = [len(shape) for shape in trial["shapes"]]
    return ranks, trial["args"], trial["inputs"], trial["outputs"]


def free(name, taken):
    """A name that is not taken yet."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def whole_numbers(text):
    """Names of the file, in their order, that it gives whole numbers without other names."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        else:
            continue
        for target in targets:
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts)
            for name, held in pairs:
                if isinstance(name, ast.Name):
                    number = evaluated(held)
                    if number is not None:
                        found[name.id] = number
    return found


def evaluated(node):
    """The whole number that an expression without names is, if it is one."""
    if any(isinstance(held, (ast.Name, ast.Call, ast.Attribute)) for held in ast.walk(node)):
        return None
    try:
        held = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
    except Exception:
        return None
    return held if type(held) is int and held > 0 else None


class Problem:
    """A file that is executed with other constants."""

    def __init__(self, request, framework):
        self.request = request
        self.framework = framework
        self.torch = framework.torch
        self.what = request["what"]
        self.module = None
        self.device = None

    def trials(self, name, value):
        """Other values of a constant with what is then."""
        found = []
        for other in (change(value) for change in TRIALS):
            if other < 1 or other == value or any(held == other for held, _ in found):
                continue
            try:
                found.append((other, self.trial({name: other})))
            except Exception:
                continue
            if len(found) == ENOUGH_TRIALS:
                break
        return found

    def joint(self, constants, names):
        """Other values of all constants with what is then, if there are such."""
        for change in TRIALS:
            values = {name: change(constants[name]) for name in names}
            try:
                return values, self.trial(values)
            except Exception:
                continue
        return None

    def trial(self, values):
        """Tensors with these constants."""
        module = sources.load(self.request["source"], self.request["path"], values)
        for name in ("Model", "get_inputs", "get_init_inputs"):
            sources.entry(module, name, self.what)
        self.module = module
        if self.device is not None:
            return self.tensors(module, self.device)
        # The device of the first trial is that of all.
        self.device = "meta"
        try:
            return self.tensors(module, "meta")
        except faults.Refused:
            raise
        except Exception as error:
            small = self.inputs_of(module, "meta")[0]
            if sum(held.nbytes for held in small if isinstance(held, self.torch.Tensor)) > MOST_BYTES:
                raise faults.Refused("error", f"its shapes can't be found without elements: {error}") from error
            self.device = "cpu"
            return self.tensors(module, "cpu")

    def inputs_of(self, module, device):
        recorder = fills(self.torch)
        with self.torch.device(device), recorder:
            inputs = module.get_inputs()
        for at, held in enumerate(inputs):
            is_number = isinstance(held, (int, float)) and math.isfinite(held)
            if not is_number and not isinstance(held, self.torch.Tensor):
                raise faults.Refused("error", f"its input {at + 1} is {shown(held)}, neither tensor nor number")
        return inputs, recorder

    def tensors(self, module, device):
        inputs, recorder = self.inputs_of(module, device)
        given = [held for held in inputs if isinstance(held, self.torch.Tensor)]
        specs = [{"dtype": self.dtype(held), "fill": recorder.fill_of(held)} for held in given]
        with self.torch.device(device), self.torch.no_grad(), one_step(self.torch):
            model = module.Model(*module.get_init_inputs())
            is_random = any(type(held).__name__.startswith("Dropout") and held.p > 0
                            for held in model.modules())
            weights = sum(held.nbytes for held in model.state_dict().values())
            outputs = model(*inputs)
        if not isinstance(outputs, (tuple, list)):
            outputs = [outputs]
        for held in outputs:
            if not isinstance(held, self.torch.Tensor):
                raise faults.Refused("error", f"it returns {shown(held)}, and no tensor")
        all_tensors = [*given, *outputs]
        return {
            # Numbers stand in a call as they are; a place without one is a tensor's.
            "args": [None if isinstance(held, self.torch.Tensor) else held for held in inputs],
            "inputs": specs,
            "outputs": [{"dtype": self.dtype(held)} for held in outputs],
            "shapes": [list(held.shape) for held in all_tensors],
            "random": is_random,
            "bytes": weights + sum(held.nbytes for held in all_tensors),
        }

    def dtype(self, tensor):
        name = self.framework.names.get(tensor.dtype)
        if name is None:
            raise faults.Refused("error", f"a tensor is of type {tensor.dtype}")
        return name

    def input_names(self, count):
        """Names of the arguments of a call."""
        held = list(inspect.signature(self.module.Model.forward).parameters.values())[1:]
        names = [one.name for one in held if one.kind == one.POSITIONAL_OR_KEYWORD]
        names += [f"x{at}" for at in range(len(names) + 1, count + 1)]
        return names[:count]


def shown(held):
    text = repr(held)
    return f"{type(held).__name__} {text[:40]}" if isinstance(held, (int, float, str)) else f"a {type(held).__name__}"


def fills(torch):
    """A mode that notes by which call of PyTorch a tensor was made."""
    factories = {
        torch.rand: lambda args, named: {"uniform": [0, 1]},
        torch.randn: lambda args, named: "normal",
        torch.zeros: lambda args, named: 0,
        torch.ones: lambda args, named: 1,
        torch.randperm: lambda args, named: "permutation",
        torch.randint: bounds,
    }

    class Fills(torch.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.made = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            named = kwargs or {}
            result = function(*args, **named)
            # What a call hands back or changes is no longer what it was.
            self.made = [(held, fill) for held, fill in self.made if held is not result]
            if function in factories:
                self.made.append((result, factories[function](args, named)))
            return result

        def fill_of(self, tensor):
            return next((fill for held, fill in self.made if held is tensor), None)

    return Fills()


def one_step(torch):
    """A mode by which recurrences on the device `meta` take one step, whose shapes are those of all: PyTorch
    walks through all of them in Python, which takes 20 s for six layers of 512."""
    names = ("lstm", "gru", "rnn_tanh", "rnn_relu")
    recurrences = [getattr(torch._VF, name) for name in names]

    class OneStep(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            # Packed sequences have two axes.
            if function not in recurrences or not args[0].is_meta or args[0].dim() != 3:
                return function(*args, **(kwargs or {}))
            is_batch_first = args[-1]
            axis = 1 if is_batch_first else 0
            result, *states = function(args[0].narrow(axis, 0, 1), *args[1:])
            return result.repeat_interleave(args[0].shape[axis], axis), *states

    return OneStep()


def bounds(args, named):
    """The least and the greatest number of `torch.randint`."""
    numbers = [held for held in args if type(held) is int]
    low = named.get("low", numbers[0] if len(numbers) == 2 else 0)
    high = named.get("high", numbers[-1] if numbers else None)
    return None if high is None else {"integers": [low, high - 1]}


def expressed(problem, constants, base, trials):
    """The constants that are parameters, and the shapes as expressions of them. Where no expression
    holds, a constant is left at its value: rather one that no input's shape depends on."""
    names = list(trials)
    inputs = len(base["inputs"])
    while True:
        runs = [({}, base)]
        runs += [({name: value}, held) for name in names for value, held in trials[name]]
        joint = problem.joint(constants, names) if len(names) > 1 else None
        if joint is not None and kind(joint[1]) == kind(base):
            runs.append(joint)
        points = [{**{name: constants[name] for name in names}, **values} for values, _ in runs]
        shapes, failed = [], None
        for at, shape in enumerate(base["shapes"]):
            extents = []
            for axis in range(len(shape)):
                seen = [held["shapes"][at][axis] for _, held in runs]
                found = expression(names, points, seen)
                if found is None and failed is None:
                    failed = [name for name in names
                              if any(held["shapes"][at][axis] != shape[axis] for _, held in trials[name])]
                extents.append(found)
            shapes.append(extents)
        if failed is None:
            return names, shapes
        of_inputs = {name for name in names
                     if any(held["shapes"][:inputs] != base["shapes"][:inputs] for _, held in trials[name])}
        out = [name for name in failed or names if name not in of_inputs] or failed or names
        names = [name for name in names if name not in out]


def expression(names, points, seen):
    """The simplest expression of names that has these values at these points."""
    if len(set(seen)) == 1:
        return str(seen[0])
    first = points[0]
    used = [name for name in names
            if any(value != seen[0] and point[name] != first[name]
                   and all(point[other] == first[other] for other in names if other != name)
                   for point, value in zip(points, seen))]
    for form in (product, affine, window):
        found = form(used, points, seen)
        if found is not None:
            return found
    return None


def product(used, points, seen):
    """Names multiplied, and a factor or a divisor."""
    values = [math.prod(point[name] for name in used) for point in points]
    text = " * ".join(used)
    if not used:
        return None
    for factor in {max(seen[0] // values[0], 1), 1}:
        if all(value * factor == held for value, held in zip(values, seen)):
            return text if factor == 1 else f"{factor} * {text}"
    divisor = values[0] // seen[0] if seen[0] else 0
    if divisor > 1 and all(value // divisor == held for value, held in zip(values, seen)):
        return f"{text} // {divisor}" if len(used) == 1 else f"({text}) // {divisor}"
    return None


def affine(used, points, seen):
    """A sum of multiples of names and of a number."""
    slopes = {}
    for name in used:
        for point, held in zip(points[1:], seen[1:]):
            step = point[name] - points[0][name]
            if step and all(point[other] == points[0][other] for other in used if other != name):
                if (held - seen[0]) % step:
                    return None
                slopes[name] = (held - seen[0]) // step
                break
    if set(slopes) != set(used):
        return None
    rest = seen[0] - sum(slope * points[0][name] for name, slope in slopes.items())
    for point, held in zip(points, seen):
        if sum(slope * point[name] for name, slope in slopes.items()) + rest != held:
            return None
    slopes = dict(sorted(slopes.items(), key=lambda held: held[1] < 0))
    text = " + ".join(name if slope == 1 else f"{slope} * {name}" for name, slope in slopes.items())
    text = text.replace("+ -1 * ", "- ").replace("+ -", "- ")
    return f"{text} {'+' if rest > 0 else '-'} {abs(rest)}" if rest else text


def window(used, points, seen):
    """The places of a window that moves by several elements."""
    if len(used) != 1:
        return None
    (name,) = used
    for stride, shift in itertools.product(range(2, MOST_STRIDE + 1), range(-256, 257)):
        if all((point[name] + shift) // stride == held for point, held in zip(points, seen)):
            inner = f"({name} {'+' if shift > 0 else '-'} {abs(shift)})" if shift else name
            return f"{inner} // {stride}"
    return None
