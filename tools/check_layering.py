#!/usr/bin/env python3
"""Fails on an include that points the wrong way through the pipeline.

    tools/check_layering.py [SOURCE_ROOT]    # the folder that holds nimble/; default src/
"""

import re
import sys
from pathlib import Path

# What each folder may include, besides itself.
MAY_INCLUDE = {
    "base": set(),
    "trace": {"base"},
    "graph": {"base", "trace"},
    "kernels": {"base"},
    "passes": {"base", "trace", "graph", "kernels"},
    "schedule": {"base", "trace", "graph"},
    "runtime": {"base", "schedule", "kernels"},
    "torch": {"base", "trace", "graph", "kernels", "passes", "schedule", "runtime"},
    "python": {"base", "torch"},
}
# A test (x_test.cc, test_x.h) feeds its stage from the start of the pipeline, so it may also include
# what its stage's inputs are made from.
TESTS_MAY_ALSO_INCLUDE = {"runtime": {"trace", "graph"}}

FRAMEWORK = re.compile(r"(torch|ATen|c10|caffe2|pybind11)/|Python\.h$")
MAY_INCLUDE_FRAMEWORK = {"torch", "python"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def stage_of(header, quoted, file, root):
    """The folder of ours that `header` lies in, or None if it is not ours."""
    path = root / header
    if quoted and (file.parent / header).exists():
        path = (file.parent / header).resolve()
    if not path.is_relative_to(root / "nimble"):
        return None
    return path.relative_to(root / "nimble").parts[0]


def check_file(file, root):
    stage = file.relative_to(root / "nimble").parts[0]
    if stage not in MAY_INCLUDE:
        yield f"{file}:1: folder {stage}/ is not in the layering table"
        return
    allowed = {stage} | MAY_INCLUDE[stage]
    if file.stem.endswith("_test") or file.stem.startswith("test_"):
        allowed |= TESTS_MAY_ALSO_INCLUDE.get(stage, set())
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match[2]
        target = stage_of(header, match[1] == '"', file, root)
        if target is None:
            if FRAMEWORK.match(header) and stage not in MAY_INCLUDE_FRAMEWORK:
                yield f"{file}:{number}: {stage}/ must build without PyTorch: {header}"
        elif target not in allowed:
            yield f"{file}:{number}: {stage}/ may not include {target}/: {header}"


def check_tree(root):
    """One line per violation, as file:line: what is wrong."""
    root = Path(root).resolve()
    files = sorted(f for f in (root / "nimble").rglob("*") if f.suffix in {".h", ".cc"})
    if not files:
        return [f"{root / 'nimble'}: no sources"]
    return [violation for file in files for violation in check_file(file, root)]


def main(arguments):
    root = arguments[0] if arguments else Path(__file__).parents[1] / "src"
    violations = check_tree(root)
    print("\n".join(violations) if violations else "layering: ok")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
