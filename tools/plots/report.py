"""The JSON file of an experiment. See src/experiments/report.h for its form."""

import json
from dataclasses import dataclass, field


class Row(dict):
    """A row, with its intervals at hand."""

    def interval(self, key):
        """The 95 % interval of `key`: (low, high), or the value twice where there is none."""
        return tuple(self.get(f"{key}_ci95") or (self[key], self[key]))

    @property
    def label(self):
        arm = self.get("arm")
        return f"{self['policy']} ({arm})" if arm else self["policy"]


@dataclass
class Report:
    experiment: str
    title: str
    seeds: int
    scenario: dict
    rows: list[Row]
    tables: list[dict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, path):
        """Raises ValueError where the file is no report."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"is no JSON file of `pointsman simulate`: {error}") from error
        try:
            return cls(
                experiment=content["experiment"],
                title=content["title"],
                seeds=content["seeds"],
                scenario=content["scenario"],
                rows=[Row(row) for row in content["rows"]],
                tables=content.get("tables", []),
                notes=content.get("notes", []),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a report of `pointsman simulate`: {error!r}") from error

    def where(self, **wanted):
        """The rows that have these values."""
        return [row for row in self.rows if all(row.get(k) == v for k, v in wanted.items())]

    def values(self, key):
        """The distinct values of `key`, in order of first appearance."""
        return list(dict.fromkeys(row[key] for row in self.rows if key in row))
