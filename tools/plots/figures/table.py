"""The published table beside the simulated one, and some policies over the share of follow-ups."""

import drawing
from drawing import Drawn
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

CELLS = (
    ("ttft_p50_s", "p50 TTFT"),
    ("ttft_p99_s", "p99 TTFT"),
    ("prefix_hit_rate", "prefix hit rate"),
)
TIMES = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def on_seconds(axis):
    axis.set_major_locator(FixedLocator(TIMES))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def draw_cells(report):
    rows = [row for row in report.where(model="policy") if "published_ttft_p50_s" in row]
    figure, ax = drawing.axes(7, 3.4)
    for i, (key, label) in enumerate(CELLS):
        shifted = []
        for place, row in enumerate(rows):
            published = row[f"published_{key}"]
            low, high = row.interval(key)
            shifted.append(
                type(row)(
                    row,
                    place=place + 0.2 * (i - 1),
                    off=row[key] / published,
                    off_ci95=[low / published, high / published],
                )
            )
        drawing.points(ax, shifted, "place", "off", i, label=label)
    ax.axhspan(0.65, 1.35, color="#999999", alpha=0.2, linewidth=0)
    ax.axhline(1, color="#000000", linewidth=0.8)
    ax.set_xticks(range(len(rows)), [row.label.replace(" (", "\n(") for row in rows])
    ax.grid(visible=False, axis="x")
    ax.set_ylabel("simulated / published")
    ax.set_ylim(bottom=0)
    ax.legend(ncols=3, loc="lower left")
    caption = "The 15 cells over the published ones, with 95 % intervals; grey: 35 % either way."
    return Drawn("cells", caption, figure)


def draw_tail(report):
    """p50 and p99 of every row."""
    rows = report.where(model="policy")
    figure, ax = drawing.axes(7, 0.34 * len(rows) + 1.2)
    for i, (key, label) in enumerate(CELLS[:2]):
        for place, row in enumerate(rows):
            low, high = row.interval(key)
            ax.plot([low, high], [place, place], color=drawing.colour(i), linewidth=2)
        places = range(len(rows))
        ax.plot(
            [row[key] for row in rows],
            places,
            drawing.marker(i),
            color=drawing.colour(i),
            markersize=5,
            label=label,
        )
    ax.set_xscale("log")
    on_seconds(ax.xaxis)
    ax.set_yticks(range(len(rows)), [row.label for row in rows])
    ax.invert_yaxis()
    ax.set_xlabel("time to first token, s")
    figure.legend(loc="outside lower center", ncols=2)
    return Drawn("tail", "p50 and p99 of every row with 95 % intervals of the means.", figure)


def draw_sharing(report):
    swept = report.where(model="sharing")
    labels = list(dict.fromkeys(row.label for row in swept))
    figure, (hits, tails) = drawing.axes(9, 4.2, ncols=2)
    shares = list(dict.fromkeys(row["sharing"] for row in swept))
    bounds = [max(row["prefix_hit_bound"] for row in swept if row["sharing"] == x) for x in shares]
    hits.plot(
        [100 * share for share in shares],
        [100 * bound for bound in bounds],
        color="#000000",
        linewidth=0.8,
        linestyle=":",
        label="all that was sent before",
    )
    for i, label in enumerate(labels):
        rows = [
            type(row)(row, percent=100 * row["sharing"]) for row in swept if row.label == label
        ]
        drawing.points(hits, rows, "percent", "prefix_hit_rate", i, scale=100, line=True, label=label)
        drawing.points(tails, rows, "percent", "ttft_p99_s", i, line=True)
    for ax in (hits, tails):
        ax.set_xlabel("requests that are follow-up turns, %")
    hits.set_ylabel("prefix hit rate, %")
    tails.set_yscale("log")
    on_seconds(tails.yaxis)
    tails.set_ylabel("p99 TTFT, s")
    figure.legend(loc="outside lower center", ncols=3)
    caption = (
        "At the same rate of requests: longer conversations are longer prompts. Beyond 80 % round robin "
        "and its like are above their capacity, and p99 says how long the run was."
    )
    return Drawn("sharing", caption, figure)


def draw(report):
    drawn = [draw_tail(report)]
    if any("published_ttft_p50_s" in row for row in report.rows):
        drawn.insert(0, draw_cells(report))
    if report.where(model="sharing"):
        drawn.append(draw_sharing(report))
    return drawn
