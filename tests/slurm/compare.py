"""Compares the tables and exports of two runs byte by byte, and looks for points with two rows."""

import csv
import sys
from pathlib import Path

one, other = (Path(folder) for folder in sys.argv[1:3])
for name in ["records.csv", "samples.csv", "exports/records.json"]:
    if (one / name).read_bytes() != (other / name).read_bytes():
        sys.exit(f"{name} differs between {one} and {other}")
points = [row["point"] for row in csv.DictReader((other / "records.csv").open())]
if len(points) != 320 or len(set(points)) != 320:
    sys.exit(f"{len(points)} rows of {len(set(points))} points, of 320")
print(f"{len(points)} rows, each of a point of its own, equal to those of one process")
