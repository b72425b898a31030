#!/usr/bin/env python3
"""A million points of the null device in 1,000 shards: how long planning, joining and reporting take, and
with how much memory. Numbers are in docs/performance/engine.md.

    cargo build --release
    benches/million.py target/release/sweeper /tmp/million

Shard 1 is measured. The journals and states of the others are made from it, with the plan's points and right
checksums: measuring all of them would take minutes, and their rows would be no others. The folder, which needs
5 GB, is deleted first.
"""

import hashlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

SHARDS = 1000
SEALED_FROM = len('{"crc":"00000000"')


def seal(line):
    """The line with the checksum of its contents."""
    return f'{{"crc":"{zlib.crc32(line[SEALED_FROM:].encode()):08x}"' + line[SEALED_FROM:]


def planned(run):
    """Point, number of elements and backend of each point, in the order of the plan."""
    label = re.compile(r'"label": "copy elements=(\d+) (\w+) forward"')
    point = re.compile(r'"point": "([0-9a-f]{64})"')
    found = []
    with (run / "plan.json").open() as plan:
        for line in plan:
            if named := label.search(line):
                elements, backend = int(named[1]), named[2]
            elif identity := point.search(line):
                found.append((identity[1], elements, backend))
    return found


def row(template, point, elements, backend):
    """A row that differs from the measured one of the backend as its size demands."""
    held = json.loads(template)
    factor = (1000 + elements) / (1000 + held["parameters"]["elements"])
    measurement = held["measurement"]
    held["point"] = point
    held["problem"] = hashlib.sha256(str(elements).encode()).hexdigest()
    held["parameters"]["elements"] = elements
    held["roofline_ns"] = elements * 8e-3
    measurement["samples_ns"] = [sample * factor for sample in measurement["samples_ns"]]
    measurement["memory_bytes"] = {"input": elements * 4, "output": elements * 4}
    measurement["device_memory"] = dict.fromkeys(measurement["device_memory"], elements * 8)
    measurement["totals"]["read_bytes"] = measurement["totals"]["written_bytes"] = elements * 4
    measurement["compulsory_bytes"] = elements * 8.0
    return seal(json.dumps(held, separators=(",", ":")))


def make_others(run):
    """Writes journals and states of all shards but the first."""
    shards = run / "shards"
    first, *rows = (shards / f"1-of-{SHARDS}.jsonl").read_text().splitlines()
    templates = {json.loads(line)["backend"]: line for line in rows}
    measured = {json.loads(line)["point"] for line in rows}
    points = [point for point in planned(run) if point[0] not in measured]
    state = json.loads((shards / f"1-of-{SHARDS}.state.json").read_text())
    each = len(points) // (SHARDS - 1)
    for number in range(2, SHARDS + 1):
        end = None if number == SHARDS else (number - 1) * each
        own = points[(number - 2) * each : end]
        header = seal(first.replace(f'"shard":"1/{SHARDS}"', f'"shard":"{number}/{SHARDS}"'))
        lines = [header, *(row(templates[backend], point, size, backend) for point, size, backend in own)]
        stem = shards / f"{number}-of-{SHARDS}"
        Path(f"{stem}.jsonl").write_text("\n".join(lines) + "\n")
        counts = {"points": len(own), "done": len(own), "written": len(own), "statuses": {"ok": len(own)}}
        counts["journal_bytes"] = Path(f"{stem}.jsonl").stat().st_size
        Path(f"{stem}.state.json").write_text(json.dumps(state | counts))


def timed(name, *command):
    """Runs a command, and prints its times and the most memory that it had."""
    began = time.monotonic()
    with open(os.devnull, "w") as nowhere:
        child = subprocess.Popen(command, stdout=nowhere)
        _, status, usage = os.wait4(child.pid, 0)
    wall_s = time.monotonic() - began
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{name}: exit code {os.waitstatus_to_exitcode(status)}")
    cpu_s = usage.ru_utime + usage.ru_stime
    print(f"| {name} | {cpu_s:.2f} s | {wall_s:.2f} s | {usage.ru_maxrss / 1e6:.2f} GB |", flush=True)


def main():
    program, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    manifest = Path(__file__).resolve().with_suffix(".toml")
    shutil.rmtree(folder, ignore_errors=True)
    print(f"load {os.getloadavg()[0]:.1f}\n\n| | processor time | wall | memory |\n|---|---|---|---|")
    timed("plan", program, "plan", manifest)
    timed("shard 1", program, "run", manifest, "--shard", f"1/{SHARDS}", "--output-dir", folder, "--quiet")
    (run,) = folder.glob("million-*")
    # In a process of its own: the memory that a command has before its program starts counts, too.
    maker = multiprocessing.Process(target=make_others, args=[run])
    maker.start()
    maker.join()
    timed("status", program, "status", run)
    apart = folder / "apart"
    timed("report of shards, without tables", program, "report", "--no-plots", run, "--output-dir", apart)
    timed("report of shards, with tables", program, "report", "--no-plots", run, "--output-dir", apart)
    for table in ["records.csv", "samples.csv"]:
        (run / table).unlink()
    timed("merge", program, "merge", run)
    timed("report of the joined run", program, "report", "--no-plots", run, "--output-dir", apart)


if __name__ == "__main__":
    main()
