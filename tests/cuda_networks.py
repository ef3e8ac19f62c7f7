"""Networks captured on the fake CUDA runtime as they were recorded, and a table of what that gives.

    python tests/cuda_networks.py [NETWORK ...]       # all of them without a name
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fake_cuda import run_on_fake_cuda

PAPER = [
    "inception_v3", "darts", "amoebanet", "nasnet_a_mobile", "nasnet_a_large", "resnet50",
    "resnet101", "mobilenet_v2", "efficientnet_b0", "efficientnet_b5",
]  # fmt: skip
NETWORKS = [*PAPER, "bert", "vit", "lstm"]

# How memory is used again: on one stream; on many by vector clocks; on many never.
RULES = {"one stream": (1, False), "clock": (0, False), "keep everything": (0, True)}

SCRIPT = """
import json, nimble, torchvision, transformers
from nimble import models
name, training, rules = {name!r}, {training!r}, {rules!r}

def bert():
    config = transformers.BertConfig(attn_implementation="eager")
    model = transformers.BertModel(config, add_pooling_layer=False)
    return model, torch.zeros(1, 64, dtype=torch.long)
def vit():
    return torchvision.models.vit_b_16(), torch.zeros(1, 3, 224, 224)
def lstm():
    return nn.LSTM(64, 128, num_layers=2, bidirectional=True), torch.zeros(20, 4, 64)
def image():
    network = models.network(name)
    return network.build(), torch.zeros(1, 3, network.image_size, network.image_size)

model, x = (globals().get(name) or image)()
model, x = model.cuda().train(training), x.cuda()

def first(y):
    if isinstance(y, torch.Tensor):
        return y
    return first(next(iter(y.values())) if isinstance(y, dict) else y[0])

def prepare(streams, keep_memory):
    options = nimble.engine.Options(streams=streams or "auto", kernels="torch")
    options.keep_memory = keep_memory
    if not training:
        with torch.no_grad():
            return nimble.engine.Program(model, (x,), {{}}, options).schedule
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step = nimble.TrainStep(model, lambda out, y: first(out).float().sum(), optimizer)
    step._parts = {{last: nimble.engine.StepCache(
        step._step_function(last), options, part._carried, renew=True)
        for last, part in step._parts.items()}}
    for _ in range(2):
        step(x, x)
    return step.schedule

for rule, given in rules.items():
    schedule = prepare(*given)
    print(json.dumps(dict(
        rule=rule, tasks=schedule.tasks, streams=schedule.streams, waits=schedule.waits,
        graphs=schedule.graphs, nodes=schedule.graph_nodes, pool=schedule.pool_bytes,
        eager=schedule.framework_peak_bytes, faults=schedule.verify())))
    del schedule
    torch.cuda.empty_cache()
"""


def capture(name, training, rules=RULES):
    """What the network's plan is under each rule; every graph was proven free of races."""
    script = SCRIPT.format(name=name, training=training, rules=rules)
    out = run_on_fake_cuda(script, FAKE_CUDA_BLANK="1")
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {row.pop("rule"): row for row in found}


def row_of(name, training):
    found = capture(name, training)
    many = found["clock"]
    pool = " | ".join(f"{found[rule]['pool'] / 2**20:.0f}" for rule in RULES)
    return (
        f"| {name} | {'training' if training else 'inference'} | {many['nodes']} | "
        f"{many['graphs']} | {many['streams']} | {many['waits']} | {pool} | "
        f"{many['eager'] / 2**20:.0f} |"
    )


def main():
    print("| network | pass | nodes | graphs | streams | waits | MiB, one stream | clock | keep all "
          "| eager's peak |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or NETWORKS:
        for training in (False, True):
            print(row_of(name, training), flush=True)


if __name__ == "__main__":
    main()
