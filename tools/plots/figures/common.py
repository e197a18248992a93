"""Bars for any experiment whose rows are policies under one scenario."""

import drawing
from drawing import Drawn

KEYS = (
    ("ttft_p50_s", "p50 TTFT, s", 1),
    ("ttft_p99_s", "p99 TTFT, s", 1),
    ("prefix_hit_rate", "prefix hit rate, %", 100),
    ("goodput_rps", "goodput, requests/s", 1),
)


def draw(report):
    rows = [row for row in report.rows if "policy" in row]
    keys = [key for key in KEYS if rows and all(row.get(key[0]) is not None for row in rows)]
    if not keys:
        return []
    figure, axes = drawing.axes(
        3.2 * len(keys) + 1.6, 0.32 * len(rows) + 1.2, ncols=len(keys), sharey=True, squeeze=False
    )
    for ax, (key, title, scale) in zip(axes[0], keys):
        drawing.bars(ax, rows, key, scale)
        ax.set_xlabel(title)
    # The axes share the places, so turning each over would turn them back.
    axes[0][0].set_ylim(len(rows) - 0.5, -0.5)
    return [Drawn("policies", "Means over the seeds with 95 % intervals.", figure)]
