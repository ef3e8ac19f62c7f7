"""Writes stubs for every entry point of a real library, and its version script.

    make_stubs.py LIBRARY STUBS.c VERSIONS.map [PATTERN]

Stubs are weak, so that what is written by hand wins. They return 0 (success); those whose name
matches PATTERN take a handle first and are recorded as work on the handle's stream.
"""

import re
import subprocess
import sys
from pathlib import Path

library, stubs, versions, *pattern = sys.argv[1:]
table = subprocess.run(
    ["readelf", "--dyn-syms", "--wide", library], capture_output=True, text=True, check=True
).stdout
names = sorted(
    {
        fields[7].split("@")[0]
        for fields in map(str.split, table.splitlines())
        if len(fields) >= 8 and fields[3] == "FUNC" and fields[6] != "UND"
    }
    - {"_init", "_fini"}
)
is_work = re.compile(pattern[0]) if pattern else None

lines = ["int fake_cuda_work(const char*, void*);", "#define STUB __attribute__((weak)) int"]
for name in names:
    if is_work and is_work.search(name):
        lines.append(f'STUB {name}(void* handle) {{ return fake_cuda_work("{name}", handle); }}')
    else:
        lines.append(f"STUB {name}(void) {{ return 0; }}")
Path(stubs).write_text("\n".join(lines) + "\n")
exported = "".join(f"    {name};\n" for name in [*names, "fake_cuda_*"])
Path(versions).write_text(f"{Path(library).name} {{\n  global:\n{exported}  local: *;\n}};\n")
