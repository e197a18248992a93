"""Plots and a report of what `pointsman simulate … --json FILE` has written.

    ./dev plots FILE.json... [--out FOLDER]

writes, for each file, FOLDER/<experiment>-<figure>.svg and .png, and FOLDER/<experiment>.html: the
same figures with the tables and all that was run in one file. The same input gives the same bytes.
"""

import argparse
import pathlib
import sys

import drawing
import figures
import page
from report import Report


def main():
    parser = argparse.ArgumentParser(prog="./dev plots", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE.json")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("plots"), help="default: %(default)s"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for file in options.files:
        try:
            report = Report.load(file)
        except (OSError, ValueError) as error:
            print(f"{file}: {error}", file=sys.stderr)
            return 1
        drawn = figures.draw(report)
        for figure in drawn:
            for path in drawing.save(figure, options.out / f"{report.experiment}-{figure.name}"):
                print(path)
        path = options.out / f"{report.experiment}.html"
        path.write_text(page.html(report, drawn), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
