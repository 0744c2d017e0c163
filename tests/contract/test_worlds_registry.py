"""Worlds by name: ours, those of other packages, near misses, and what the command line lists."""

import pytest

from zol.cli import worlds as command
from zol.common.errors import DataError
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
