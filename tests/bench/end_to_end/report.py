"""From the records of a run to tables: medians, spreads, and ratios to haproxy in the same round."""

import statistics
from dataclasses import dataclass, replace

REFERENCE = "haproxy"
DIRECT = "direct"


@dataclass
class Measure:
    case: str
    figure: str
    heading: str
    digits: int = 1
    added: bool = False  # what the proxy adds to what there is without one

    @property
    def key(self):
        return f"{self.case}.{self.figure}"


TABLES = {
    "CPU": [
        Measure("json", "us", "µs a request, 1 KB JSON"),
        Measure("paced", "us", "µs an event, 64 streams"),
        Measure("paced200", "us", "µs an event, 200 streams"),
        Measure("bursts", "us", "µs an event, bursts of 16", 2),
    ],
    "CPU by the length of the prompt, µs a request": [
        Measure("prompt1", "us", "1 KiB"),
        Measure("prompt16", "us", "16 KiB"),
        Measure("prompt128", "us", "128 KiB", 0),
        Measure("prompt512", "us", "512 KiB", 0),
    ],
    "Time": [
        Measure("json", "per_s", "requests/s", 0),
        Measure("open", "p50_us", "added p50 at 500/s, µs", 0, added=True),
        Measure("open", "p99_us", "added p99 at 500/s, µs", 0, added=True),
        Measure("open", "us", "CPU µs a request at 500/s"),
        Measure("first", "p50_us", "first event later by, µs", 0, added=True),
    ],
    "Streams held, one event a second": [
        Measure("held2000", "kib", "2,000: KiB a stream"),
        Measure("held2000", "us", "CPU µs an event"),
        Measure("held2000", "delay_p99_ms", "event p99, ms"),
        Measure("held9000", "kib", "9,000: KiB a stream"),
        Measure("held9000", "us", "CPU µs an event"),
        Measure("held9000", "delay_p99_ms", "event p99, ms"),
    ],
    "Alone": [
        Measure("start", "ms", "start to the first 200, ms", 0),
        Measure("start", "idle_mb", "idle memory, MiB"),
    ],
}


class Figures:
    """The records of one run: `{"round", "case", "proxy"}` with `"figures"` or with `"failed"`."""

    def __init__(self, records):
        self._records = {(r["case"], r["proxy"], r["round"]): r for r in records}

    def proxies(self):
        return list(dict.fromkeys(proxy for _, proxy, _ in self._records if proxy != DIRECT))

    def rounds(self, case, proxy):
        return [number for c, p, number in self._records if (c, p) == (case, proxy)]

    def failure(self, case, proxy):
        """Why a cell has no value: one bad round is enough."""
        rounds = self.rounds(case, proxy)
        bad = [r for n in rounds if (r := self._records[case, proxy, n].get("failed"))]
        return f"{len(bad)} of {len(rounds)} rounds: {bad[0]}" if bad else None

    def value(self, measure, proxy, number):
        """One round's value, or none."""
        record = self._records.get((measure.case, proxy, number), {})
        value = record.get("figures", {}).get(measure.figure)
        if value is None or not measure.added:
            return value
        without = self._records.get((measure.case, DIRECT, number), {}).get("figures", {})
        return value - without[measure.figure] if measure.figure in without else None

    def values(self, measure, proxy):
        if self.failure(measure.case, proxy):
            return []
        found = [self.value(measure, proxy, n) for n in self.rounds(measure.case, proxy)]
        return [value for value in found if value is not None]

    def ratio(self, measure, proxy):
        """Median over the rounds of own / haproxy's; none where that has no meaning."""
        if self.failure(measure.case, proxy) or self.failure(measure.case, REFERENCE):
            return None
        pairs = [
            (self.value(measure, proxy, n), self.value(measure, REFERENCE, n))
            for n in self.rounds(measure.case, proxy)
        ]
        ratios = [a / b for a, b in pairs if a is not None and b is not None and b > 0]
        return statistics.median(ratios) if ratios and len(ratios) == len(pairs) else None

    def cell(self, measure, proxy):
        values = self.values(measure, proxy)
        if not values:
            return "failed" if self.failure(measure.case, proxy) else ""
        text = f"{statistics.median(values):,.{measure.digits}f}"
        if len(values) > 1:
            text += f" ({min(values):,.{measure.digits}f}–{max(values):,.{measure.digits}f})"
        ratio = self.ratio(measure, proxy)
        return text + (f" {ratio:.2f}×" if ratio is not None else "")


def table(figures, measures):
    """Markdown: a row for each proxy; empty where nothing of it was measured."""
    measures = [
        m for m in measures if any(figures.rounds(m.case, proxy) for proxy in figures.proxies())
    ]
    if not measures:
        return ""
    rows = [["", *(m.heading for m in measures)]]
    for proxy in figures.proxies():
        rows.append([proxy, *(figures.cell(m, proxy) for m in measures)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(f"{c:{w}}" for c, w in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def ceiling(figures):
    """What the load generator and the replicas do alone."""
    medians = []
    for measure in (m for measures in TABLES.values() for m in measures if m.figure != "us"):
        if values := figures.values(replace(measure, added=False), DIRECT):
            heading = measure.heading.replace("added ", "").replace(" later by", "")
            medians.append(f"{heading}: {statistics.median(values):,.0f}")
    return "Without a proxy: " + "; ".join(medians) if medians else ""


def text_of(run):
    """All of a run, as it was stored, to read."""
    figures = Figures(run["records"])
    parts = []
    for title, measures in TABLES.items():
        if lines := table(figures, measures):
            parts.append(f"{title}\n\n{lines}")
    if line := ceiling(figures):
        parts.append(line)
    failures = [
        f"- {proxy}, {case}: {figures.failure(case, proxy)}"
        for case in dict.fromkeys(r["case"] for r in run["records"])
        for proxy in [*figures.proxies(), DIRECT]
        if figures.failure(case, proxy)
    ]
    if failures:
        parts.append("Failed\n\n" + "\n".join(failures))
    if run["skipped"]:
        lines = [f"- {name}: {reason}" for name, reason in run["skipped"].items()]
        parts.append("Skipped\n\n" + "\n".join(lines))
    lines = [f"- {name}: {value}" for name, value in run["conditions"].items()]
    parts.append("Conditions\n\n" + "\n".join(lines))
    parts.append(
        "Each cell: median (lowest–highest), and the median of the ratios to haproxy in the same round."
    )
    return "\n\n".join(parts)
