"""A whole step of training as one plan: forward, loss, backward, clipping and the optimizer."""

import contextlib

import torch

from nimble._C import NimbleError
from nimble.carried import Carried
from nimble.engine import Options, StepCache, _Prepared


class TrainStep(_Prepared):
    """Trains a model by one batch at every call, as this does:

        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)   # if given
        optimizer.step()

    Example:
        >>> step = nimble.TrainStep(model, torch.nn.functional.cross_entropy, optimizer)
        >>> for x, y in loader:
        ...     loss = step(x, y)
        ...     scheduler.step()

    The last argument of a call is the target, all others go to the model; without `loss_fn` all
    go to the model, which returns the loss. The loss that a call returns has no graph.

    The step is recorded at the first call, and again whenever it would do something else: for
    another shape of batch, a layer that was frozen, another mode of the model. Hyperparameters and
    the states of the optimizer are read anew at every call, so schedulers and `load_state_dict`
    work as without it. A call that makes the state of the optimizer, as the first one does, runs
    in eager mode.

    Args:
        max_grad_norm: clip the gradients of all parameters of the optimizer to this norm.
        accumulate: so many calls make one step of the optimizer. Each call adds the gradients of
            its loss divided by this number.
        autocast: run model and loss under `torch.autocast(device, dtype=autocast)`, where device is
            that of the model's parameters.

    Other keyword options: see `nimble.engine.Options`.
    """

    def __init__(
        self, model, loss_fn, optimizer, *, max_grad_norm=None, accumulate=1, autocast=None,
        **options,
    ):  # fmt: skip
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise NimbleError(f"not a torch.optim.Optimizer: {type(optimizer).__name__}")
        if not (isinstance(accumulate, int) and accumulate >= 1):
            raise NimbleError(f"accumulate must be a positive number, not {accumulate!r}")
        self.model, self.loss_fn, self.optimizer = model, loss_fn, optimizer
        self.max_grad_norm, self.accumulate, self.autocast = max_grad_norm, accumulate, autocast
        self._options = Options(**options)
        self._calls = 0
        carried = Carried(model.parameters(), [optimizer])
        self._parts = {
            last: StepCache(self._step_function(last), self._options, carried, renew=True)
            for last in (False, True)
        }

    def _step_function(self, last):
        # Its variables are what a recording watches: all of them stay what they are.
        model, loss_fn, optimizer = self.model, self.loss_fn, self.optimizer
        max_grad_norm, accumulate, autocast = self.max_grad_norm, self.accumulate, self.autocast
        device = next((p.device.type for p in model.parameters()), "cpu")

        def step(*batch):
            with torch.autocast(device, dtype=autocast) if autocast else contextlib.nullcontext():
                if loss_fn is None:
                    loss = model(*batch)
                else:
                    loss = loss_fn(model(*batch[:-1]), batch[-1])
            (loss / accumulate if accumulate > 1 else loss).backward()
            if last:
                if max_grad_norm is not None:
                    parameters = [p for group in optimizer.param_groups for p in group["params"]]
                    torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
                optimizer.step()
            return loss

        return step

    def __call__(self, *batch):
        if self._calls % self.accumulate == 0:
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        part = self._parts[(self._calls + 1) % self.accumulate == 0]
        with torch.enable_grad():
            loss = part(batch, {})
        self._calls += 1
        # What schedulers look at to see whether the optimizer was used.
        self.optimizer._opt_called = True
        return loss

    @property
    def _program(self):
        return next((p for part in (True, False) for p in self._parts[part].programs[-1:]), None)
