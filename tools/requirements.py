#!/usr/bin/env python3
"""Prints what pyproject.toml requires, for `pip install -r`:  tools/requirements.py [EXTRA...]

Always what building and running the package needs; the extras are test and bench.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
requirements = project["build-system"]["requires"] + project["project"]["dependencies"]
for extra in sys.argv[1:]:
    requirements += project["project"]["optional-dependencies"][extra]
print("\n".join(dict.fromkeys(requirements)))
