"""The report of one experiment as one HTML file that needs nothing beside it."""

import html as escaping
import math
import re

import drawing

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #888; } td.text, th.text { text-align: left; }
.scroll { overflow-x: auto; } figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption, .ci { color: #666; } figcaption { font-size: 13px; } pre { background: #f6f6f6; padding: .7rem; overflow-x: auto; }
""".strip()


def escape(text):
    return escaping.escape(str(text), quote=False)


def number(value, digits, scale):
    if isinstance(value, int) and scale == 1:
        return str(value)
    return f"{value * scale:.{digits}f}" if math.isfinite(value) else "–"


def cell(row, column):
    """The cell's text as HTML, and whether it is words rather than a number."""
    value = row.get(column["key"])
    if value is None:
        return "–", False
    if isinstance(value, bool):
        return ("yes" if value else "no"), True
    if not isinstance(value, int | float):
        return escape(value), True
    form = column.get("digits", 0), column.get("scale", 1)
    text = number(value, *form)
    interval = row.get(f"{column['key']}_ci95")
    if interval and interval[0] != interval[1]:
        low, high = (number(bound, *form) for bound in interval)
        text += f' <span class="ci">[{low}, {high}]</span>'
    return text, False


def table(title, columns, rows):
    cells = [[cell(row, column) for column in columns] for row in rows]
    words = [any(line[i][1] for line in cells) for i in range(len(columns))]
    mark = [' class="text"' if is_words else "" for is_words in words]
    lines = [f"<h2>{escape(title)}</h2>" if title else "", '<div class="scroll"><table>', "<tr>"]
    lines += [f"<th{mark[i]}>{escape(column['title'])}</th>" for i, column in enumerate(columns)]
    lines.append("</tr>")
    for line in cells:
        lines.append(
            "<tr>" + "".join(f"<td{mark[i]}>{text}</td>" for i, (text, _) in enumerate(line)) + "</tr>"
        )
    lines.append("</table></div>")
    return "\n".join(lines)


def tables(report):
    """As on the screen; without a word on how to show them, everything that is no list."""
    if not report.tables:
        keys = dict.fromkeys(
            key
            for row in report.rows
            for key, value in row.items()
            if not isinstance(value, list | dict)
        )
        columns = [{"key": key, "title": key, "digits": 4} for key in keys]
        return table("", columns, report.rows)
    parts = []
    for one in report.tables:
        rows = report.rows[one["first"] : one["first"] + one["rows"]]
        parts.append(table(one["title"], one["columns"], rows))
    return "\n".join(parts)


def inline_svg(figure, prefix):
    """The figure for use within a page. Ids get a prefix, since several figures share the page."""
    svg = drawing.svg_text(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)


def settings(values, depth=0):
    """What was run, as indented lines."""
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines += [f"{'  ' * depth}{key}:", *settings(value, depth + 1)]
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            for one in value:
                lines += [f"{'  ' * depth}{key}:", *settings(one, depth + 1)]
        else:
            lines.append(f"{'  ' * depth}{key}: {value}")
    return lines


def html(report, drawn):
    figures = [
        f"<figure>\n{inline_svg(one.figure, f'f{i}')}\n"
        f"<figcaption>{escape(one.caption)}</figcaption>\n</figure>"
        for i, one in enumerate(drawn)
    ]
    notes = "\n".join(f"<p>{escape(note)}</p>" for note in report.notes)
    run = escape("\n".join(settings(report.scenario)))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>pointsman simulate {escape(report.experiment)}</title>
<style>
{STYLE}
</style>
</head>
<body>
<h1>{escape(report.title)}</h1>
{chr(10).join(figures)}
{tables(report)}
{notes}
<h2>What was run</h2>
<p><code>pointsman simulate {escape(report.experiment)}</code>, {report.seeds} seeds.</p>
<pre>{run}</pre>
</body>
</html>
"""
