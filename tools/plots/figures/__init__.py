"""One module per experiment, by its name, with `draw(report) -> list[Drawn]`.

An experiment without a module of its own gets the figures of `common`: any rows with a policy.
"""

import importlib
import importlib.util

from . import common


def draw(report):
    name = f"{__name__}.{report.experiment}"
    if report.experiment.isidentifier() and importlib.util.find_spec(name):
        return importlib.import_module(name).draw(report)
    return common.draw(report)
