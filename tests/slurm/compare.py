"""Compares the tables and exports of two runs byte by byte, and looks for points with two rows, also in
journals, of which tables have the last."""

import csv
import json
import sys
from pathlib import Path

one, other = (Path(folder) for folder in sys.argv[1:3])
for name in ["records.csv", "samples.csv", "exports/records.json"]:
    if (one / name).read_bytes() != (other / name).read_bytes():
        sys.exit(f"{name} differs between {one} and {other}")
points = [row["point"] for row in csv.DictReader((other / "records.csv").open())]
if len(points) != 320 or len(set(points)) != 320:
    sys.exit(f"{len(points)} rows of {len(set(points))} points, of 320")
journals = [other / "journal.jsonl", *other.glob("shards/*.jsonl")]
lines = [line for path in journals for line in path.read_text().splitlines()[1:]]
measured = [json.loads(line)["point"] for line in lines]
if sorted(measured) != sorted(points):
    sys.exit(f"{len(measured)} rows of {len(set(measured))} points in journals, of 320")
print(f"{len(points)} rows, each of a point of its own, equal to those of one process")
