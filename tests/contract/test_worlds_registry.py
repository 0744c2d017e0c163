"""Worlds by name: ours, those of other packages, near misses, and what the command line lists."""

import re
from pathlib import Path

import pytest

import zol.worlds
from zol.cli import worlds as command
from zol.common.errors import DataError
from zol.common.registry import Registry
from zol.testing import check_world
from zol.worlds import ALIASES, WORLDS, make


def test_every_world_has_a_summary_and_every_alias_a_world() -> None:
    assert all(WORLDS.summaries().values())
    assert set(ALIASES.values()) <= set(WORLDS)
    assert make("pointmass").name == "point_mass_maze"


def test_a_world_is_called_what_it_is_registered_as() -> None:
    for name in set(WORLDS.own) - {"humenv"}:
        assert make(name).name == name


@pytest.mark.parametrize(("wrong", "right"), [("walkr", "walker"), ("pointmas", "pointmass")])
def test_a_near_miss_is_suggested(wrong: str, right: str) -> None:
    with pytest.raises(DataError, match=f"no world called '{wrong}'; did you mean '{right}'"):
        make(wrong)


def test_the_list_shows_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    command.list_()
    listed = capsys.readouterr().out
    command.show()
    assert capsys.readouterr().out == listed
    for name in WORLDS:
        assert name in listed


def test_a_world_shows_what_its_tasks_have_beside_rewards(capsys: pytest.CaptureFixture[str]) -> None:
    command.show("corridor")
    printed = capsys.readouterr().out
    assert "has its own" in printed
    assert "starts, goal, success" in printed
    command.show("donut")
    assert "has its own" not in capsys.readouterr().out


def installed(folder: Path, page: Path) -> Path:
    """A package, as pip would leave it in ``folder``, with the world that a page shows."""
    block = re.search(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert block is not None
    (folder / "track.py").write_text(block.group(1))
    facts = folder / "somebodys_track-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-track\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text("[zol.worlds]\ntrack = track:Track\n")
    return folder


def test_another_package_adds_the_world_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "add-a-world.md"
    monkeypatch.syspath_prepend(installed(tmp_path, page))
    monkeypatch.setattr(zol.worlds, "WORLDS", Registry("world", "zol.worlds", WORLDS.own))
    world = make("track")
    assert world.name == "track"
    assert world.threads is None
    check_world(world)
    assert zol.worlds.WORLDS.summary("track") == "from the package somebodys-track"
    with pytest.raises(DataError, match="did you mean 'track'"):
        make("trak")
