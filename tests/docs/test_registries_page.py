"""The page that lists everything there is says what the registries say."""

import re
from pathlib import Path

import pytest

from zol.adapt import METHODS
from zol.bench import BENCHMARKS
from zol.common.markdown import markdown_table
from zol.models import MODELS
from zol.value import ESTIMATORS
from zol.worlds import WORLDS

PAGE = Path(__file__).parents[2] / "docs" / "registries.md"
REGISTRIES = {registry.group: registry for registry in (WORLDS, MODELS, METHODS, ESTIMATORS, BENCHMARKS)}


@pytest.mark.parametrize("group", REGISTRIES)
def test_its_tables_are_those_of_the_registries(group: str) -> None:
    registry = REGISTRIES[group]
    rows = [(f"`{name}`", entry.summary) for name, entry in registry.own.items()]
    pattern = rf"^## .*\(`{re.escape(group)}`\)\n(.*?)(?=^## |\Z)"
    (section,) = re.findall(pattern, PAGE.read_text(), re.M | re.S)
    expected = markdown_table(("name", "what it is"), rows)
    assert expected in section, f"docs/registries.md should hold:\n{expected}"
