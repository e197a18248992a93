"""Plots and a report of what `pointsman simulate … --json FILE` has written.

    ./dev plots FILE.json... [--out FOLDER]

writes, for each file, FOLDER/<experiment>-<figure>.svg and .png, and FOLDER/<experiment>.html: the
same figures with the tables and all that was run in one file. Of several files of one experiment the
names are <experiment>-<FILE>. The same input gives the same bytes.
"""

import argparse
import pathlib
import sys

import drawing
import figures
import page
from report import Report


def names(files, reports):
    """What each report's files are called: its experiment, and its own file where several share one."""
    experiments = [report.experiment for report in reports]
    found = []
    for file, experiment in zip(files, experiments, strict=True):
        name = experiment if experiments.count(experiment) == 1 else f"{experiment}-{file.stem}"
        number = 2
        while name in found:  # files of the same name in two folders
            name = f"{experiment}-{file.stem}-{number}"
            number += 1
        found.append(name)
    return found


def main():
    parser = argparse.ArgumentParser(prog="./dev plots", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE.json")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("plots"), help="default: %(default)s"
    )
    options = parser.parse_args()
    reports = []
    for file in options.files:
        try:
            reports.append(Report.load(file))
        except (OSError, ValueError) as error:
            print(f"{file}: {error}", file=sys.stderr)
            return 1
    try:
        draw_all(options, reports)
    except OSError as error:
        print(f"{options.out}: cannot write there: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def draw_all(options, reports):
    options.out.mkdir(parents=True, exist_ok=True)
    for report, name in zip(reports, names(options.files, reports), strict=True):
        drawn = figures.draw(report)
        for figure in drawn:
            for path in drawing.save(figure, options.out / f"{name}-{figure.name}"):
                print(path)
        path = options.out / f"{name}.html"
        path.write_text(page.html(report, drawn), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    sys.exit(main())
