"""Times of PyTorch's forward passes, eager and torch.compile in two modes, at the sizes of manifests/operations-untuned.toml, in
milliseconds.

Two timers: `do_bench` is Triton's; `gated` is what sweeper does, with the same flush by the same calls of the driver: the
stream waits until the start event, the launch and the stop event are queued, so that no gap between them is counted, and
until the flush is done, so that every launch begins from rest. `max-autotune-no-cudagraphs` is `max-autotune` but for graphs, which
would hide launches that sweeper counts as well.
Usage: torch_ops.py LIMIT_SECONDS
"""
import ctypes, math, statistics, sys, time
import torch, torch.nn.functional as F, triton.testing as tt
import torch._functorch.config
torch._functorch.config.donated_buffer = False
torch._dynamo.config.cache_size_limit = 1000
torch.manual_seed(0)
start = time.time(); limit = float(sys.argv[1])
driver = ctypes.CDLL("libcuda.so.1")
gate = torch.zeros(1, dtype=torch.int32).pin_memory()
flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size // 4, dtype=torch.int32, device="cuda")
ticket = 0

def launch(f):
    """Milliseconds of one gated launch from a flushed cache."""
    global ticket
    ticket += 1
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    driver.cuCtxResetPersistingL2Cache()
    words = ctypes.c_uint64(flush.data_ptr()), ctypes.c_uint(ticket * 0x9E3779B9 & 0xFFFFFFFF | 1)
    assert driver.cuMemsetD32Async(*words, ctypes.c_size_t(flush.numel()), stream) == 0
    ready = torch.cuda.Event(); ready.record()
    assert driver.cuStreamWaitValue32_v2(stream, ctypes.c_uint64(gate.data_ptr()), ctypes.c_uint32(ticket), 0) == 0
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record(); f(); end.record()
    ready.synchronize()
    gate[0] = ticket
    end.synchronize()
    return begin.elapsed_time(end)

def gated(f, samples=20):
    f(); flush.fill_(0); torch.cuda.synchronize()  # what is loaded late would wait for the gate
    warm = [launch(f) for _ in range(5)]
    # A sample is the mean of as many launches as last a thousand ticks of the events' clock, 32 ns each.
    launches = math.ceil(1000 * 32e-6 / min(warm))
    return statistics.median(statistics.fmean(launch(f) for _ in range(launches)) for _ in range(samples))

def ops(b, s, d):
    dev = "cuda"
    x = torch.randn(b, s, d, device=dev, requires_grad=True)
    gamma = torch.randn(d, device=dev, requires_grad=True); beta = torch.randn(d, device=dev, requires_grad=True)
    t = torch.randn(b, s, d, device=dev); labels = torch.randint(0, d, (b * s,), device=dev)
    yield "layernorm", lambda x, g, bb: F.layer_norm(x, (d,), g, bb, 1e-5), (x, gamma, beta)
    yield "gelu", lambda x: F.gelu(x), (x,)
    yield "swish", lambda x: x * torch.sigmoid(x), (x,)
    yield "mse", lambda x: F.mse_loss(x, t), (x,)
    yield "cross_entropy", lambda x: F.cross_entropy(x.view(-1, d), labels), (x,)
    yield "softmax", lambda x: torch.softmax(x, -1), (x,)

def both(f):
    return tt.do_bench(f, warmup=10, rep=60, return_mode="median"), gated(f)

print("operation,implementation,phase,batch,sequence,dimension,compile_s,do_bench_ms,gated_ms", flush=True)
print(f"# PyTorch {torch.__version__}, Triton {__import__('triton').__version__}, {torch.cuda.get_device_name(0)}, f32", file=sys.stderr)
for mode in ("eager", "default", "max-autotune-no-cudagraphs"):
    for (b, s, d) in [(b, 384, d) for b in (128, 1) for d in (1000, 2048, 5120)]:
        for name, f, args in ops(b, s, d):
            if time.time() - start > limit: sys.exit("out of time")
            torch._dynamo.reset()
            g = f if mode == "eager" else torch.compile(f, dynamic=False, mode=mode)
            plain = [a.detach() for a in args]
            def forward():
                with torch.no_grad(): g(*plain)
            begun = time.time(); forward(); torch.cuda.synchronize(); compiled = time.time() - begun
            impl = mode if mode == "eager" else f"torch.compile {mode}"
            ms = both(forward)
            print(f"{name},{impl},forward,{b},{s},{d},{compiled:.3f},{ms[0]:.6f},{ms[1]:.6f}", flush=True)
