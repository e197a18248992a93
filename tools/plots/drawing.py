"""How all plots look, and how they are written: the same input gives the same bytes."""

import io
import os
import pathlib
from dataclasses import dataclass

os.environ.setdefault(
    "MPLCONFIGDIR", str(pathlib.Path(__file__).resolve().parents[2] / ".cache/matplotlib")
)

import matplotlib  # noqa: E402

matplotlib.use("Agg")
matplotlib.rcParams.update(
    {
        "svg.hashsalt": "pointsman",  # ids in SVG files are otherwise random
        "svg.fonttype": "none",  # text stays text: small files that can be searched
        "figure.constrained_layout.use": True,
        "figure.dpi": 120,
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)

from matplotlib.figure import Figure  # noqa: E402

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass
class Drawn:
    """A finished figure: `name` becomes part of the file's name, `caption` stands below it."""

    name: str
    caption: str
    figure: Figure


def axes(width=6.4, height=4.0, **subplots):
    """A figure of `width` by `height` inches, and its axes."""
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(**subplots)


def colour(i):
    return COLOURS[i % len(COLOURS)]


def marker(i):
    return MARKERS[i % len(MARKERS)]


def points(ax, rows, x, y, i=0, scale=1.0, line=False, **options):
    """Draws `y` against `x` of the rows with its 95 % intervals, in the i-th colour."""
    xs = [row[x] for row in rows]
    ys = [scale * row[y] for row in rows]
    bounds = [row.interval(y) for row in rows]
    below = [max(0.0, y_ - scale * low) for y_, (low, _) in zip(ys, bounds)]
    above = [max(0.0, scale * high - y_) for y_, (_, high) in zip(ys, bounds)]
    ax.errorbar(
        xs,
        ys,
        yerr=[below, above],
        color=colour(i),
        marker=marker(i),
        markersize=4,
        linestyle="-" if line else "none",
        linewidth=1.2,
        elinewidth=1,
        capsize=2,
        **options,
    )


def bars(ax, rows, key, scale=1.0):
    """A horizontal bar for each row, the first on top, with its 95 % interval."""
    places = range(len(rows))
    values = [scale * row[key] for row in rows]
    bounds = [row.interval(key) for row in rows]
    below = [max(0.0, value - scale * low) for value, (low, _) in zip(values, bounds)]
    above = [max(0.0, scale * high - value) for value, (_, high) in zip(values, bounds)]
    ax.barh(
        places,
        values,
        xerr=[below, above],
        color=colour(0),
        height=0.7,
        error_kw={"elinewidth": 1, "capsize": 2},
    )
    if not any(values):
        ax.set_xlim(0, 1)  # of nothing but zeros the axis would be made of rounding
    ax.set_yticks(places, [row.label for row in rows])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")


def svg_text(figure):
    """The figure as SVG without a date, and without the spaces that the writer leaves behind lines."""
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", metadata=nothing)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def save(drawn, base):
    """Writes base.svg and base.png and returns their paths."""
    svg, png = base.with_name(base.name + ".svg"), base.with_name(base.name + ".png")
    svg.write_text(svg_text(drawn.figure), encoding="utf-8")
    drawn.figure.savefig(png, metadata={"Software": None}, dpi=150)
    return svg, png
