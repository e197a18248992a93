"""Hit rate and p99 against the limit at which the release valve opens."""

import drawing
from drawing import Drawn
from matplotlib.ticker import NullFormatter

SETTINGS = {"slack": "slack", "middle": "middle", "kv_bound": "KV-bound"}
OFF = 1.1  # place of the valve that never opens
REFERENCES = (
    ("session_affinity", "as shipped", "all three limits, as shipped"),
    ("least_work", None, "least_work, exchange 50 ms"),
)


def draw_panel(ax, rows, key, scale):
    limits = [row for row in rows if row["valve_kv"] is not None]
    never = [type(row)(row, valve_kv=OFF) for row in rows if row["arm"] == "off"]
    drawing.points(ax, limits, "valve_kv", key, 0, scale, line=True, label="valve on KV use alone")
    drawing.points(ax, never, "valve_kv", key, 0, scale)
    for i, (policy, arm, label) in enumerate(REFERENCES, start=1):
        for row in rows:
            if row["policy"] == policy and arm in (None, row["arm"]):
                low, high = (scale * bound for bound in row.interval(key))
                colour = drawing.colour(i)
                ax.axhline(scale * row[key], color=colour, linewidth=1, linestyle="--", label=label)
                ax.axhspan(low, high, color=colour, alpha=0.12, linewidth=0)
    ax.set_xlim(0.45, OFF + 0.05)


def draw(report):
    settings = [name for name in SETTINGS if report.where(setting=name)]
    figure, axes = drawing.axes(
        3.1 * len(settings), 5.4, nrows=2, ncols=len(settings), sharex=True, sharey="row", squeeze=False
    )
    for column, name in enumerate(settings):
        rows = report.where(setting=name)
        draw_panel(axes[0][column], rows, "prefix_hit_rate", 100)
        draw_panel(axes[1][column], rows, "ttft_p99_s", 1)
        axes[0][column].set_title(f"{SETTINGS[name]}: {rows[0]['blocks']:,} blocks", fontsize=9)
        axes[1][column].set_xlabel("valve opens at KV use of")
        axes[1][column].set_xticks([0.5, 0.6, 0.7, 0.8, 0.9, 1, OFF])
        axes[1][column].set_xticklabels(["0.5", "0.6", "0.7", "0.8", "0.9", "1", "off"])
    axes[0][0].set_ylim(bottom=0)
    axes[0][0].set_ylabel("prefix hit rate, %")
    axes[1][0].set_yscale("log")
    ticks = [0.5, 1, 2, 5, 10, 20, 50]
    axes[1][0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[1][0].yaxis.set_minor_formatter(NullFormatter())
    axes[1][0].set_ylabel("p99 TTFT, s")
    axes[0][0].legend(loc="lower left", fontsize=7)
    caption = "Means over the seeds with 95 % intervals. Off: the valve never opens."
    return [Drawn("limits", caption, figure)]
