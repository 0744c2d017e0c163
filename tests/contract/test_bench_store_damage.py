"""A store that is somebody else's, damaged, locked or out of room ends in a sentence, and is left alone."""

import os
import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import run

from zol.bench import database
from zol.bench.store import Key, Result, Store, canonical
from zol.common.errors import DataError

KEY = Key("exorl", "walker", "run", "zol", canonical({"steps": 200}), "abc", 3, 7)
CELLS = 60


def filled(path: Path, count: int = CELLS) -> Path:
    keys = (replace(KEY, configuration=canonical({"n": n, "text": "x" * 200})) for n in range(count))
    Store(path).add([Result(key, np.arange(20.0), 0.5, {"ess": 0.5}, {"steps": 200}) for key in keys])
    return path


def change(path: Path, *commands: str) -> None:
    with sqlite3.connect(path) as file:
        for command in commands:
            file.execute(command)
    file.close()


def folder_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


def refused(path: Path, what: str) -> str:
    """Opening and reading end in a sentence and leave every byte of the folder as it was."""
    before = folder_of(path)
    with pytest.raises(DataError, match=what) as caught:
        Store(path).results()
    assert folder_of(path) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "made",
    [
        ("create table notes (text)",),
        ("create table results (name text, value real)", "insert into results values ('a', 1.0)"),
        ("create table notes (text)", "pragma application_id = 252006674"),
        ("pragma journal_mode = wal", "create table notes (text)"),
        ("create table notes (text)", "pragma user_version = 2"),
    ],
)
def test_a_strangers_database_is_refused_and_left_untouched(tmp_path: Path, made: tuple[str, ...]) -> None:
    change(tmp_path / "theirs.db", *made)
    assert "left as it is" in refused(tmp_path / "theirs.db", "another program")


def test_a_store_from_before_the_application_id_is_adopted_when_it_is_added_to(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.sqlite")
    assert path.read_bytes()[68:72] == b"zols"
    change(path, "pragma application_id = 0")
    before = folder_of(path)
    assert len(Store(path).results()) == CELLS
    assert folder_of(path) == before  # reading leaves the bytes alone
    assert Store(path).add([Result(replace(KEY, task="new"), np.zeros(2))]) == 1
    assert path.read_bytes()[68:72] == b"zols"


def test_a_store_whose_maker_was_killed_before_the_first_result_is_used(tmp_path: Path) -> None:
    Store(tmp_path / "s.sqlite")
    change(tmp_path / "s.sqlite", "pragma application_id = 0", "pragma user_version = 0")
    (tmp_path / "empty.sqlite").touch()
    for name in ("s.sqlite", "empty.sqlite"):
        assert Store(tmp_path / name).add([Result(KEY, np.zeros(2))]) == 1


def test_an_index_that_has_lost_rows_is_found_on_opening(tmp_path: Path) -> None:
    """All names of cells are read from the index: without a check some of them were missing in silence."""
    path = filled(tmp_path / "s.sqlite")
    with sqlite3.connect(path) as file:
        page = file.execute("select rootpage from sqlite_master where type = 'index'").fetchone()[0]
        size = file.execute("pragma page_size").fetchone()[0]
    file.close()
    raw = bytearray(path.read_bytes())
    begin = (page - 1) * size
    cells = int.from_bytes(raw[begin + 3 : begin + 5], "big")
    raw[begin + 3 : begin + 5] = (cells - 1).to_bytes(2, "big")
    path.write_bytes(raw)
    refused(path, "is damaged")


@pytest.mark.parametrize(
    "made",
    [
        "create view results as with recursive c(x) as (select 1 union select x + 1 from c) select * from c",
        "create table results (benchmark text, task as (zeroblob(1000000000)))",
        "create table results (benchmark text, domain text)",
        "create index mine on kept (task)",
        "create trigger mine after insert on kept begin delete from kept; end",
    ],
)
def test_a_file_signed_as_ours_runs_no_queries_of_its_own(tmp_path: Path, made: str) -> None:
    path = filled(tmp_path / "s.sqlite", 2)
    change(path, "alter table results rename to kept", made, "pragma journal_mode = delete")
    refused(path, "otherwise than a result store does")


def test_statistics_that_sqlite_keeps_are_no_damage(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.sqlite", 2)
    change(path, "analyze")
    assert len(Store(path).results()) == 2


def test_a_hundred_and_twenty_corruptions_are_sentences_or_harmless(tmp_path: Path) -> None:
    whole, choose = filled(tmp_path / "whole.sqlite"), random.Random(0)
    expected, raw = Store(whole).keys(), whole.read_bytes()
    (tmp_path / "broken").mkdir()
    path, damaged = tmp_path / "broken" / "s.sqlite", 0
    for number in range(120):
        changed = bytearray(raw[: choose.randrange(200, len(raw))] if number % 10 == 0 else raw)
        for _ in range(choose.choice([1, 4, 200])):
            changed[choose.randrange(len(changed))] = choose.randrange(256)
        path.write_bytes(changed)
        try:
            store = Store(path)
            store.results()
            assert store.keys() == expected
        except DataError:
            damaged += 1
        for left in path.parent.iterdir():
            left.unlink()
    assert damaged > 60


@pytest.mark.parametrize(
    ("update", "what"),
    [
        ("command = cast(x'ff41' as text)", "decode"),
        ("diagnostics = '{\"ess\": '", "not valid JSON"),
        ("diagnostics = '{\"ess\": 1' || printf('%0500d', 0) || '}'", "501 digits"),
        ("chosen = '[1]'", "holds a list"),
        (f"versions = '{'[' * 100_000}'", "not valid JSON"),
        ("returns = x'0000'", "one number per episode"),
        ("returns = x'', episodes = 0", "one number per episode"),
        ("returns = x'000000000000f87f', episodes = 1", "not finite"),
        ("estimate = 9e999", "not finite"),
        ("estimate = 'much'", "not finite"),
        ("seconds = -9e999", "not finite"),
        ("episodes = 'many'", "episodes is 'many'"),
        ("environment_steps = x'00'", "environment_steps is"),
        ("hardware = x'00'", "not text"),
    ],
)
def test_a_row_that_makes_no_sense_is_a_sentence(tmp_path: Path, update: str, what: str) -> None:
    path = filled(tmp_path / "s.sqlite", 2)
    change(path, f"update results set {update} where rowid = 2")
    assert "It was not changed" in refused(path, what)


def test_a_name_of_another_type_is_a_sentence(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.sqlite", 2)
    change(path, "update results set task = x'00' where rowid = 2")
    for read in (Store.keys, Store.results):
        with pytest.raises(DataError, match="the name of a cell"):
            read(Store(path))


@pytest.mark.parametrize("values", [{"estimate": np.nan}, {"estimate": np.inf}, {"seconds": np.nan}])
def test_numbers_that_are_not_finite_are_not_stored(tmp_path: Path, values: dict[str, Any]) -> None:
    store = Store(tmp_path / "s.sqlite")
    with pytest.raises(DataError, match=r"not a finite number; the store was not changed"):
        store.add([Result(KEY, np.zeros(2)), Result(replace(KEY, task="b"), np.zeros(2), **values)])
    assert len(store) == 0


def test_locked_for_longer_than_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(filled(tmp_path / "s.sqlite", 2))
    monkeypatch.setattr(database, "WAIT", 0.05)
    with sqlite3.connect(store.path) as other:
        other.execute("begin immediate")
        with pytest.raises(DataError, match=r"kept .* locked for 0\.05 s .* are safe"):
            store.add([Result(KEY, np.zeros(2))])
        other.rollback()
    other.close()
    assert store.add([Result(KEY, np.zeros(2))]) == 1


def add_with_little_room(say: Callable[[str], None], path: Path) -> None:
    import resource

    store, limit = Store(path), path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        store.add([Result(KEY, np.zeros(100_000))])
    except DataError as error:
        say(str(error))


@pytest.mark.skipif(os.name != "posix", reason="file size limits are a POSIX thing")
def test_no_room_for_results(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.sqlite", 3)
    (said,) = run(add_with_little_room, path)
    assert "no room while adding results to" in said
    assert "stored before are safe" in said
    assert len(Store(path).results()) == 3


def test_places_where_no_store_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for place in ("file", "file/s.sqlite", "file/deep/s.sqlite", "", "x" * 300):
        with pytest.raises(DataError) as caught:
            Store(tmp_path / place)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "text"
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(DataError, match="no regular file"):
            Store(tmp_path / "pipe")
