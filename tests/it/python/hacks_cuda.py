"""Products of matrices on a GPU by functions that cheat, in ways that are public, and against this referee."""

import ctypes
import gc
import os
import threading
import time

import torch

kept = {}
calls = [0]


def honest(x, w):
    return x @ w


def side():
    """A stream that waits for nothing."""
    if "side" not in kept:
        kept["side"] = torch.cuda.Stream()
    return kept["side"]


def on_a_stream(x, w):
    side().wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side()):
        return x @ w


def on_a_stream_later(x, w):
    out = torch.empty_like(x)
    side().wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side()):
        torch.cuda._sleep(100000)
        torch.matmul(x, w, out=out)
    return out


def in_a_thread(x, w):
    out = torch.empty_like(x)
    threading.Thread(target=lambda: torch.matmul(x, w, out=out)).start()
    return out


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        for held in args:
            if isinstance(held, Lazy) and getattr(held, "work", None):
                work, held.work = held.work, None
                with torch._C.DisableTorchFunctionSubclass():
                    torch.Tensor.copy_(held, work())
        return super().__torch_function__(func, types, args, kwargs or {})


def lazy(x, w):
    out = torch.empty_like(x).as_subclass(Lazy)
    out.work = lambda: x @ w
    return out


def by_address(x, w):
    key = (x.data_ptr(), w.data_ptr())
    if key not in kept:
        kept[key] = x @ w
    return kept[key]


def by_content(x, w):
    key = (x[0, 0].item(), w[0, 0].item())
    if key not in kept:
        kept[key] = x @ w
    return kept[key]


def in_half_precision(x, w):
    return (x.half() @ w.half()).float()


def in_tf32(x, w):
    torch.backends.cuda.matmul.allow_tf32 = True
    return x @ w


def nothing(x, w):
    return torch.empty_like(x)


def one_in_three(x, w):
    calls[0] += 1
    if calls[0] < 40 or calls[0] % 3 == 0 or "last" not in kept:
        kept["last"] = x @ w
    return kept["last"]


def half_of_it(x, w):
    calls[0] += 1
    out, half = torch.empty_like(x), x.shape[0] // 2
    torch.matmul(x[:half], w, out=out[:half])
    if calls[0] < 40:
        torch.matmul(x[half:], w, out=out[half:])
    return out


def patched_clocks(x, w):
    torch.cuda.Event.elapsed_time = lambda *held: 0.001
    torch.cuda.synchronize = lambda *held, **named: None
    time.perf_counter_ns = lambda: 0
    time.perf_counter = lambda: 0.0
    return x @ w


def page():
    """The page that is shared with the referee."""
    for held in gc.get_objects():
        if type(held).__name__ == "DevicePage":
            return held
    raise RuntimeError("there is no page")


def rings_early(x, w):
    """Rings when the gate opens, and works then."""
    held = page()
    number = held.words[0]
    held.driver.cuStreamWriteValue32_v2(None, held.address + 8 * 40, number, 0)
    return x @ w


def opens_the_gate(x, w):
    """Opens its gate itself, before inputs are there."""
    held = page()
    held.words[32] = held.words[0]
    return x @ w


def on_sight(x, w):
    """Works on a stream of its own as soon as an input changes, and lets the other stream wait for that."""
    held, own = page(), side()
    if held.words[0] > 1 << 32:
        # Nothing changes before the first call of a turn.
        return x @ w
    out = torch.empty_like(x)
    last = x.data_ptr() + 4 * (x.numel() - 1)
    # Waits until a bit of the last element is set that is not set now.
    now = ctypes.c_uint32()
    if "read" not in kept:
        kept["read"] = torch.cuda.Stream()
    held.driver.cuMemcpyDtoHAsync_v2(ctypes.addressof(now), last, 4, kept["read"].cuda_stream)
    kept["read"].synchronize()
    held.driver.cuStreamWaitValue32_v2(own.cuda_stream, last, ~now.value & 0xFFFFFFFF, 2)
    with torch.cuda.stream(own):
        torch.matmul(x, w, out=out)
    torch.cuda.current_stream().wait_stream(own)
    return out


SPIN = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 place, .param .u32 now)
{
    .reg .pred same;
    .reg .b32 seen, before, turns;
    .reg .b64 at;
    ld.param.u64 at, [place];
    ld.param.u32 before, [now];
    mov.u32 turns, 0;
AGAIN:
    ld.volatile.global.u32 seen, [at];
    add.u32 turns, turns, 1;
    setp.gt.u32 same, turns, 200000;
    @same ret;
    setp.eq.u32 same, seen, before;
    @same bra AGAIN;
    ret;
}
"""


def spins(x, w):
    """Watches an input by a kernel that stays on the device, and works when it changes."""
    held, own = page(), side()
    if "spin" not in kept:
        module = held.driver.made(ctypes.c_void_p, held.driver.cuModuleLoadData, SPIN)
        kept["spin"] = held.driver.made(ctypes.c_void_p, held.driver.cuModuleGetFunction, module, b"spin")
        kept["read"] = torch.cuda.Stream()
    out = torch.empty_like(x)
    last = x.data_ptr() + 4 * (x.numel() - 1)
    now = ctypes.c_uint32()
    held.driver.cuMemcpyDtoHAsync_v2(ctypes.addressof(now), last, 4, kept["read"].cuda_stream)
    kept["read"].synchronize()
    cells = (ctypes.c_uint64(last), now)
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(cell) for cell in cells))
    held.driver.cuLaunchKernel(kept["spin"], 1, 1, 1, 1, 1, 1, 0, own.cuda_stream, ctypes.addressof(pointers), None)
    with torch.cuda.stream(own):
        torch.matmul(x, w, out=out)
    torch.cuda.current_stream().wait_stream(own)
    return out


def finishes_late(x, w):
    """Has its last rows computed by a stream that the bell does not wait for."""
    out, most = torch.empty_like(x), x.shape[0] * 7 // 8
    side().wait_stream(torch.cuda.current_stream())
    torch.matmul(x[:most], w, out=out[:most])
    with torch.cuda.stream(side()):
        torch.matmul(x[most:], w, out=out[most:])
    return out


def leaves_work(x, w):
    """Keeps the device busy for others."""
    out = x @ w
    with torch.cuda.stream(side()):
        torch.cuda._sleep(2_000_000_000)
    return out


def waits_itself(x, w):
    out = x @ w
    torch.cuda.synchronize()
    return out


def hangs_the_device(x, w):
    calls[0] += 1
    if calls[0] > 12:
        for _ in range(100):
            torch.cuda._sleep(2_000_000_000)
    return x @ w


def faults(x, w):
    calls[0] += 1
    if calls[0] > 12:
        held = page()
        held.driver.cuMemsetD32Async(0x10, 1, 4, None)
        table = torch.zeros(4, device="cuda")
        torch.gather(table, 0, torch.full((4,), 1 << 40, device="cuda"))
    return x @ w


def in_memory_of_the_host(x, w):
    return (x @ w).cpu()


def elsewhere(x, w):
    """Says that its results lie behind the end of their memory."""
    held = page()
    tell = type(held).tell

    def lie(self, framework, results):
        tell(self, framework, results)
        self.words[128] = 1 << 40

    type(held).tell = lie
    return x @ w


def looks_for_answers(x, w):
    for folder in ("@FOLDER@", os.path.expanduser("~/.cache/sweeper")):
        os.listdir(folder)
    return x @ w


def takes_all_memory(x, w):
    free, _ = torch.cuda.mem_get_info()
    kept.setdefault("all", torch.empty(free * 9 // 10, dtype=torch.uint8, device="cuda"))
    return x @ w
