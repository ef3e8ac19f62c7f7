"""What was measured on, and with which versions."""

import os
import platform
from datetime import datetime, timezone
from importlib import metadata

_PACKAGES = (
    "torch",
    "onnxruntime",
    "onnx",
    "openvino",
    "executorch",
    "apache-tvm",
    "torchvision",
    "transformers",
)


def describe(threads):
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor():
    with open("/proc/cpuinfo") as info:
        names = (line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
        return next(names, platform.machine())
