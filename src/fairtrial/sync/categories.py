"""What kind of thing an option changes: by the role that it declares, else by its name.

Options that change what a step computes belong in a benchmark. Those that only change what is kept of it belong on the
list of exclusions. A name that says neither is taken for the former: one option too many in a
benchmark does no harm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairtrial.core.options import NOT_BENCHED, Role
from fairtrial.sync.parameters import Parameter


@dataclass(frozen=True)
class Category:
    """`reason` says why a benchmark may do without such options; None where it may not."""

    name: str
    words: str = ""
    reason: str | None = None
    training: bool = False

    def has(self, name: str) -> bool:
        return bool(re.search(rf"(?:^|-)(?:{self.words})(?:-|\d|$)", name))


CATEGORIES = (
    # Names that look like something else at first sight come first.
    Category("training", r"(gradient|activation)-checkpoint\w*|learning-rate|lr|batch|batch-size", training=True),
    Category("model", r"(input|output|out|in)-(dim|size|features|channels|layer)s?", training=True),
    Category("freezing", r"freez\w*|frozen|unfreez\w*", "all layers learn, which costs the most"),
    Category("checkpoint", r"checkpoints?|ckpt|resum\w*|save|saving|restor\w*", NOT_BENCHED[Role.CHECKPOINT]),
    Category("selection", r"best|keep|monitor", NOT_BENCHED[Role.SELECTION]),
    Category(
        "logging",
        r"log|logs|logg\w*|tensorboard|tb|wandb|mlflow|comet|verbos\w*|progress|histograms?|track\w*|debug",
        "what is logged does not change a step",
    ),
    Category(
        "storage",
        r"upload\w*|download\w*|bucket|gcs|gs|s3|aws|azure|cloud|bigquery|push\w*|hub",
        "nothing is stored elsewhere during a measurement",
    ),
    Category("stopping", r"early|patience|stop\w*|thresholds?", "a measurement takes a fixed number of steps"),
    Category("naming", r"run-(name|id)|experiment|project|study|variant|tags?|notes?", "nothing is recorded"),
    Category("output", r"output|out|results?|reports?|plots?|exports?|dump|writ\w*", NOT_BENCHED[Role.OUTPUT]),
    Category(
        "training",
        r"optim\w*|momentum|betas?|eps|epsilon|weight|decay|epochs?|steps?|iterations?|warmup|sched\w*|"
        r"grads?|gradients?|clip\w*|accum\w*|loss\w*|smoothing|temperature|alpha|gamma|lambda|reg\w*|dropout|seed|"
        r"train\w*|finetun\w*|lora|rank|policy|reward|entropy",
        training=True,
    ),
    Category(
        "model",
        r"models?|arch\w*|backbone|layers?|hidden|dims?|dimension|width|depth|heads?|activation|embed\w*|"
        r"channels?|kernel|blocks?|encoder|decoder|vocab\w*|norm\w*|pretrained|teacher|student",
        training=True,
    ),
    Category(
        "data",
        r"data\w*|inputs?|shuffl\w*|split|fold|augment\w*|samples?|sampler|ratio|labels?|tokeniz\w*|length|"
        r"vali\w*|val|eval\w*|test",
        training=True,
    ),
    Category(
        "compute",
        r"devices?|gpus?|cuda|cpu|tpu|precision|amp|dtype|bf16|fp16|fp32|tf32|half|compil\w*|threads?|workers?|"
        r"num-workers|pin|prefetch\w*|memory|cach\w*|determin\w*|distributed|ddp|fsdp|nodes?|world|backend|jit",
        training=True,
    ),
)

OTHER = Category("other")


def category_of(parameter: Parameter) -> Category:
    """A declared role decides; a role that this table does not know is one of training."""
    if parameter.role:
        known = {each.name: each for each in CATEGORIES}
        return known.get(parameter.role) or Category(parameter.role, training=True)
    return next((each for each in CATEGORIES if each.has(parameter.name)), OTHER)
