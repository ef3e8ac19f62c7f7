"""Nimble as it is by default: several streams where they measure faster than one."""

import functools

from nimble.bench.competitors import nimble_one_stream

LABEL = "Nimble"
REQUIRES = ()
FROM_ONNX = False

prepare = functools.partial(nimble_one_stream.prepare, streams="auto")
prepare_training = functools.partial(nimble_one_stream.prepare_training, streams="auto")
