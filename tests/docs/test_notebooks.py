"""Every notebook runs, top to bottom, as a reader would run it."""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(notebook: Path, kind: str) -> list[str]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__notebook__"}
    for number, code in enumerate(cells(notebook, "code")):
        exec(compile(code, f"{notebook.name} code cell {number}", "exec"), namespace)
    if notebook.stem == "own_data":  # the skill does what it was asked for, better than random actions
        earned: Any = namespace["earned"]
        assert earned.wanted.mean() > 2 * earned.wanted_random.mean()
        assert earned.returns.mean() > earned.random.mean()


def test_there_is_one_for_each_way_to_begin() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare_methods", "foreign_checkpoint", "own_data"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_explain_themselves_and_hold_no_output(notebook: Path) -> None:
    found = json.loads(notebook.read_text())
    assert cells(notebook, "markdown")[0].startswith("# ")
    assert all(cell["outputs"] == [] for cell in found["cells"] if cell["cell_type"] == "code")
    assert found["nbformat"] == 4
