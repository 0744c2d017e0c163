"""The page of what people ask for names commands that exist, and answers all thirty asks."""

import re
from pathlib import Path

import pytest

from zol.cli import commands

PAGE = Path(__file__).parents[2] / "docs" / "asks.md"
ROWS = re.findall(r"^\| (\d+) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)


def test_there_are_thirty() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 31))


@pytest.mark.parametrize(("number", "answer"), [(number, answer) for number, _, answer in ROWS])
def test_each_names_a_command_or_a_page_and_both_exist(number: str, answer: str) -> None:
    named = re.findall(r"`zol ([a-z]+(?: [a-z]+)?)", answer)
    links = re.findall(r"\]\(([^)]+)\)", answer)
    assert named or links
    for words in named:
        assert words in commands() or words.split()[0] in commands(), f"zol {words}"
    for link in links:
        target, _, anchor = link.partition("#")
        page = PAGE.parent / target
        assert page.exists(), link
        if anchor:
            assert anchor in anchors(page), link


def anchors(page: Path) -> set[str]:
    """What headings of a page are called in links, on Git hosts and on the site."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}
