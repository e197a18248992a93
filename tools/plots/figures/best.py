"""The default policy against affinity and segregation, and what it needs to be ahead."""

import drawing
from drawing import Drawn
from matplotlib.ticker import LogLocator, NullFormatter

REFERENCE = "segregation"
BEST = "exact index, exchange 50 ms"
ALONE = "own index, no exchange"
NO_HOME = "own index, no exchange, no home"


def draw_named(report):
    rows = report.where(model="named", balancers=4)
    names = sorted({row["scenario"] for row in rows})
    figure, axes = drawing.axes(8.4, 3.6, ncols=len(names), sharey=True, squeeze=False)
    for ax, name in zip(axes[0], names):
        drawing.bars(ax, [row for row in rows if row["scenario"] == name], "ttft_p99_s")
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("p99 TTFT, s")
    # The axes share the places, so turning each over would turn them back.
    axes[0][0].set_ylim(len(rows) / len(names) - 0.5, -0.5)
    return Drawn("named", "Four balancers. Means over the seeds with 95 % intervals.", figure)


def draw_spread(report):
    settings = report.where(model="setting")
    figure, ax = drawing.axes(7, 3.6)
    for i, arm in enumerate((BEST, "own index, exchange 50 ms", ALONE, NO_HOME, "kv-valve")):
        gains = []
        for setting in settings:
            p99 = {one["arm"]: one["ttft_p99_s"] for one in setting["policies"]}
            gains.append(p99[REFERENCE] / p99[arm])
        places = [100 * (place + 0.5) / len(gains) for place in range(len(gains))]
        label = "session_affinity" if arm == "kv-valve" else f"least_work, {arm}"
        ax.plot(places, sorted(gains), color=drawing.colour(i), linewidth=1.4, label=label)
    ax.axhline(1, color="#000000", linewidth=0.8)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(base=2))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("settings in order of the gain, %")
    ax.set_ylabel("p99 gain")
    ax.legend(fontsize=7)
    caption = "Random settings: p99 of session_affinity with segregation over the policy's own."
    return Drawn("spread", caption, figure)


def draw_options(report):
    rows = report.where(model="option")
    figure, axes = drawing.axes(7.6, 0.32 * len(rows) + 1.2, ncols=2, sharey=True)
    for ax, (key, title) in zip(axes, (("p99_gain_mean", "p99"), ("p50_gain_mean", "p50"))):
        for place, row in enumerate(rows):
            low, high = row.interval(key)
            ax.plot([low, high], [place, place], color=drawing.colour(0), linewidth=1.4)
            ax.plot([row[key]], [place], color=drawing.colour(0), marker="o", markersize=4)
        ax.axvline(1, color="#000000", linewidth=0.8)
        ax.set_xlabel(f"{title} of the default over its own")
    axes[0].set_yticks(range(len(rows)), [row["arm"] for row in rows])
    axes[0].invert_yaxis()
    caption = (
        "One option changed, over the random settings: above 1 the changed one is the faster. "
        "Geometric means with 95 % intervals."
    )
    return Drawn("options", caption, figure)


def draw(report):
    return [draw_named(report), draw_spread(report), draw_options(report)]
