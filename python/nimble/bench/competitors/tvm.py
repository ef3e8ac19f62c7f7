"""Apache TVM, tuned by MetaSchedule for as long as it is given, with weights packed ahead.

Untuned code is serial and naive; minutes of tuning reach a part of what TVM can do with hours.
"""

import functools
import importlib
import inspect
import sys
import time

import torch

from nimble.bench.competitors import Prepared

LABEL = "TVM"
REQUIRES = ("tvm",)
FROM_ONNX = False

#: Few at a time, so that every operator gets some before the time is over.
_TRIALS_AT_A_TIME = 4


def prepare(model, inputs, setting):
    import tvm
    from tvm import relax
    from tvm.relax import transform
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.torch import from_exported_program

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

    how = f"{trials} trials in {setting.tune_s:.0f} s" if trials else "untuned"
    return Prepared(bind=bind, settings=how, details={"trials": trials})


def _import_intrinsics():
    """What tuning imports first. For each intrinsic it asks `inspect` for the stack with source
    files and lines, which nobody needs and which takes minutes where many modules are loaded."""
    full_stack, inspect.stack = inspect.stack, _bare_stack
    try:
        importlib.import_module("tvm.s_tir.tensor_intrin")
    finally:
        inspect.stack = full_stack


def _bare_stack(context=0):
    frames, frame = [], sys._getframe(1)
    while frame:
        code = frame.f_code
        frames.append(
            inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None)
        )
        frame = frame.f_back
    return frames


def _tune(program, target, setting):
    """Searches until the time is over; returns how many candidates it measured.

    Candidates are built and run in this process: TVM's own builder starts an interpreter for every
    few of them, which takes most of minutes that are to be spent on searching.
    """
    from tvm.ir.utils import derived_object
    from tvm.runtime import device
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.s_tir.meta_schedule.builder.local_builder import default_build
    from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, PyRunner
    from tvm.s_tir.meta_schedule.runner.local_runner import (
        LocalRunnerFuture,
        default_alloc_argument,
        default_run_evaluator,
    )

    _import_intrinsics()
    end = time.perf_counter() + setting.tune_s
    built = {}  # by the name that stands for a path
    measured = 0

    @derived_object
    class Builder(PyBuilder):
        def build(self, candidates):
            return [self._build(str(place), c) for place, c in enumerate(candidates)]

        def _build(self, name, candidate):
            try:
                built[name] = default_build(candidate.mod, candidate.target, None).jit()
                return BuilderResult(name, None)
            except Exception as error:
                return BuilderResult(None, str(error))

    @derived_object
    class Runner(PyRunner):
        def run(self, candidates):
            return [self._run(candidate) for candidate in candidates]

        def _run(self, candidate):
            nonlocal measured
            measured += 1
            try:
                cpu = device(str(candidate.device_type), 0)
                shapes = tuple(shape.as_json() for shape in candidate.args_info)
                arguments = default_alloc_argument(cpu, shapes, 1)
                module = built.pop(str(candidate.artifact_path))
                how = EvaluatorConfig(number=1, repeat=2, min_repeat_ms=5)
                return LocalRunnerFuture(default_run_evaluator(module, cpu, how, arguments), None)
            except Exception as error:
                return LocalRunnerFuture(None, str(error))

    @derived_object
    class StopInTime(PyMeasureCallback):
        def apply(self, task_scheduler, task_id, candidates, built, measured):
            if time.perf_counter() > end:
                raise TimeoutError

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
            builder=Builder(),
            runner=Runner(),
            measure_callbacks=[*meta_schedule.MeasureCallback.create("default"), StopInTime()],
            strategy="replay-trace",
        )
    except Exception:
        if time.perf_counter() < end:
            raise
    return measured
