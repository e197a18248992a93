"""The supermarket model and balls into bins beside their closed forms."""

import drawing
from drawing import Drawn

CHOICES = {1: "one choice", 2: "two choices", 3: "three choices"}


def time_limit(load, choices):
    """Mean time in the system with infinitely many queues (Mitzenmacher 2001)."""
    if choices == 1:
        return 1 / (1 - load)
    total, exponent, power = 0.0, 0, choices
    while (term := load**exponent) > 1e-15:
        total += term
        exponent += power
        power *= choices
    return total


def draw_times(report):
    figure, ax = drawing.axes()
    loads = [0.4 + 0.001 * i for i in range(593)]
    for i, (choices, label) in enumerate(CHOICES.items()):
        rows = report.where(model="supermarket", choices=choices)
        limits = [time_limit(load, choices) for load in loads]
        ax.plot(loads, limits, color=drawing.colour(i), linewidth=1)
        drawing.points(ax, rows, "load", "time_in_system_s", i, label=label)
    ax.set_yscale("log")
    ax.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    ax.set_xlabel("load")
    ax.set_ylabel("mean time in the system, service times")
    ax.legend()
    return Drawn(
        "times", "Simulated means with 95 % intervals (points) on the closed forms (lines).", figure
    )


def draw_deviations(report):
    figure, ax = drawing.axes(height=3.2)
    loads = report.values("load")
    for i, (choices, label) in enumerate(CHOICES.items()):
        rows = report.where(model="supermarket", choices=choices)
        shifted = [
            type(row)(row, place=loads.index(row["load"]) + 0.15 * (i - 1)) for row in rows
        ]
        drawing.points(ax, shifted, "place", "deviation", i, scale=100, label=label)
    for place, load in enumerate(loads):
        allowed = 2 if load > 0.95 else 1
        ax.fill_between(
            [place - 0.4, place + 0.4], -allowed, allowed, color="#999999", alpha=0.2, linewidth=0
        )
    ax.axhline(0, color="#000000", linewidth=0.8)
    ax.set_xticks(range(len(loads)), [f"{load:g}" for load in loads])
    ax.set_xlabel("load")
    ax.set_ylabel("deviation from the closed form, %")
    ax.legend(ncols=3, loc="lower left")
    caption = "Deviation of the means with 95 % intervals; grey: what two and three choices may be off by."
    return Drawn("deviations", caption, figure)


def draw_bins(report):
    figure, ax = drawing.axes()
    for i, (choices, label) in enumerate(list(CHOICES.items())[:2]):
        rows = report.where(model="bins", choices=choices)
        bins = [row["bins"] for row in rows]
        expected = [row["fullest_expected"] for row in rows]
        leading = [row["leading_term"] for row in rows]
        ax.plot(bins, expected, color=drawing.colour(i), linewidth=1)
        ax.plot(bins, leading, color=drawing.colour(i), linewidth=1, linestyle=":")
        drawing.points(ax, rows, "bins", "fullest", i, label=label)
    ax.set_xscale("log", base=2)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("bins, and balls")
    ax.set_ylabel("balls in the fullest bin")
    ax.legend()
    caption = (
        "Simulated means with 95 % intervals (points), the mean of independent bins (lines) and "
        "the leading terms ln n / ln ln n and ln ln n / ln 2 (dotted)."
    )
    return Drawn("bins", caption, figure)


def draw(report):
    drawn = []
    if report.where(model="supermarket"):
        drawn += [draw_times(report), draw_deviations(report)]
    if report.where(model="bins"):
        drawn.append(draw_bins(report))
    return drawn
