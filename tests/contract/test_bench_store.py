"""The result store: nothing doubles, nothing half-written, several processes at once."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zol.bench.store import Key, Result, Store, canonical
from zol.common.errors import DataError

KEY = Key("exorl", "walker", "run", "zol", canonical({"steps": 200}), "abc", 3, 7)


def test_a_cell_comes_back_as_it_went_in(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "s.sqlite")
    returns = np.array([1.5, np.pi, 1e-300])
    facts = {"command": "zol bench", "commit": "c0ffee", "hardware": "two cores", "versions": {"torch": "2"}}
    given = Result(KEY, returns, 0.25, {"ess": 0.5}, {"steps": 200}, False, 4000, 1.25, facts, "2026-01-01")
    assert store.add([given]) == 1
    (found,) = store.results()
    assert found.returns.tobytes() == returns.tobytes()
    assert replace(found, returns=returns) == replace(given, returns=returns)
    assert KEY in store
    assert store.keys() == {KEY}


def test_the_first_result_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.add([Result(KEY, np.zeros(2))])
    assert store.add([Result(KEY, np.ones(2)), Result(replace(KEY, task="walk"), np.ones(2))]) == 1
    assert len(store) == 2
    assert store.results(task="run")[0].returns.tolist() == [0.0, 0.0]


def test_reading_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    Store(path).add([Result(KEY, np.zeros(2))])
    before = path.read_bytes()
    assert len(Store(path).results()) == 1
    assert path.read_bytes() == before


def test_every_part_of_the_name_tells_cells_apart(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    others = [
        replace(KEY, **dict[str, Any]({name: value + 1 if isinstance(value, int) else value + "x"}))
        for name, value in vars(KEY).items()
    ]
    assert store.add([Result(key, np.zeros(1)) for key in [KEY, *others]]) == 1 + len(others)


def test_a_bad_row_takes_its_whole_job_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    with pytest.raises(DataError, match="finite"):
        store.add([Result(KEY, np.zeros(2)), Result(replace(KEY, task="walk"), np.array([np.nan]))])
    assert len(store) == 0


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.sqlite").write_text("this is no database, though long enough to be one" * 20)
    with pytest.raises(DataError, match="not a result store"):
        Store(tmp_path / "s.sqlite")
    with pytest.raises(DataError, match="no part of a cell's name"):
        Store(tmp_path / "t.sqlite").results(seed=3)


OLD_REHEARSAL = {
    "trust": 0.8,
    "trust_prompts": 0.5,
    "miss": 0.2,
    "strangers": 12,
    "worth": 0.005,
    "horizon": 50,
}
NEW_REHEARSAL = {
    "min_correlation": 0.8,
    "min_correlation_prompts": 0.5,
    "max_one_step_error": 0.2,
    "random_latents": 12,
    "min_gain": 0.005,
    "horizon": 50,
}


@pytest.mark.parametrize(
    ("method", "settings", "diagnostics", "new"),
    [
        ("fb", {}, {"trust": 1.0, "ess": 0.5}, ("fb", {}, {"trust_region": 1.0, "ess": 0.5})),
        (
            "zol",
            {"trust": 0.02, "trust_norm": "mean"},
            {"trust": 1.0},
            ("zol", {"trust_region": 0.02, "trust_region_norm": "mean"}, {"trust_region": 1.0}),
        ),
        ("perturb", {"as far as": {"trust": 0.1}}, {}, ("perturb", {"as_far_as": {"trust_region": 0.1}}, {})),
        (
            "rehearse trust=-1.0 miss=9.0 horizon=50",
            OLD_REHEARSAL,
            {"trusted": 0.9, "missed": 0.1, "doubt": 2.0},
            (
                "rehearse min_correlation=-1.0 max_one_step_error=9.0 horizon=50",
                NEW_REHEARSAL,
                {"correlation": 0.9, "one_step_error": 0.1, "doubt": 2.0},
            ),
        ),
        ("lola", {"horizon": 3}, {"distance": 0.5}, ("lola", {"horizon": 3}, {"distance": 0.5})),
    ],
)
def test_a_store_of_the_first_format_is_brought_up_to_date(
    tmp_path: Path, method: str, settings: dict, diagnostics: dict, new: tuple
) -> None:
    """Renamed settings name the same cells, so that nothing is run again; returns stay as they are."""
    path = tmp_path / "s.sqlite"
    key = replace(KEY, method=method, configuration=canonical(settings))
    returns = np.array([1.5, np.pi])
    Store(path).add([Result(key, returns, 0.5, diagnostics, settings)])
    with sqlite3.connect(path) as database:
        database.execute("pragma user_version = 1")
    store = Store(path)
    renamed, settings_now, diagnostics_now = new
    key_now = replace(KEY, method=renamed, configuration=canonical(settings_now))
    assert store.keys() == {key_now}
    (found,) = store.results()
    assert (found.chosen, found.diagnostics) == (settings_now, diagnostics_now)
    assert found.returns.tobytes() == returns.tobytes()
    before = path.read_bytes()
    assert Store(path).add([Result(key_now, np.zeros(2))]) == 0  # it is there already
    assert path.read_bytes() == before  # and the file is brought up to date once


def test_a_store_of_a_later_zol_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "s.sqlite")
    with sqlite3.connect(tmp_path / "s.sqlite") as database:
        database.execute("pragma user_version = 99")
    with pytest.raises(DataError, match="has format 99"):
        Store(tmp_path / "s.sqlite")


WRITER = """
import sys
import threading
from contextlib import closing
from pathlib import Path
import numpy as np
from zol.bench.store import Key, Result, Store
store = Store(sys.argv[1])
for number in range(60):
    key = Key("test", "walker", "run", "fb", str(number), "abc", 0, 1)
    store.add([Result(key, np.full(4, float(number)))])
"""


def test_processes_that_write_the_same_cells_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) for _ in range(3)]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    results = Store(path).results()
    assert sorted(int(r.key.configuration) for r in results) == list(range(60))
    assert all((r.returns == int(r.key.configuration)).all() for r in results)


def test_a_store_that_others_are_opening_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait here: who is first to keep a log needs the file to itself for a moment."""
    path = tmp_path / "s.sqlite"
    Store(path)
    with closing(sqlite3.connect(path, check_same_thread=False)) as other:
        other.execute("pragma journal_mode = delete")
        other.execute("begin immediate")
        other.execute("update results set seconds = 0")
        end = threading.Timer(0.3, other.commit)
        end.start()
        Store(path)
        end.join()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("pragma journal_mode").fetchone() == ("wal",)
