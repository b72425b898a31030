"""A call of a function as one CUDA graph: recorded by PyTorch for its arguments, then launched."""

from . import faults

# Calls before the recording: libraries and compilers work in a function's first calls, on memory
# that is not part of the graph.
WARM_UP_CALLS = 2


class Graph:
    """A call whose launches were recorded. Its results are in the same memory each time."""

    def __init__(self, program):
        if program.framework.name != "torch":
            raise faults.Refused("unavailable", "graphs of functions are recorded by PyTorch: `arrays = \"torch\"`")
        if program.runner.has_prologue:
            # Its forward pass leaves other tensors for each call.
            raise faults.Refused("unavailable", "a backward pass alone is not launched as a graph")
        cuda = program.framework.torch.cuda
        self.graph = cuda.CUDAGraph()
        try:
            stream = cuda.Stream()
            stream.wait_stream(cuda.current_stream())
            with cuda.stream(stream):
                for _ in range(WARM_UP_CALLS):
                    program.runner.call()
            cuda.current_stream().wait_stream(stream)
            with cuda.graph(self.graph):
                self.results = program.runner.call()
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            reason = f"{program.what} can't be recorded as a CUDA graph: {first}"
            # PyTorch's allocator may still think that it is recording.
            raise faults.Refused(faults.status_of(error), reason, ends=True) from error

    def poison(self, framework):
        """Sets the bits of all results."""
        held = self.results if isinstance(self.results, (tuple, list)) else [self.results]
        for array in held:
            if framework.holds(array) and array.is_cuda:
                framework.poison(array)

    def launch(self):
        self.graph.replay()
        return self.results
