"""A training step of the guide's Transformer in PyTorch, as one would write it for speed.

Same mathematics as the workload `transformer`: RMSNorm, rotary attention, SwiGLU, no biases, the sum
of the logits as loss, AdamW. Weights are f32; with bf16, products are in bf16 by autocast. Prints the
median time of a step by CUDA events and the peak of allocated memory, as one line of JSON.
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F

SIZES = {
    "small": (768, 3072, 12, 12),
    "medium": (1024, 4096, 24, 16),
    "large": (1280, 5120, 36, 20),
}


def turned(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Block(torch.nn.Module):
    def __init__(self, width, inner, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = torch.nn.RMSNorm(width, eps=1e-5)
        self.ln2 = torch.nn.RMSNorm(width, eps=1e-5)
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.output = torch.nn.Linear(width, width, bias=False)
        self.w13 = torch.nn.Linear(width, 2 * inner, bias=False)
        self.w2 = torch.nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        batch, context, width = x.shape
        qkv = self.qkv(self.ln1(x)).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q, k = turned(q, cos, sin).to(v.dtype), turned(k, cos, sin).to(v.dtype)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(seen.transpose(1, 2).reshape(batch, context, width))
        gate, values = self.w13(self.ln2(x)).chunk(2, dim=-1)
        return x + self.w2(F.silu(gate) * values)


class Model(torch.nn.Module):
    def __init__(self, size, vocabulary, context):
        super().__init__()
        width, inner, layers, heads = SIZES[size]
        self.embeddings = torch.nn.Embedding(vocabulary, width)
        self.layers = torch.nn.ModuleList(Block(width, inner, heads) for _ in range(layers))
        self.ln = torch.nn.RMSNorm(width, eps=1e-5)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(context), 10000.0 ** -(torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.ln(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["eager", "compile", "graph"], required=True)
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16"], required=True)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=50)
    asked = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = asked.precision == "tf32"
    vocabulary = 10000
    model = Model(asked.size, vocabulary, asked.context).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    tokens = torch.randint(vocabulary, (asked.batch, asked.context), device="cuda")
    run = {
        "eager": lambda: model,
        "compile": lambda: torch.compile(model),
        "graph": lambda: torch.compile(model, mode="reduce-overhead"),
    }[asked.mode]()

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=asked.precision == "bf16"):
            loss = run(tokens).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(10):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(asked.steps):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    print(json.dumps({
        "step_ms": statistics.median(times),
        "peak_bytes": torch.cuda.max_memory_allocated(),
    }))


if __name__ == "__main__":
    main()
