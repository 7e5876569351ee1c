"""README's table of rules is what the rule files say: ``python -m tests.test_families`` writes it."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from superopt import rule_text
from superopt.rules import NUMERIC_CLASSES, Rule
from superopt.shipped import rules_dir

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"
PEERS = ("onnxoptimizer", "onnxslim", "onnxscript", "onnxruntime")


def families() -> dict[str, dict[str, Any]]:
    """By file of rules: its purpose, and the passes of other optimizers."""
    found: dict[str, dict[str, Any]] = tomllib.loads((rules_dir() / "families.toml").read_text(encoding="utf-8"))
    return found


def members() -> dict[str, list[Rule]]:
    """The shipped rules by file."""
    found: dict[str, list[Rule]] = {}
    for rule in rule_text.load("all"):
        found.setdefault(rule.file.removesuffix(".rules"), []).append(rule)
    return found


def table() -> str:
    """The table in Markdown: a line for each file of rules."""
    default = {rule.file for rule in rule_text.load("default")}
    lines = [
        "| file | what they do | texts | rules | exact | reassociates | approximates | rejected | others' passes |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    total: Counter[str] = Counter()
    described = families()
    for name, rules in sorted(members().items()):
        used = [rule for rule in rules if rule.rejected is None]
        counts = Counter(rule.numeric for rule in used)
        figures = {
            "texts": len({rule.line for rule in used}),
            "rules": len(used),
            **{numeric: counts[numeric] for numeric in NUMERIC_CLASSES},
            "rejected": len(rules) - len(used),
        }
        total.update(figures)
        peers = ", ".join(f"{peer} ({len(described[name][peer])})" for peer in PEERS if described[name][peer])
        title = f"`{name}`" + ("" if f"{name}.rules" in default else " (off)")
        cells = [title, described[name]["purpose"], *map(str, figures.values()), peers or "none"]
        lines.append(f"| {' | '.join(cells)} |")
    sums = [str(total[key]) for key in ("texts", "rules", *NUMERIC_CLASSES, "rejected")]
    lines.append(f"| all | | {' | '.join(sums)} | |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The table that README has."""
    text = README.read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip() + "\n"


def test_every_file_of_rules_is_described() -> None:
    described = families()
    assert set(members()) <= set(described)
    for name, entry in described.items():
        assert (rules_dir() / f"{name}.rules").is_file()
        assert set(entry) == {"purpose", *PEERS}
        for peer in PEERS:
            assert len(set(entry[peer])) == len(entry[peer])


def test_readme_has_the_table_of_the_rule_files() -> None:
    assert written() == table(), "python -m tests.test_families writes it"


if __name__ == "__main__":
    whole = README.read_text(encoding="utf-8")
    before, after = whole.partition(BEGIN)[0], whole.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{table()}{END}{after}", encoding="utf-8")
