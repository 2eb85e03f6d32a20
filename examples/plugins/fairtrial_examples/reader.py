"""A reader: lines such as `step 10: loss 0.52` in NAME_seed7.trainlog. `fairtrial analyze --from *.trainlog`"""

import re

from fairtrial.plugins import ImportedRun, Reader, UserError

NAME = re.compile(r"(?P<variant>.+)_seed(?P<seed>\d+)\.trainlog")
LINE = re.compile(r"step (\d+): loss (\S+)")


class TrainLog(Reader):
    def recognize(self, path):
        return "a log of training steps" if path.suffix == ".trainlog" else None

    def read(self, path):
        name = NAME.fullmatch(path.name)
        if name is None:
            raise UserError(f"{path.name} does not name a variant and a seed", hint="Name it VARIANT_seedN.trainlog.")
        points = [(int(step), float(loss)) for step, loss in LINE.findall(path.read_text())]
        yield ImportedRun(
            path.stem,
            {"loss": ([step for step, _ in points], [loss for _, loss in points])},
            variant=name["variant"],
            seed=name["seed"],
        )


TRAIN_LOG = TrainLog()
