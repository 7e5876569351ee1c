"""``superopt rules check``: what it takes, and what it says of what it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from superopt import rule_text
from superopt.cli import main as cli
from superopt.values import FUNCTIONS
from tests.test_cli import run

RULE = """
rule double-relu: exact
  Relu(Relu(x)) => Relu(x)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*names: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(["rules", "check", "--points", "3", *names])
    assert isinstance(left.value.code, int)
    return left.value.code


def checked(capsys: pytest.CaptureFixture[str], *names: str) -> list[str]:
    """The names of the rules that were checked, line by line."""
    check(*names)
    *lines, last = capsys.readouterr().out.splitlines()
    found = [line.split()[1].rstrip(":") for line in lines if line.startswith(("pass ", "FAIL "))]
    assert last.startswith(f"{len(found)} rules, ")
    return found


def test_a_rule_is_checked_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("sub-of-zero") == 0
    out = capsys.readouterr().out
    assert out.startswith("pass  sub-of-zero: ")
    assert out.splitlines()[-1] == "1 rules, 0 fail"


def test_a_family_is_checked_by_its_name_and_one_of_it_by_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    family = next(name.partition("[")[0] for name in (rule.name for rule in rule_text.load("identity")) if "[" in name)
    members = [rule.name for rule in rule_text.load("all").only(family)]
    assert len(members) > 1
    assert checked(capsys, family) == members
    assert checked(capsys, members[1]) == [members[1]]


def test_what_is_named_in_several_ways_is_checked_once(capsys: pytest.CaptureFixture[str]) -> None:
    once = [rule.name for rule in rule_text.load("batchnorm")]
    assert checked(capsys, once[0], "batchnorm", "batchnorm", once[-1]) == once


def test_names_stand_beside_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.rules").write_text(RULE)
    assert checked(capsys, "mine.rules", "sub-of-zero") == ["double-relu", "sub-of-zero"]


def test_what_a_rule_set_and_a_rule_are_named_is_the_set(capsys: pytest.CaptureFixture[str]) -> None:
    names = [rule.name for rule in rule_text.load("identity")]
    assert "identity" in names
    assert checked(capsys, "identity") == names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sub-of-zer", "sub-of-zer: no such rule or rule set, expected one that `superopt rules list` names, such as "),
        ("x", "x: no such rule or rule set, expected one that `superopt rules list` names, or a file"),
        ("no.rules", "no.rules:1:1: no such rule file; a path or one of "),
        ("sub-of-zero", "sub-of-zero: a file and a rule that ships are named so, expected ./sub-of-zero for the file"),
        ("batchnorm", "batchnorm: a file and a rule set that ships are named so, expected ./batchnorm for the file"),
    ],
)
def test_what_names_nothing_or_two_things_is_one_line(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in ("sub-of-zero", "batchnorm"):
        if name == file:
            Path(file).write_text(RULE)
    assert check(name) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"superopt: {message}")
    assert err.count("\n") == 1
    if name == "sub-of-zer":
        assert " sub-of-zero" in err


def test_a_file_that_is_named_as_what_ships_is_meant_by_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sub-of-zero").write_text(RULE)
    assert checked(capsys, "./sub-of-zero") == ["double-relu"]


def test_functions_are_listed_with_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "functions") == 0
    shown = capsys.readouterr().out
    for name, function in FUNCTIONS.items():
        assert f"{name}(" in shown
        assert (function.call.__doc__ or "").strip(), name
    assert run("rules", "functions", "identity", "kernel") == 0
    assert "identity_kernel(weight, attrs)" in capsys.readouterr().out
    assert run("rules", "functions", "no such word") == 2
    assert capsys.readouterr().err.startswith("superopt: functions: none has 'no such word'")
