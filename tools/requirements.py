#!/usr/bin/env python3
"""Prints what pyproject.toml requires to build, run and test the package, for `pip install -r`."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
requirements = project["build-system"]["requires"] + project["project"]["dependencies"]
for extra in project["project"]["optional-dependencies"].values():
    requirements += extra
print("\n".join(dict.fromkeys(requirements)))
