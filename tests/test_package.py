"""The package as people get it: sdist, the wheel built from it, a fresh environment, another folder."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def shell(*command: str | Path, cwd: Path) -> str:
    """What a command prints; the test fails with all of it where the command does."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    shell(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.mark.package
def test_the_wheel_has_the_data_inside_the_package_and_nothing_beside_it(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for folder in ("rules", "cost_models"):
        shipped = {path.name for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert {Path(name).name for name in names if name.startswith(f"superopt/{folder}/")} == shipped
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"superopt"}


@pytest.mark.package
def test_the_sdist_has_what_its_tests_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"superopt", "rules", "cost_models", "tests", "benchmarks", "LICENSE", "README.md"} <= tops


@pytest.mark.package
def test_the_wheel_works_in_a_fresh_environment_from_another_folder(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    scripts = tmp_path / "env" / ("Scripts" if sys.platform == "win32" else "bin")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shell(scripts / "python", "-m", "pip", "install", "--quiet", "--no-compile", wheel, cwd=elsewhere)
    version = re.search(r'__version__ = "(.+)"', (ROOT / "superopt" / "version.py").read_text(encoding="utf-8"))
    assert version is not None
    assert version[1] in shell(scripts / "superopt", "--version", cwd=elsewhere)
    listed = shell(scripts / "superopt", "rules", "list", cwd=elsewhere)
    assert "fold-batchnorm-into-conv" in listed
