"""Every Python block of the README and of the docs runs, top to bottom, as a reader would run it."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_blocks(page: Path, kind: str = "") -> list[tuple[int, str]]:
    """Line number and text of each fenced Python block; ``python slow`` marks those that take minutes."""
    text = page.read_text()
    found = re.finditer(rf"^```python{kind}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [(text[: match.start(1)].count("\n") + 1, match.group(1)) for match in found]


@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=lambda p: p.name)
def test_code_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__docs__"}
    for line, block in python_blocks(page):
        # Pad with empty lines, so that a traceback points at the line of the page.
        exec(compile("\n" * (line - 1) + block, str(page), "exec"), namespace)
    if page.name == "README.md":  # what was earned stands alone: no guess beside it that could be far off
        printed = capsys.readouterr().out
        assert "return" in printed
        assert "estimate" not in printed


PENDULUM = ROOT / "docs" / "pendulum.md"


def test_pendulum_takes_ten_lines_and_they_run_when_they_are_small() -> None:
    """The very words of the page with fewer episodes, fewer steps and a shorter search."""
    collected, told = (block for _, block in python_blocks(PENDULUM, " slow"))
    assert len([line for line in told.splitlines() if line.strip()]) <= 10
    small = {
        "range(150)": "range(6)",
        "steps=2_000": "steps=8",
        "(upright)": "(upright, horizon=2, rounds=0)",
    }
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for block in (collected, told):
        for words, fewer in small.items():
            block = block.replace(words, fewer)
        exec(compile(block, str(PENDULUM), "exec"), namespace)
    assert len(namespace["data"]) == 1_200
    assert namespace["skill"].latent.method == "rehearse"


@pytest.mark.slow
def test_pendulum_swings_up() -> None:
    """Random actions earn about −1300; ten lines and 30,000 random transitions must end above −800."""
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for _, block in python_blocks(PENDULUM, " slow"):
        exec(compile(block, str(PENDULUM), "exec"), namespace)
    assert len(namespace["data"]) == 30_000
    earned = namespace["agent"].evaluate(namespace["skill"], episodes=50, env="Pendulum-v1", seed=1_000)
    assert earned.mean > -800
    assert earned.random.mean() < -1_000


def test_the_readme_has_an_example() -> None:
    assert python_blocks(ROOT / "README.md")


def prose(page: Path) -> str:
    """The page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`", "", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", prose(page)):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_that_is_shown_exists(page: Path) -> None:
    from zol.cli import commands

    shells = re.findall(r"^```bash\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for words in re.findall(r"^zol ([a-z][a-z_-]*(?: [a-z][a-z_-]*)?)", "".join(shells), flags=re.MULTILINE):
        assert words in commands() or words.split()[0] in commands(), f"zol {words}"


def test_nobody_is_told_to_install_a_strangers_package() -> None:
    """The name zol on the public index is not ours: every hint installs from the clone."""
    texts = [*PAGES, *(ROOT / "src").rglob("*.py")]
    for path in texts:
        assert not re.search(r"pip install [^`\n]*\bzol\b", path.read_text()), path.name
