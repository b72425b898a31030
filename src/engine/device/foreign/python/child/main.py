"""Serves the requests of the process that started this one, until its stream ends."""

import contextlib
import gc
import importlib
import math
import os
import platform
import resource
import sys
import threading
from time import perf_counter_ns

from . import audit, caches, compiled, examine, faults, footprint, generate, handover, judge, libraries, sources
from . import tensors, unlisted
from .arrays import FRAMEWORKS
from .autotuned import WATCH
from .frames import Frames
from .imports import IMPORTS
from .program import Program
from .state import States, Turn


class Server:
    """The programs of one problem on one device."""

    def __init__(self, opened):
        self.device = opened["device"]
        self.has_gpu = opened.get("gpu", False)
        self.frameworks = {}
        self.framework_ns = {}
        self.compiler_ns = {}
        self.inputs = {}
        self.placed = {}
        self.programs = {}
        self.files = set()
        self.unlisted = unlisted.Unlisted()
        caches.stay_inside()
        IMPORTS.stay_first()
        if self.device == "cpu":
            if opened["processors"]:
                os.sched_setaffinity(0, opened["processors"])
            if opened["memory_bytes"] is not None:
                limit_memory(opened["memory_bytes"])
        self.clock = self.start_clock(opened)
        self.states = States()

    def start_clock(self, opened):
        """The clock of the device, on which functions keep to their processors and memory."""
        if self.device == "cuda":
            from .cuda import DeviceClock

            return DeviceClock(opened)
        from .host_clock import HostClock

        return HostClock(opened["cache"], opened["flush_bytes"], opened["processors"])

    def bind(self, request):
        """Takes the inputs of a problem."""
        self.inputs = tensors.read(request["file"])
        return {}

    def unbind(self, request):
        """Forgets the inputs of a problem and its programs: the next reference may need their memory, in another
        process."""
        self.programs.clear()
        self.placed.clear()
        self.inputs = {}
        # Programs are in cycles, and were frozen.
        gc.unfreeze()
        gc.collect()
        for framework in self.frameworks.values():
            if framework is not None:
                framework.release()
        return {}

    def framework(self, name):
        if name not in self.frameworks:
            start = perf_counter_ns()
            # CuPy has no arrays on a CPU: references over them are computed on the GPU.
            device = "cuda" if name == "cupy" and self.has_gpu else self.device
            self.frameworks[name] = FRAMEWORKS[name](device)
            self.framework_ns[name] = perf_counter_ns() - start
            self.states.take()
        return self.frameworks[name]

    def given(self, name):
        """The problem's inputs as arrays of a library."""
        if name not in self.placed:
            framework = self.framework(name)
            self.placed[name] = {key: framework.given(held) for key, held in self.inputs.items()}
        return self.placed[name]

    def prepare(self, request):
        """Imports the user's source, and calls the function once, so that its kernels are
        compiled."""
        self.files = {held["path"] for held in request["source"].get("files", [])}
        framework = self.framework(request["arrays"])
        compiler_ns = self.load_compiler(request)
        if not self.programs:
            compiled.forget()
        given = self.given(request["arrays"])
        before = unlisted.loaded()
        WATCH.forget()
        sources.search(request["path"])
        self.states.take()
        self.states.enter(turn := Turn(request))
        with WATCH.launches():
            program = Program(request, framework, given, turn)
            start = perf_counter_ns()
            program.restore()
            with framework.watched() as memory:
                program.call_first()
            framework.synchronize()
            first_ns = perf_counter_ns() - start
        autotuned = WATCH.texts()
        program.peak_bytes = memory and memory.peak_bytes
        program.first_ns = first_ns
        for name, array in program.arrays().items():
            program.refuse_others(name, array)
        self.programs[request["id"]] = program
        self.refuse_overwriting(request)
        if not request.get("keep_results"):
            program.results = None
        gc.collect()
        gc.freeze()
        # As if it were the first function of its interpreter.
        import_ns = self.framework_ns[request["arrays"]] + compiler_ns + program.import_ns
        files = self.unlisted.of(before, program.texts)
        times = {"import_ns": import_ns, "first_ns": first_ns}
        return {**times, "unlisted": files, "autotuned": autotuned}

    def refuse_overwriting(self, request):
        """Refuses a function that has changed an input, after which all have their given values."""
        names = "`, `".join(self.changed(request)["changed"])
        if names:
            help = "name it in `mutates`, then it gets a copy"
            raise faults.Refused("wrong", f"it overwrote the input `{names}`: {help}")

    def program(self, request):
        program = self.programs[request["id"]]
        program.as_graph = request.get("as_graph", False)
        self.files = program.files
        self.states.enter(program.turn)
        return program

    def ready(self, request):
        """Nothing is left to do."""
        return {}

    def poison(self, request):
        program = self.program(request)
        program.framework.reset_peak()
        program.poison()
        return {}

    def sample(self, request):
        program = self.program(request)
        for other in self.programs.values():
            if other is not program:
                other.results = None
        WATCH.forget()
        # Runs of an audit, too: frames that call the function are those of its samples.
        run = audit.run(program, self.clock, request)
        try:
            gc.disable()
            try:
                elapsed, is_ungated = self.clock.span(program, request["iterations"])
            finally:
                gc.enable()
            more = run.read(request)
        finally:
            run.end()
        waited = getattr(self.clock, "waited_ns", None)
        return {"elapsed_ns": elapsed, "ungated": is_ungated, "waited_ns": waited, "autotuned": WATCH.texts(), **more}

    def results(self, request):
        program = self.program(request)
        # Reading them takes memory as well.
        program.peak = program.framework.peak_bytes()
        return handover.hand_over(program, self.clock, request)

    def fingerprint(self, request):
        """A text that changes with any bit of its results, or null."""
        return {"sums": handover.fingerprint(self.program(request))}

    def late_work(self, request):
        """Whether results change after the span."""
        audit.refuse_late_work(self.program(request), self.clock)
        return {}

    def library_use(self, request):
        """The kernels of libraries in a call on inputs that a function has not seen. This process is slower from then
        on: nothing is timed in it any more."""
        program = self.program(request)
        framework = program.framework
        program.use({name: framework.of(held) for name, held in tensors.read(request["unseen"]).items()})
        program.restore()
        watch = libraries.Watch(framework)
        program.call()
        return watch.end()

    def load(self, request):
        """Imports what a function or a reference needs, while a GPU for references gets ready."""
        uses_gpu = self.has_gpu and request["arrays"] == "torch"
        waking = threading.Thread(target=wake_gpu)
        if uses_gpu:
            waking.start()
        self.framework(request["arrays"])
        self.load_compiler(request)
        if uses_gpu:
            from . import reference  # noqa: F401

            waking.join()
            self.gpu()
        return {}

    def load_compiler(self, request):
        """Imports PyTorch's compiler for a function that it compiles; the nanoseconds of the import."""
        options = request.get("torch_compile")
        if options is None:
            return 0
        is_default = options.get("backend", "inductor") == "inductor"
        name = "torch._inductor.compile_fx" if is_default else "torch._dynamo"
        if name not in self.compiler_ns:
            start = perf_counter_ns()
            importlib.import_module(name)
            self.compiler_ns[name] = perf_counter_ns() - start
            compiled.set_up()
            self.states.take()
        return self.compiler_ns[name]

    def gpu(self):
        """PyTorch on the GPU that references may use beside the CPU; None if it sees none."""
        if "gpu" not in self.frameworks:
            try:
                self.frameworks["gpu"] = FRAMEWORKS["torch"]("cuda")
                self.frameworks["gpu"].synchronize()
            except Exception:
                self.frameworks["gpu"] = None
        return self.frameworks["gpu"]

    def answer(self, request):
        """The right outputs by a reference of a library with arrays, and what rounding does to them."""
        is_torch = request["arrays"] == "torch"
        frameworks = self.of_torch() if is_torch else self.framework(request["arrays"])
        self.states.enter(Turn(request))
        self.files = {held["path"] for held in request["source"].get("files", [])}
        inputs = tensors.read(request["file"])
        if is_torch:
            from . import reference

            found = reference.answer(request, frameworks, inputs)
        else:
            from . import probes

            found = probes.answer(request, frameworks, inputs)
        tensors.write(request["results"], found)
        gc.collect()
        return {}

    def of_torch(self):
        """PyTorch on the processors that references may use."""
        frameworks = {"cpu": self.framework("torch")}
        if self.has_gpu and self.gpu() is not None:
            frameworks["cuda"] = self.gpu()
            frameworks["cpu"].makes_on = "cuda"
        return frameworks

    def compare(self, request):
        """How far outputs are from an answer that was kept."""
        from . import reference

        with handover.taken(request, self.of_torch()) as outputs:
            found = reference.compare(request, outputs)
        tensors.write(request["results"], found)
        return {}

    def open_outputs(self, request):
        """Opens outputs that another process left on the GPU, to find out whether that works."""
        with handover.taken(request, self.of_torch()):
            return {}

    def forget(self, request):
        """Lets kept answers go."""
        from . import reference

        reference.forget(self.of_torch())
        return {}

    def generate(self, request):
        """The inputs that a function of the user makes."""
        self.states.enter(Turn())
        self.files = {held["path"] for held in request["source"].get("files", [])}
        tensors.write(request["file"], generate.generate(request))
        return {}

    def judge(self, request):
        self.states.enter(Turn())
        self.files = {held["path"] for held in request["source"].get("files", [])}
        return judge.judge(request)

    def examine(self, request):
        """The tensors of a problem of KernelBench."""
        self.states.enter(Turn())
        self.files = {held["path"] for held in request["source"]["files"]}
        return examine.examine(request, self.framework("torch"))

    def changed(self, request):
        """Names of a program's inputs that differ from their given values, which they get back."""
        program = self.program(request)
        framework, changed = program.framework, []
        for key, array in program.given.items():
            tensor = self.inputs[key]
            if program.uses(key) and not framework.is_same(array, tensor):
                changed.append(key)
                self.give_again(program, key, tensor)
        return {"changed": changed}

    def give_again(self, program, key, tensor):
        """Gives an input of a program, which others may share, its given values again."""
        framework, given = program.framework, program.given
        if framework.can_write:
            framework.copy(framework.of(tensor), given[key])
            return
        given[key] = framework.given(tensor)
        for other in self.programs.values():
            if other.given is given:
                other.use(given)

    def memory(self, request):
        program = self.program(request)
        peak = program.peak or program.framework.peak_bytes()
        if peak is None:
            resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            held = sum(tensor.array.nbytes for tensor in self.inputs.values())
            given, returned = (output_bytes(program, is_given) for is_given in (True, False))
            peak = (held + given + max(returned, growth_bytes(program)), resident)
        return {"allocated": program.peak_bytes or peak[0], "reserved": peak[1]}


def growth_bytes(program):
    """How much a process grows in a call of a program."""
    if program.first_ns > footprint.LONGEST_NS:
        return 0

    def call():
        program.call()
        program.framework.synchronize()

    program.results = None
    program.restore()
    grown = footprint.growth_bytes(call)
    program.results = None
    return grown


def output_bytes(program, is_given):
    """Bytes of a program's outputs, of those that it is given or of those that it returns."""
    held = (output for output in program.outputs.values() if bool(output["passed"]) == is_given)
    return sum(math.prod(output["shape"]) * tensors.numpy.dtype(tensors.DTYPES[output["dtype"]][1]).itemsize
               for output in held)


def wake_gpu():
    """Makes the context that PyTorch uses, which takes a second. If this fails, PyTorch says why."""
    from .driver import Driver

    with contextlib.suppress(Exception):
        Driver()


def limit_memory(more_bytes):
    """Lets this process grow by so many bytes: a function that takes more fails, and the system
    ends nothing for it."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + more_bytes
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def ready():
    """The version and implementation of this interpreter."""
    return {"python": platform.python_version(), "implementation": platform.python_implementation()}


def served(opened):
    """The server of functions here, or of one that nobody trusts."""
    if "shared" not in opened:
        return Server(opened)
    from .candidate import Refereed

    return Refereed(opened)


def settle(server, answer):
    """Ends the turn of a function, with what it changed in its answer. An interpreter in which some
    of that is left ends, unless it is said that the function may keep it to itself."""
    changed, is_left = server.states.leave() if server else ([], False)
    if "error" in answer:
        answer["error"]["ends"] |= is_left
    elif changed:
        answer["ok"].update(process_changes=changed, is_left=is_left)


def serve():
    """Answers every request; a failure is an answer, too."""
    frames = Frames()
    server = None
    while (request := frames.receive()) is not None:
        verb = request.pop("do")
        try:
            if verb == "open":
                server = served(request)
                answer = ready()
            else:
                answer = getattr(server, verb)(request)
            answer = {"ok": answer}
        except SystemExit as error:
            reason = f"it ended the interpreter: exit({error.code})"
            answer = {"error": {"status": "error", "reason": reason, "ends": False}}
        except BaseException as error:
            answer = faults.answer(error, server.files if server else ())
            # The traceback holds memory that the next program may need.
            error.__traceback__ = None
            gc.collect()
        settle(server, answer)
        is_lost = answer.get("error", {}).get("ends", False)
        frames.send(answer)
        if is_lost:
            os._exit(1)
        sys.stdout.flush()
