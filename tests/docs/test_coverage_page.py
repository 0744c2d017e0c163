"""The page and the badge that ``make coverage`` writes."""

import runpy
from pathlib import Path

import pytest

write = runpy.run_path(str(Path(__file__).parents[1] / "coverage_page.py"))["write"]


def file(lines: int, covered: int, branches: int = 0, taken: int = 0) -> dict[str, dict[str, int]]:
    summary = {"num_statements": lines, "covered_lines": covered}
    return {"summary": summary | {"num_branches": branches, "covered_branches": taken}}


def test_the_page_names_what_is_not_reached(tmp_path: Path) -> None:
    files = {
        "src/zol/film.py": file(10, 10, 2, 2),
        "src/zol/data/disk.py": file(10, 5, 10, 5),
        "src/zol/data/writer.py": file(10, 0),
        "src/zol/empty.py": file(0, 0),
    }
    totals = {"num_statements": 30, "covered_lines": 15, "num_branches": 12, "covered_branches": 7}
    assert write({"files": files, "totals": totals}, tmp_path) == 100 * 22 / 42
    page = (tmp_path / "coverage.md").read_text(encoding="utf-8")
    assert "**52.4 %**" in page
    assert "| `zol/data` | 20 | 33 % |" in page
    assert "| `zol` | 10 | 100 % |" in page
    low, untested = page.split("## ")[1:]
    assert "`zol/data/disk.py`: 50 %" in low
    assert untested.splitlines()[2:] == ["- `zol/data/writer.py`"]
    badge = (tmp_path / "images" / "coverage.svg").read_text()
    assert "52 %" in badge
    assert "#e05d44" in badge


DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.skipif(not (DOCS / "coverage.md").exists(), reason="make coverage writes it")
def test_the_page_that_is_here_and_its_badge_agree() -> None:
    said = (DOCS / "coverage.md").read_text(encoding="utf-8").split("**")[1].removesuffix(" %")
    assert f"{round(float(said))} %" in (DOCS / "images" / "coverage.svg").read_text()
