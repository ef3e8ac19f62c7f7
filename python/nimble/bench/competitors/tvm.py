"""Apache TVM, tuned by MetaSchedule for as long as it is given, with weights packed ahead.

Untuned code is serial and naive; minutes of tuning reach a part of what TVM can do with hours.
"""

import functools
import time

import torch

from nimble.bench.competitors import Prepared

LABEL = "TVM"
REQUIRES = ("tvm", "xgboost", "psutil", "cloudpickle")
FROM_ONNX = False

#: Few at a time, so that every operator gets some before the time is over.
_TRIALS_AT_A_TIME = 4


def prepare(model, inputs, setting):
    import tvm
    from tvm import relax
    from tvm.relax import transform
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.torch import from_exported_program

    started = time.perf_counter()
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": setting.threads})
    with torch.no_grad():
        exported = torch.export.export(model, inputs)
    program = from_exported_program(
        exported, keep_params_as_input=True, unwrap_unit_return_tuple=True
    )
    program, parameters = detach_params(program)

    with target:
        program = tvm.transform.Sequential(
            [
                transform.DecomposeOpsForInference(),
                transform.CanonicalizeBindings(),
                relax.get_pipeline("zero"),
                transform.AttachAttrLayoutFreeBuffers(),
            ]
        )(program)
        trials = _tune(program, target, setting) if setting.tune_s else 0
        program = tvm.transform.Sequential(
            [
                transform.MetaScheduleApplyDatabase(str(setting.folder / "tuned")),
                transform.SplitLayoutRewritePreproc(),
                transform.LiftTransformParams(),
                transform.FoldConstant(),
            ]
        )(program)
    machine = relax.VirtualMachine(tvm.compile(program, target=target), device=tvm.cpu())
    weights = machine["main_transform_params"](parameters["main"])
    main = machine["main"]

    def bind(inputs):
        return functools.partial(main, *map(tvm.runtime.from_dlpack, inputs), *weights)

    how = f"{trials} trials in {time.perf_counter() - started:.0f} s" if trials else "untuned"
    return Prepared(bind=bind, settings=how, details={"trials": trials})


class _TimeIsOver(Exception):
    pass


def _tune(program, target, setting):
    """Searches until the time is over; returns how many candidates it measured."""
    from tvm.s_tir import meta_schedule

    end = time.perf_counter() + setting.tune_s
    trials = 0

    @meta_schedule.derived_object
    class StopInTime(meta_schedule.measure_callback.PyMeasureCallback):
        def apply(self, task_scheduler, task_id, candidates, built, measured):
            nonlocal trials
            trials += len(measured)
            if time.perf_counter() > end:
                raise _TimeIsOver

    folder = setting.folder / "tuned"
    folder.mkdir()
    try:
        meta_schedule.relax_integration.tune_relax(
            mod=program,
            params={},
            target=target,
            work_dir=str(folder),
            max_trials_global=1_000_000,
            num_trials_per_iter=_TRIALS_AT_A_TIME,
            builder=meta_schedule.builder.LocalBuilder(max_workers=setting.threads),
            measure_callbacks=[*meta_schedule.MeasureCallback.create("default"), StopInTime()],
            strategy="replay-trace",
        )
    except Exception:
        if time.perf_counter() < end:
            raise
    return trials
