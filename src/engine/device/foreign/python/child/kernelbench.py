"""Models of PyTorch in the form of KernelBench: a class `Model`, `get_init_inputs` with the arguments
of its constructor, and constants, which have values of the manifest. A candidate is a class that gets
these arguments and the weights of `Model`."""

from . import faults, sources

# The seed of KernelBench, before arguments are made and before each model is.
SEED = 42

MODEL = "Model"


def model(request, framework):
    """The model that a backend or a reference calls."""
    held, torch = request["model"], framework.torch
    problem = sources.load(held["problem"], request["path"], held["constants"])
    module = problem
    if request["source"] != held["problem"] or held["tuned"]:
        values = {**held["constants"], **held["tuned"]}
        module = sources.load(request["source"], request["path"], values)
    what = held["problem"]["files"][0]["path"].rpartition("/")[2]
    arguments_of = sources.entry(problem, "get_init_inputs", what)
    original_class = sources.entry(problem, MODEL, what)
    own_class = sources.entry(module, request["entry"], request["what"])
    torch.manual_seed(SEED)
    arguments = arguments_of()
    original = made(framework, original_class, arguments)
    own = original
    if own_class is not original_class:
        own = made(framework, own_class, arguments)
        give_weights(original, own)
    for name in (held["weights"], held["dtype"]):
        if name is not None:
            own = own.to(framework.dtypes[name])
    return own.to(framework.device)


def made(framework, kind, arguments):
    """A model with the weights of the seed: on a GPU where that is measured, which makes a billion of them in
    no time. Reference and candidates have the same weights only if they are made on one kind of device."""
    try:
        held = begun(framework.torch, kind, arguments, framework.makes_on)
    except Exception as error:
        if framework.makes_on == "cpu" or faults.status_of(error) in ("oom", "crashed"):
            raise
        # Not every constructor works there.
        error.__traceback__ = None
        held = begun(framework.torch, kind, arguments, "cpu")
    if not isinstance(held, framework.torch.nn.Module):
        raise faults.Refused("error", f"`{kind.__name__}` is not a torch.nn.Module")
    return held


def begun(torch, kind, arguments, device):
    torch.manual_seed(SEED)
    with torch.device(device):
        return kind(*arguments)


def give_weights(original, own):
    """Copies those parameters and buffers that have one name and shape in both. Others are what the
    seed makes them."""
    mine = own.state_dict()
    given = {
        name: tensor
        for name, tensor in original.state_dict().items()
        if name in mine and mine[name].shape == tensor.shape
    }
    own.load_state_dict(given, strict=False)
