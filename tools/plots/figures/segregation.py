"""What short requests gain from pools for long ones, and what the long ones pay."""

import drawing
from drawing import Drawn
from figures.table import on_seconds
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

SECONDS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


def on_long_seconds(axis):
    axis.set_major_locator(FixedLocator(SECONDS))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def curves(figure, panels, rows, x, scale):
    """A curve for each arm in every panel (axes, key, title)."""
    labels = list(dict.fromkeys(row.label for row in rows))
    for panel, (ax, key, title) in enumerate(panels):
        for i, label in enumerate(labels):
            shown = [
                type(row)(row, place=scale * row[x])
                for row in rows
                if row.label == label and row[key] is not None
            ]
            options = {"label": label} if panel == 0 else {}
            drawing.points(ax, shown, "place", key, i, line=True, **options)
        ax.set_yscale("log")
        on_long_seconds(ax.yaxis)
        ax.set_title(title, fontsize=9)
    panels[0][0].set_ylabel("time to first token, s")
    figure.legend(loc="outside lower center", ncols=2)


def draw_share(report):
    figure, axes = drawing.axes(9, 4.4, ncols=3)
    panels = (
        (axes[0], "ttft_p99_short_s", "p99 of the short requests"),
        (axes[1], "ttft_p50_long_s", "p50 of the long ones"),
        (axes[2], "ttft_p99_long_s", "p99 of the long ones"),
    )
    curves(figure, panels, report.where(model="share"), "document_share", 100)
    for ax in axes:
        ax.set_xscale("symlog", linthresh=0.1, linscale=0.4)
        ax.set_xlim(-0.02, 7)
        ax.set_xticks([0, 0.1, 0.3, 1, 3, 6], ["0", "0.1", "0.3", "1", "3", "6"])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("conversations with a document, %")
    caption = "Over the share of conversations that begin with a document of 32k to 110k tokens."
    return Drawn("share", caption, figure)


def draw_rate(report):
    figure, axes = drawing.axes(7, 4.2, ncols=2)
    panels = (
        (axes[0], "ttft_p99_short_s", "p99 of the short requests"),
        (axes[1], "ttft_p50_s", "p50 of all"),
    )
    curves(figure, panels, report.where(model="rate"), "rate_rps", 1)
    for ax in axes:
        ax.set_xlabel("requests per second")
    return Drawn("rate", "Over the load on eight replicas.", figure)


def draw_pools(report):
    rows = report.where(model="pools")
    shares = list(dict.fromkeys(row["document_share"] for row in rows))
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    figure, axes = drawing.axes(
        4 * len(shares) + 1, 3.8, ncols=len(shares), sharey=True, squeeze=False
    )
    for ax, share in zip(axes[0], shares):
        for i, policy in enumerate(policies):
            shown = [
                type(row)(row, place=arms.index(row["arm"]))
                for row in rows
                if row["policy"] == policy and row["document_share"] == share
            ]
            drawing.points(ax, shown, "place", "ttft_p99_short_s", 2 * i, label=f"{policy}, short")
            drawing.points(
                ax, shown, "place", "ttft_p99_long_s", 2 * i + 1, label=f"{policy}, long"
            )
        ax.set_yscale("log")
        on_seconds(ax.yaxis)
        ax.set_title(f"{100 * share:g} % of conversations with a document", fontsize=9)
        names = [arm.removeprefix("pools ") for arm in arms]
        ax.set_xticks(range(len(arms)), names, rotation=30, ha="right")
    axes[0][0].set_ylabel("p99 TTFT, s")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    caption = "By the sizes of the pools: general / long context / long generation."
    return Drawn("pools", caption, figure)


def draw(report):
    figures = (("share", draw_share), ("pools", draw_pools), ("rate", draw_rate))
    return [drawn(report) for model, drawn in figures if report.where(model=model)]
