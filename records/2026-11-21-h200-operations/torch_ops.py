"""Times of PyTorch, eager and torch.compile, at the sizes of manifests/operations-published.toml: cold L2, medians, ms."""
import sys, time, torch, torch.nn.functional as F, triton.testing as tt
import torch._functorch.config
torch._functorch.config.donated_buffer = False
torch._dynamo.config.cache_size_limit = 1000
torch.manual_seed(0)
start = time.time(); limit = float(sys.argv[1])
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
print("operation,implementation,phase,batch,sequence,dimension,median_ms", flush=True)
for (b, s, d) in [(128, 1024, 512), (64, 1024, 256), (32, 512, 768)]:
    for name, f, args in ops(b, s, d):
        for impl in ("eager", "torch.compile"):
            if time.time() - start > limit: sys.exit()
            g = f if impl == "eager" else torch.compile(f, dynamic=False)
            plain = [a.detach() for a in args]
            with torch.no_grad(): g(*plain)
            with torch.no_grad(): fwd = tt.do_bench(lambda: g(*plain), warmup=10, rep=60, return_mode="median")
            print(f"{name},{impl},forward,{b},{s},{d},{fwd:.6f}", flush=True)
            out = g(*args); go = torch.randn_like(out)
            bwd = tt.do_bench(lambda: torch.autograd.grad(out, args, go, retain_graph=True), warmup=10, rep=60, return_mode="median")
            print(f"{name},{impl},backward,{b},{s},{d},{bwd:.6f}", flush=True)
            del out
            torch.cuda.empty_cache()
