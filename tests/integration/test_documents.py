"""What the documents say outside of the generated pages: links lead somewhere, figures are true."""

import json
import re
import subprocess

import pytest
from support.processes import POINTSMAN, ROOT

PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))


def output(*words):
    return subprocess.run(
        [POINTSMAN, *words], capture_output=True, text=True, timeout=60, check=True
    ).stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_places_in_the_source_exist(page):
    text = page.read_text()
    missing = [
        link
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
        if not link.startswith("http") and not (page.parent / link).exists()
    ]
    sources = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:h|cc))`", text)
    missing += [
        place for place in sources if not any((ROOT / base / place).exists() for base in (".", "src"))
    ]
    assert not missing


def test_the_tests_that_the_security_page_names_exist():
    page = (ROOT / "docs/security.md").read_text()
    units = re.findall(r"`([A-Z]\w+)\.([A-Z]\w+)`", page)
    functions = re.findall(r"`(test_\w+)`", page)
    assert len(units) > 50 and len(functions) > 4
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*_test.cc"))
    scripts = "\n".join(path.read_text() for path in (ROOT / "tests/integration").glob("*.py"))
    there = set(re.findall(r"\bTEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", sources))
    assert [f"{suite}.{name}" for suite, name in units if (suite, name) not in there] == []
    assert [name for name in functions if f"def {name}(" not in scripts] == []


def test_the_security_page_names_every_header_that_steers():
    page = (ROOT / "docs/security.md").read_text()
    source = (ROOT / "src/http/head.cc").read_text()
    function = source[source.index("bool is_steering") : source.index("HeaderId named")]
    names = re.findall(r'i(?:equals|starts_with)\(name, "([^"]+)"\)', function)
    assert len(names) > 8
    assert [name for name in names if f"`{name}" not in page] == []


def defaults():
    """Configuration keys and preset options as the program has them, by name."""
    example = str(ROOT / "examples/minimal.yaml")
    values = dict(line.split()[:2] for line in output("check", "-c", example).splitlines() if line)
    for preset in json.loads(output("policies", "--json"))["policies"]:
        for option in preset["options"]:
            values[f"{preset['name']}.{option['name']}"] = option["default"]
    return values


def test_figures_in_the_concept_pages_are_the_defaults():
    value = defaults()

    def number(name):
        return f"{float(value[name]):,.0f}"

    work = {key.split(".")[1]: v for key, v in value.items() if key.startswith("least_work.")}
    assert value["ring_hash.balance"] == value["maglev.balance"]
    statements = {
        "load_signals": [
            f"- live KV ≥ {value['saturation.kv']}",
            f"- live queue ≥ {value['saturation.queue']}",
            f"- outstanding prefill ≥ {number('saturation.prefill_tokens')} tokens",
        ],
        "release_valve": [
            f"ceil({value['ring_hash.balance']} × (in flight in the pool + 1)",
            f"lately sent the same first {value['prefix_aware.tokens']:.0f} tokens",
        ],
        "segregation": [
            f"prompt has more than {number('segregation.long_context_tokens')} tokens",
            f"is above {number('segregation.long_generation_tokens')};",
        ],
        "least_work": [
            f"cost = s · ({work['base_tokens']:.0f} + Q + {work['shared_weight']:.0f}·u_shared"
            f" + {work['private_weight']:.0f}·u_private + {work['decode_tokens']:.0f}·L·d)",
            f"+ {work['kv_weight']:,.0f} · max(0, kv + prompt ÷ capacity − {work['kv_knee']})",
            f"live KV use; {work['unknown_kv']} where there is no fresh reading",
            f"{work['speed_gain']:.0%} a sample".replace("%", " %"),
            f"Within ±{work['speed_dead_band']:.0%} of the median".replace("%", " %"),
        ],
    }
    assert work["speed_samples"] == 20  # "twenty streams"
    for page, sentences in statements.items():
        text = " ".join((ROOT / f"docs/concepts/{page}.md").read_text().split())
        for sentence in sentences:
            assert sentence in text, page
    admin = (ROOT / "docs/admin.md").read_text()
    assert f"`admin` listens on `{value['admin']}` unless told otherwise" in admin


def test_every_word_of_an_error_is_explained_and_no_other():
    text = (ROOT / "docs/errors.md").read_text()
    told = re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE)
    sources = sorted((ROOT / "src/proxy").glob("*.cc"))
    source = "".join(path.read_text() for path in sources)
    words = set(re.findall(r'\bkind = "([a-z_]+)"', source))
    words |= {w for two in re.findall(r'\? "(\w+)" : "(\w+)"', source) for w in two if "_" in w}
    words |= set(re.findall(r'return \{"([a-z_]+)", "the replica', source))
    words |= set(re.findall(r'refuse\(\d+, "([a-z_]+)"', source))
    labels = (ROOT / "src/telemetry/proxy_metrics.h").read_text()
    cuts = re.search(r"label\(CutReason reason\).*?\{(\s*\"[^}]*)\}", labels, re.DOTALL)
    words |= set(re.findall(r'"(\w+)"', cuts.group(1)))
    assert sorted(told) == sorted(words)
