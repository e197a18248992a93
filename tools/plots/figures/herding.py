"""Who herds: by the number of balancers, by the age of reports, and over time."""

import drawing
from drawing import Drawn
from matplotlib.ticker import NullFormatter

READINGS = {"bare": "bare report", "live": "own sends added", "shipped": "as shipped"}
STYLES = {"bare": ":", "live": "-", "shipped": "--"}
POLICIES = {"global_least_kv": "best of all", "least_kv": "two choices"}
SHOWN_POLL = 2


def by_number(rows):
    return sorted(rows, key=lambda row: row["balancers"])


def number_axis(ax):
    ax.set_xscale("log", base=2)
    ax.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    ax.set_xlabel("balancers")


def time_axis(ax, ticks):
    ax.set_yscale("log")
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.yaxis.set_minor_formatter(NullFormatter())


def shown(report, **wanted):
    """Rows at the shown interval; one balancer is in step with itself."""
    rows = report.where(model="herding", poll_s=SHOWN_POLL, **wanted)
    return by_number(row for row in rows if row["phase"] == "random" or row["balancers"] == 1)


def draw_balancers(report):
    figure, axes = drawing.axes(8.4, 3.8, ncols=2)
    for ax, key, title in zip(axes, ("ttft_p50_s", "ttft_p99_s"), ("p50", "p99")):
        for i, (policy, name) in enumerate(POLICIES.items()):
            for reading, words in READINGS.items():
                rows = shown(report, policy=policy, reading=reading)
                drawing.points(ax, rows, "balancers", key, i, label=f"{name}, {words}")
                xs = [row["balancers"] for row in rows]
                ys = [row[key] for row in rows]
                ax.plot(xs, ys, color=drawing.colour(i), linestyle=STYLES[reading], linewidth=1.2)
        rows = shown(report, policy="least_connections")
        drawing.points(ax, rows, "balancers", key, 2, line=True, label="least connections")
        for row in report.where(policy="random"):
            ax.axhline(row[key], color="#999999", linewidth=1, label="random")
        number_axis(ax)
        ax.set_ylabel(f"{title} TTFT, s")
    time_axis(axes[0], [0.1, 0.2, 0.5, 1])
    time_axis(axes[1], [1, 2, 5, 10])
    handles = []
    for i, (policy, name) in enumerate(POLICIES.items()):
        for reading, words in READINGS.items():
            (line,) = axes[0].plot(
                [], [], color=drawing.colour(i), linestyle=STYLES[reading], label=f"{name}, {words}"
            )
            handles.append(line)
    (line,) = axes[0].plot([], [], color=drawing.colour(2), marker="^", label="least connections")
    handles.append(line)
    (line,) = axes[0].plot([], [], color="#999999", label="random")
    handles.append(line)
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=7)
    caption = "Reports 2 s apart, each balancer with a phase of its own. Means with 95 % intervals."
    return Drawn("balancers", caption, figure)


def draw_staleness(report):
    phases = {"random": "each at its own time", "synchronised": "all at once"}
    figure, axes = drawing.axes(8.4, 3.6, ncols=2, sharey=True)
    for ax, (phase, title) in zip(axes, phases.items()):
        for i, number in enumerate((1, 4, 16)):
            for reading in ("bare", "live"):
                rows = [
                    row
                    for row in report.where(
                        model="herding", policy="global_least_kv", reading=reading, balancers=number
                    )
                    if number == 1 or row["phase"] == phase
                ]
                rows.sort(key=lambda row: row["poll_s"])
                drawing.points(ax, rows, "poll_s", "cv_load", i)
                ax.plot(
                    [row["poll_s"] for row in rows],
                    [row["cv_load"] for row in rows],
                    color=drawing.colour(i),
                    linestyle=STYLES[reading],
                    label=f"best of all, {READINGS[reading]}, {number} balancer" + "s" * (number > 1),
                )
        rows = report.where(
            model="herding", policy="least_kv", reading="live", balancers=16, phase=phase
        )
        rows.sort(key=lambda row: row["poll_s"])
        drawing.points(
            ax, rows, "poll_s", "cv_load", 3, line=True, label="two choices, 16 balancers"
        )
        ax.set_title(f"polls {title}", fontsize=9)
        ax.set_xlabel("poll interval, s")
        ax.set_xticks([1, 2, 5])
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("coefficient of variation of load")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7)
    caption = (
        "Standard deviation over mean of the requests at each replica, averaged over time. Means "
        "with 95 % intervals."
    )
    return Drawn("staleness", caption, figure)


def draw_exchange(report):
    rows = [row for row in report.where(model="herding", policy="least_work")]
    alone = [row for row in rows if row["balancers"] == 1]
    figure, ax = drawing.axes(5.4, 3.4)
    for i, exchange in enumerate(sorted({row["exchange_s"] for row in rows})):
        many = [row for row in rows if row["exchange_s"] == exchange and row["balancers"] > 1]
        label = f"exchange every {1000 * exchange:g} ms" if exchange else "no exchange"
        drawing.points(
            ax, by_number(alone + many), "balancers", "ttft_p99_s", i, line=True, label=label
        )
    number_axis(ax)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("p99 TTFT, s")
    ax.legend()
    return Drawn("exchange", "least_work with an exact index. Means with 95 % intervals.", figure)


def series_title(row):
    if row["policy"] == "least_work":
        return "least_work, exchange 50 ms"
    phase = "in step" if row["arm"].endswith("in step") else "out of step"
    return f"{POLICIES[row['policy']]}, {READINGS[row['reading']]}, {phase}"


def draw_load(report):
    series = report.where(model="series")
    lines = (len(series) + 1) // 2
    figure, axes = drawing.axes(
        8.4, 1.9 * lines + 0.4, nrows=lines, ncols=2, sharex=True, sharey=True, squeeze=False
    )
    for ax, row in zip(axes.flat, series):
        for i, load in enumerate(row["requests_at_replica"]):
            times = [row["begin_s"] + row["step_s"] * place for place in range(len(load))]
            ax.plot(times, load, color=drawing.colour(i), linewidth=0.9)
        ax.set_title(series_title(row), fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("time, s")
    for ax in axes[:, 0]:
        ax.set_ylabel("requests")
    axes[0][0].set_ylim(bottom=0)
    caption = (
        "Requests at each of the replicas, running and waiting, over half a minute of one run with "
        "four balancers and reports 2 s apart."
    )
    return Drawn("load", caption, figure)


def draw(report):
    drawn = [draw_load(report)] if report.where(model="series") else []
    return [*drawn, draw_balancers(report), draw_staleness(report), draw_exchange(report)]
