"""Hears of the steps of fused optimizers, whose writes PyTorch does not count.

`parameter._version` stays as it was there, so that nobody who keeps something made from a
parameter, as an engine keeps packed weights, would know that it was changed.
"""

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from nimble import _C


def _after_step(optimizer, _args, _kwargs):
    if torch.compiler.is_compiling():
        return
    for group in optimizer.param_groups:
        if group.get("fused"):
            _C.note_uncounted_writes(group["params"])


register_optimizer_step_post_hook(_after_step)
