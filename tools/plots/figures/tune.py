"""The tuned configuration beside the shipped one."""

import drawing
from drawing import Drawn

TIMES = (
    ("ttft_p50_s", "p50 TTFT, s"),
    ("ttft_p99_s", "p99 TTFT, s"),
    ("ttft_p99_short_s", "p99 of the short, s"),
    ("e2e_mean_s", "mean end to end, s"),
)


def draw_times(report):
    rows = report.rows
    keys = [(key, title) for key, title in TIMES if all(row.get(key) is not None for row in rows)]
    figure, axes = drawing.axes(
        2.3 * len(keys) + 1.8, 0.4 * len(rows) + 1.2, ncols=len(keys), sharey=True, squeeze=False
    )
    for ax, (key, title) in zip(axes[0], keys):
        drawing.bars(ax, rows, key)
        ax.set_xlabel(title)
    # The axes share the places, so turning each over would turn them back.
    axes[0][0].set_ylim(len(rows) - 0.5, -0.5)
    caption = "Means with 95 % intervals over seeds that no choice was made by."
    return Drawn("times", caption, figure)


def draw_gain(report):
    tuned = report.rows[-1]
    measure = report.scenario["measure"]
    ratios = [
        ("ratio", f"{measure}, other seeds"),
        ("search_ratio", f"{measure}, seeds of the search"),
        ("ttft_p50_ratio", "ttft_p50_s, other seeds"),
        ("e2e_mean_ratio", "e2e_mean_s, other seeds"),
    ]
    ratios = [one for one in ratios if tuned.get(one[0]) is not None]
    figure, ax = drawing.axes(6.4, 0.34 * len(ratios) + 1.1)
    for place, (key, _) in enumerate(ratios):
        low, high = tuned.interval(key)
        own = drawing.colour(1 if key == "search_ratio" else 0)
        ax.plot([low, high], [place, place], color=own, linewidth=1.6)
        ax.plot([tuned[key]], [place], color=own, marker="o", markersize=4)
    ax.axvline(1, color="#000000", linewidth=0.8)
    ax.set_yticks(range(len(ratios)), [label for _, label in ratios])
    ax.set_ylim(len(ratios) - 0.5, -0.5)
    ax.set_xlabel("tuned over shipped")
    caption = (
        "Below 1 the tuned configuration is the faster one; 95 % intervals, paired by seed. "
        "The seeds of the search flatter it."
    )
    return Drawn("gain", caption, figure)


def draw(report):
    return [draw_gain(report), draw_times(report)]
