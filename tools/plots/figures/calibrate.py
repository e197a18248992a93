"""The constants of an engine with their intervals, and how well they predict held-out requests."""

import drawing
from drawing import Drawn


def draw_constants(report):
    """Each constant's interval over its value, so that all share one axis."""
    rows = [row for row in report.where(model="constant") if row["value"] > 0]
    figure, ax = drawing.axes(7.6, 0.34 * len(rows) + 1.2)
    labelled = set()
    for place, row in enumerate(rows):
        low, high = (bound / row["value"] for bound in row.interval("value"))
        told = row["told"]
        label = "told by this log" if told else "not told, or hardly"
        ax.plot(
            [low, high],
            [place, place],
            color=drawing.colour(0 if told else 1),
            linewidth=1.6,
            label=None if label in labelled else label,
        )
        ax.plot([1], [place], color=drawing.colour(0 if told else 1), marker="o", markersize=4)
        labelled.add(label)
    ax.axvline(1, color="#000000", linewidth=0.8)
    ax.set_xlim(0, 3)
    ax.set_yticks(range(len(rows)), [f"{row['key']}\n{row['shown']}" for row in rows], fontsize=7)
    ax.invert_yaxis()
    ax.set_xlabel("interval over the value")
    ax.legend(loc="lower right", fontsize=7)
    caption = "95 % intervals of a bootstrap over the requests. Wide ones are cut off at three times the value."
    return Drawn("constants", caption, figure)


def draw_errors(report):
    rows = report.where(model="error")
    figure, ax = drawing.axes(5.4, 0.7 * len(rows) + 1.2)
    for i, (key, label) in enumerate(
        (("mape", "by the fitted constants"), ("mape_of_median", "by the median"))
    ):
        places = [place + 0.36 * i - 0.18 for place in range(len(rows))]
        values = [100 * row[key] for row in rows]
        drawn = ax.barh(places, values, height=0.32, color=drawing.colour(i), label=label)
        ax.bar_label(drawn, [f"{value:.1f}" for value in values], padding=3, fontsize=7)
    names = {"TTFT": "time to first token", "ITL": "time per further token"}
    ticks = [f"{names.get(row['what'], row['what'])}\n{row['held_out']} requests" for row in rows]
    ax.set_yticks(range(len(rows)), ticks, fontsize=8)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.margins(x=0.12)
    ax.set_xlabel("mean absolute error, %")
    ax.legend(fontsize=7)
    return Drawn("errors", "Predictions of requests that took no part in the fit.", figure)


def draw(report):
    return [draw_constants(report), draw_errors(report)]
