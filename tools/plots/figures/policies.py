"""Every policy against every other over random settings."""

import drawing
from drawing import Drawn
from matplotlib.ticker import LogLocator, NullFormatter

REFERENCE = ("session_affinity", "segregation")


def draw_matrix(report):
    arms = report.where(model="policy")
    names = [f"{row['policy']} {row['arm']}".strip() for row in arms]
    # Two arms that came out the same to the last digit have no winner.
    ahead = {
        (f"{row['policy']} {row['arm']}".strip(), row["against"]): row["better_p99_share"]
        for row in report.where(model="pair")
        if row["p99_gain_ci95"] != [1, 1]
    }
    shares = [[100 * ahead.get((own, other), float("nan")) for other in names] for own in names]
    size = 0.42 * len(names) + 2.6
    figure, ax = drawing.axes(size + 0.8, size)
    image = ax.imshow(shares, cmap="RdYlGn", vmin=0, vmax=100)
    for y, line in enumerate(shares):
        for x, share in enumerate(line):
            if share == share:
                # The map is dark at both ends.
                ink = "white" if share < 12 or share > 88 else "black"
                ax.text(x, y, f"{share:.0f}", ha="center", va="center", fontsize=7, color=ink)
    ax.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(names)), names)
    ax.grid(visible=False)
    figure.colorbar(image, ax=ax, shrink=0.6, label="ahead at p99 in so many per cent of settings")
    caption = "Per cent of settings in which the policy of the line has a lower p99 than that of the column."
    return Drawn("matrix", caption, figure)


def draw_gains(report):
    rows = [r for r in report.where(model="policy") if (r["policy"], r["arm"]) != REFERENCE]
    rows.sort(key=lambda row: -row["p99_gain"])
    figure, ax = drawing.axes(7, 0.32 * len(rows) + 1.2)
    drawing.bars(ax, rows, "p99_gain")
    ax.axvline(1, color="#000000", linewidth=0.8)
    ax.set_xlabel("p99 gain, median of the settings")
    caption = (
        "p99 of session affinity with segregation over the policy's own: above 1 the policy is the "
        "faster one. Medians over the settings with 95 % intervals by order statistics."
    )
    return Drawn("gains", caption, figure)


def draw_spread(report):
    """Every setting's gain in order, for the policies that are ahead most often."""
    settings = report.where(model="setting")
    arms = sorted(report.where(model="policy"), key=lambda row: -row["p99_gain"])
    shown = [row for row in arms if (row["policy"], row["arm"]) != REFERENCE][:4]
    figure, ax = drawing.axes(7, 3.6)
    for i, row in enumerate(shown):
        gains = []
        for setting in settings:
            p99 = {(one["policy"], one["arm"]): one["ttft_p99_s"] for one in setting["policies"]}
            gains.append(p99[REFERENCE] / p99[row["policy"], row["arm"]])
        places = [100 * (place + 0.5) / len(gains) for place in range(len(gains))]
        ax.plot(places, sorted(gains), color=drawing.colour(i), linewidth=1.4, label=row.label)
    ax.axhline(1, color="#000000", linewidth=0.8)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(base=2))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("settings in order of the gain, %")
    ax.set_ylabel("p99 gain")
    ax.legend()
    return Drawn("spread", "The gain at p99 over session affinity with segregation.", figure)


def draw(report):
    return [draw_gains(report), draw_spread(report), draw_matrix(report)]
