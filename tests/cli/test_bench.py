"""zol bench exorl, zol sweep, zol report: the whole path on a tiny maze model, short episodes."""

import csv
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zol.adapt import METHODS, Method, find_method, prompted, solve
from zol.adapt.paper_settings import (
    BEST,
    BEST_OGBENCH,
    OGBENCH_ELSEWHERE,
    RETURNS,
    TASKS,
    best_on_test_returns,
    sweep_configs,
)
from zol.adapt.problem import NoSettings
from zol.adapt.zol_settings import ZOLConfig
from zol.bench.benchmark import tasks_of
from zol.bench.conditions import Conditions, kind_of, open_model, split_kind
from zol.bench.jobs import plan, unfinished
from zol.bench.ogbench import TASKS as OGBENCH
from zol.bench.rehearsal import REHEARSAL, VARIANTS
from zol.bench.results import gather
from zol.bench.store import Store
from zol.bench.unseen import TASKS as UNSEEN
from zol.cli import main
from zol.common.config import Config
from zol.common.errors import ZolError
from zol.common.registry import Entry
from zol.value import ESTIMATORS
from zol.worlds import make

SHORT = ("--episodes", "4", "--steps", "12", "--workers", "1")
CONDITIONS = Conditions(episodes=4, steps=12)


def register(monkeypatch: pytest.MonkeyPatch, name: str, method: Method) -> None:
    """Put a method into the registry for the time of a test."""
    monkeypatch.setitem(METHODS.own, name, Entry("nowhere", "only a test"))
    monkeypatch.setitem(METHODS._loaded, name, method)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two pretraining seeds on the maze."""
    folder = tmp_path_factory.mktemp("bench")
    main(["explore", "point_mass_maze", "--steps", "2000", "--how", "random", "--out", str(folder / "data")])
    small = "--steps 10 --batch-size 32 --hidden 16 --backward-hidden 16 --z-dim 6 --episodes 0"
    for seed in ("0", "1"):
        words = ["--data", str(folder / "data"), "--out", str(folder / seed), "--seed", seed]
        main(["train", "fb", *words, *small.split(), "--dynamics-steps", "0"])
    return folder / "0", folder / "1"


@pytest.fixture(scope="module")
def store(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "s.sqlite"
    words = ["bench", "exorl", *map(str, models), "--store", str(path), *SHORT]
    main([*words, "--methods", "fb", "ridge", "zol"])
    main(["sweep", str(models[0]), "--store", str(path), "--limit", "5", *SHORT])
    return path


def test_the_grid_has_every_cell_once_with_its_origin(store: Path, models: tuple[Path, Path]) -> None:
    rows = Store(store).results(benchmark=CONDITIONS.benchmark)
    assert CONDITIONS.benchmark == "exorl episodes=4 steps=12"
    heard = open_model(models[0], CONDITIONS).evidence.tasks
    assert set(heard) <= set(TASKS["point_mass_maze"])
    assert {(r.key.pretraining_seed, r.key.method) for r in rows} == {
        (seed, method) for seed in (0, 1) for method in ("fb", "ridge", "zol")
    }
    for row in rows:
        assert row.returns.shape == (4,)
        assert row.facts["commit"]
        assert row.facts["versions"]["torch"]
        assert row.facts["hardware"]
        assert row.environment_steps == 0
    assert json.loads(rows[-1].key.configuration)["steps"] == 200  # zol's settings are part of the key


def test_a_second_call_does_nothing_and_a_lost_cell_comes_back(
    store: Path, models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sqlite3

    copy = tmp_path / "s.sqlite"
    shutil.copy(store, copy)
    words = ["bench", "exorl", str(models[0]), "--store", str(copy), "--methods", "fb", "ridge", *SHORT]
    before = {r.key: r for r in Store(copy).results()}
    main(words)
    told = capsys.readouterr().out
    assert "2 of 2 jobs are done already" in told
    assert "everything in the store so far" in told  # and what it says
    (verdict,) = [line for line in told.splitlines() if line.startswith("Verdict on point_mass_maze")]
    assert "ridge" in verdict
    assert "95 % intervals" in verdict
    assert max(len(line) for line in told.splitlines() if line != verdict and str(tmp_path) not in line) <= 80
    with sqlite3.connect(copy) as database:
        database.execute("delete from results where method = 'ridge' and pretraining_seed = 0")
    main(words)
    after = {r.key: r for r in Store(copy).results()}
    assert after.keys() == before.keys()
    assert all(np.array_equal(after[key].returns, before[key].returns) for key in before)


def test_cells_reproduce_bit_for_bit_and_a_changed_one_is_caught(
    store: Path, models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sqlite3

    copy = tmp_path / "s.sqlite"
    shutil.copy(store, copy)
    words = ["bench", "exorl", str(models[0]), "--store", str(copy), "--methods", "ridge", "--verify", *SHORT]
    main(words)
    assert "cells reproduce bit for bit" in capsys.readouterr().out
    with sqlite3.connect(copy) as database:
        other = np.full(4, 3.0).tobytes()
        database.execute("update results set returns = ? where method = 'ridge'", (other,))
    with pytest.raises(SystemExit):
        main(words)
    assert "do not reproduce" in capsys.readouterr().err


def test_all_methods_start_from_the_same_states_which_none_of_them_sees(models: tuple[Path, Path]) -> None:
    benched = open_model(models[0], CONDITIONS)
    from zol.worlds import make

    world = make(benched.domain)
    tested = world.reset(CONDITIONS.episodes, CONDITIONS.test_generator()).obs.float()
    seen = benched.problem().evidence.starts
    assert not bool((tested.unsqueeze(1) == seen.unsqueeze(0)).all(-1).any())


def test_offline_methods_are_given_no_world(
    models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from zol.worlds import make

    def peek(problem, settings):
        problem.environment()
        return prompted(problem.model, problem.evidence)

    register(monkeypatch, "peek", Method(peek))
    problem = open_model(models[0], CONDITIONS).problem(make("point_mass_maze"))
    with pytest.raises(ZolError, match="no world was given"):
        solve("peek", problem)
    register(monkeypatch, "peek", Method(peek, uses="environment"))
    assert solve("peek", problem).found.method == "peek"


def test_changed_settings_are_new_work(
    store: Path, models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    benched = open_model(models[0], CONDITIONS)
    assert not unfinished(Store(store), plan([benched], ["ridge"], CONDITIONS)[0])

    class Stronger(Config):
        ridge: float = 0.1

    for changed in (
        Method(METHODS["ridge"].adapt, Stronger()),
        Method(METHODS["ridge"].adapt, NoSettings(), revision=2, correction="something"),
    ):
        register(monkeypatch, "ridge", changed)
        assert unfinished(Store(store), plan([benched], ["ridge"], CONDITIONS)[0])


def test_the_control_moves_as_far_as_zol(models: tuple[Path, Path]) -> None:
    problem = open_model(models[0], CONDITIONS).problem()
    # Far corners give this tiny sample rewards of 1e-20; only the near one says where to go.
    problem = replace(problem, evidence=problem.evidence.only("reach_top_left"))
    moved, searched = solve("perturb", problem).found, solve("zol", problem).found
    assert float(searched.distance) > 0
    assert float(moved.distance) == pytest.approx(float(searched.distance), rel=1e-2)
    assert not np.allclose(moved.z, searched.z)


def test_the_report_has_every_format_and_regenerates(store: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        main(["report", str(store), "--out", str(tmp_path / name)])
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in "ab")
    assert first == second
    page = first["report.md"].decode()
    for word in ("oracle", "random moves", "P(better)", "env. steps", "commit", "2 × ", "Δ fb [95 %]"):
        assert word in page
    assert "tabular" in first["report.tex"].decode()
    assert first["index.html"].decode().count("data:image/png;base64,") == 2
    assert "<script" not in first["index.html"].decode()
    with (tmp_path / "a" / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    stored = Store(store).results()
    assert len(rows) == len(stored)
    assert {row["estimator"] for row in rows if row["estimate"]} == {"ratio"}  # who made the estimates
    told = sorted(tuple(map(float, row["returns"].split())) for row in rows)
    assert told == sorted(tuple(row.returns) for row in stored)


def test_methods_that_make_networks_are_named_so_beside_offline_ones(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sqlite3

    copy = tmp_path / "s.sqlite"
    shutil.copy(store, copy)
    with sqlite3.connect(copy) as database:  # as if another method had earned this
        database.execute("update results set method = 'weighted-bc' where method = 'ridge'")
    main(["report", str(copy), "--out", str(tmp_path / "out")])
    page = (tmp_path / "out" / "report.md").read_text()
    assert "| weighted-bc | weights |" in page
    assert "| fb | data |" in page
    assert "weighted-bc (changes weights)" in page.replace("*", "")


def test_incomplete_methods_are_left_out_aloud(store: Path, tmp_path: Path) -> None:
    import sqlite3

    copy = tmp_path / "s.sqlite"
    shutil.copy(store, copy)
    with sqlite3.connect(copy) as database:
        database.execute("delete from results where method = 'ridge' and pretraining_seed = 1")
    grid = gather(Store(copy), CONDITIONS.benchmark)
    assert grid.methods == ["fb", "zol"]
    assert any(note.startswith("ridge on point_mass_maze: ") for note in grid.notes)


def test_models_of_another_kind_are_columns_paired_by_seed(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "s.sqlite"
    shutil.copy(store, copy)
    results, other = Store(copy), CONDITIONS.updated(model="hilp").benchmark
    assert split_kind(other) == (CONDITIONS.benchmark, "hilp")
    plain = results.results(benchmark=CONDITIONS.benchmark, method="fb")
    hilp = [  # of the same seeds, finished in another order
        replace(row, key=replace(row.key, benchmark=other, model=f"h{row.key.pretraining_seed}"))
        for row in reversed(plain)
    ]
    results.add(hilp)
    grid = gather(results, CONDITIONS.benchmark)
    assert grid.methods == ["fb", "ridge", "zol", "hilp: fb"]
    found, baseline = grid.pairs("hilp: fb")[0]
    np.testing.assert_array_equal(found, baseline)
    main(["report", str(copy), "--out", str(tmp_path / "report")])
    page = (tmp_path / "report" / "report.md").read_text()
    assert "hilp: fb" in page
    assert page.count("## Benchmark: exorl") == 1
    results.add([replace(row, key=replace(row.key, model="again")) for row in hilp[:1]])
    grid = gather(results, CONDITIONS.benchmark)  # two models of one seed: which one would be compared?
    assert "hilp: fb" not in grid.methods
    assert any(note.startswith("hilp: fb on point_mass_maze: ") for note in grid.notes)


@pytest.mark.parametrize(
    ("model", "settings", "kind"),
    [
        ("fb", {"encoder": "none", "actor": "plain"}, "fb"),
        ("fb", {"encoder": "shallow", "actor": "flow"}, "fb/shallow/flow"),
        ("td_jepa", {"symmetric": True}, "td_jepa/symmetric"),
        ("hilp", {"sphered": True}, "hilp/sphered"),
        ("successor_features", {"features": "icvf"}, "successor_features/icvf"),
    ],
)
def test_a_checkpoint_says_what_kind_it_is(model: str, settings: dict[str, Any], kind: str) -> None:
    assert kind_of({"model": model, "settings": settings}) == kind
    assert kind_of({}) == "fb"  # of earlier versions, and of others


def test_the_family_is_trained_tested_and_not_trained_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "family.sqlite"
    variants = ["fb", "hilp", "hilp_sphered", "fb_flow"]
    words = ["bench", "family", "--variants", *variants, "--seeds", "0", "--steps", "3"]
    main([*words, "--store", str(store)])
    told = capsys.readouterr().out
    assert "donut: fb/flow, seed 0" in told
    assert "four_rooms: fb/flow" not in told  # a flow has no discrete actions
    grid = gather(Store(store), "family steps=3 episodes=64")
    of_fb = {"fb", "ridge", "fb/flow: fb", "fb/flow: ridge"}
    of_hilp = {"hilp: least-squares", "hilp: ridge", "hilp: features"}
    assert set(grid.methods) == of_fb | of_hilp | {"hilp/sphered: fb", "hilp/sphered: ridge"}
    rooms = grid.domains["four_rooms"].values["hilp: least-squares"]
    assert rooms.shape == (1, 1, 104)
    assert (rooms >= -1e-9).all()
    assert (rooms <= 100 + 1e-9).all()  # per cent of the optimum
    main([*words, "--store", str(store)])
    assert "seed 0" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["bench", "family", "--variants", "hlip", "--store", str(store)])
    assert "did you mean 'hilp'" in capsys.readouterr().err


def test_mistakes_are_one_sentence(
    models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, text in (
        (["bench", "exorl", str(models[0]), "--methods", "zoll"], "did you mean 'zol'"),
        (["bench", "exorl", str(models[0]), "--methods", "zol step=3"], "did you mean 'steps'"),
        (["bench", "exorl", str(models[0]), "--methods", "zol steps"], "write field=value"),
        (["bench", "exorl", str(models[0]), "--methods", "ridge ridge=1"], "ridge has no settings to change"),
        (["bench", "exorl", str(tmp_path)], "config.json does not exist"),
        (["bench", "exorl"], "no model to test"),
        (["report", str(tmp_path / "none.sqlite")], "does not exist"),
        (["report", str(models[0]), "--format", "pdf"], "no format called 'pdf'"),
    ):
        with pytest.raises(SystemExit):
            main(words)
        assert text in capsys.readouterr().err


def test_rehearsal_is_tested_with_one_setting_changed_at_a_time(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    """A variant has a name and a key of its own, and the report shows it beside plain FB."""
    assert all(find_method(name).settings != METHODS["rehearse"].settings for name in VARIANTS)
    some = ("rehearse members=1", "rehearse horizon=5 bootstrap=true")
    assert REHEARSAL.methods == ("fb", "rehearse", *VARIANTS)
    folder = shutil.copytree(models[0], tmp_path / "model")
    data = str(models[0].parent / "data")
    main(["train", "dynamics", "--data", data, "--out", str(folder), "--steps", "5", "--width", "16"])
    store = tmp_path / "s.sqlite"
    words = ["bench", "rehearsal", str(folder), "--store", str(store), *SHORT]
    main([*words, "--methods", "fb", "rehearse", *some])
    rows = Store(store).results(benchmark="rehearsal episodes=4 steps=12")
    assert {row.key.method for row in rows} == {"fb", "rehearse", *some}
    changed = {row.key.method: json.loads(row.key.configuration) for row in rows}
    assert changed[some[1]] == changed["rehearse"] | {"horizon": 5, "bootstrap": True}
    assert changed["rehearse members=1"] == changed["rehearse"] | {"members": 1}
    main(["report", str(store), "--out", str(tmp_path / "report"), "--format", "md"])
    text = (tmp_path / "report" / "report.md").read_text()
    assert "| rehearse members=1 |" in text
    assert "- rehearse members=1: rehearse with members=1" in text


def test_unseen_tasks_are_a_benchmark_of_their_own(models: tuple[Path, Path], tmp_path: Path) -> None:
    """They stand beside the paper's tasks and never mix with them, in the store and in the report."""
    store = tmp_path / "s.sqlite"
    for benchmark in ("exorl", "unseen"):
        main(["bench", benchmark, str(models[0]), "--methods", "fb", "zol", "--store", str(store), *SHORT])
    rows = Store(store).results(benchmark="unseen episodes=4 steps=12")
    heard = open_model(models[0], CONDITIONS.updated(name="unseen")).evidence.tasks
    assert "square" in heard
    assert {row.key.task for row in rows} == set(heard)
    assert {row.key.method for row in rows} == {"fb", "zol"}
    main(["report", str(store), "--out", str(tmp_path / "report"), "--format", "md"])
    _, paper, unseen = (tmp_path / "report" / "report.md").read_text().split("## Benchmark: ")
    assert "| point_mass_maze square |" in unseen
    assert "square" not in paper
    assert "reach_top" not in unseen


def test_the_zoo_is_compared_with_each_models_own_prompt_whatever_its_kind(
    models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, other, store = models[0].parent / "data", tmp_path / "hilp", tmp_path / "s.sqlite"
    small = "--steps 10 --batch-size 32 --hidden 16 --backward-hidden 16 --z-dim 6 --episodes 0 --seed 1"
    main(["train", "hilp", "--data", str(data), "--out", str(other), *small.split(), "--dynamics-steps", "3"])
    quick = "episodes horizon=3 trained=4 goals=1"
    words = ["bench", "zoo", str(models[0]), str(other), "--store", str(store), *SHORT]
    main([*words, "--methods", "plain", "ridge"])
    assert "Δ plain [95 %]" in capsys.readouterr().out
    grid = gather(Store(store), "zoo episodes=4 steps=12")
    assert grid.baseline == "plain"
    assert set(grid.methods) == {"plain", "ridge"}
    assert grid.domains["point_mass_maze"].runs == 2  # FB and HILP, one column
    own = {row.key.pretraining_seed: row.chosen["how"] for row in Store(store).results(method="plain")}
    assert own == {0: "correlation", 1: "least_squares"}
    main(["bench", "zoo", str(other), "--store", str(store), *SHORT, "--methods", quick])
    main(["report", str(store), "--out", str(tmp_path / "report")])
    text = (tmp_path / "report" / "report.md").read_text()
    assert "- plain: the model's own prompt" in text


def test_results_of_before_a_correction_are_marked_and_measured_again(
    store: Path, models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell without the revision of its method is of an earlier one; the report says so."""
    import sqlite3

    copy = tmp_path / "s.sqlite"
    shutil.copy(store, copy)
    with sqlite3.connect(copy) as database:
        changed = database.execute(
            "update results set configuration = replace(configuration, ',\"revision\":2', '') "
            "where method in ('zol', 'perturb')"
        )
        assert changed.rowcount > 0
    main(["report", str(copy), "--out", str(tmp_path / "old"), "--format", "md"])
    main(["report", str(store), "--out", str(tmp_path / "new"), "--format", "md"])
    before, now = ((tmp_path / name / "report.md").read_text() for name in ("old", "new"))
    assert before.count("Measured before the correction of ZOL's search") == 2  # the benchmark and the sweep
    assert "Measured before" not in now
    benched = open_model(models[0], CONDITIONS)
    assert unfinished(Store(copy), plan([benched], ["zol"], CONDITIONS)[0])
    assert not unfinished(Store(copy), plan([benched], ["ridge"], CONDITIONS)[0])
    assert not unfinished(Store(store), plan([benched], ["zol"], CONDITIONS)[0])


def test_an_unknown_benchmark_is_refused() -> None:
    """It used to be given the paper's tasks in silence."""
    assert tasks_of("unseen episodes=4") is UNSEEN
    for wrong in ("unsen", "exorl2 episodes=4"):
        with pytest.raises(ZolError, match="no benchmark called"):
            tasks_of(wrong)
        with pytest.raises(ZolError, match="did you mean"):
            Conditions(name=wrong.split()[0]).tasks("walker")


def test_unseen_tasks_are_tasks_of_their_worlds_and_not_the_papers() -> None:
    for domain, tasks in UNSEEN.items():
        assert set(tasks) <= set(make(domain).tasks)
        assert not set(tasks) & set(TASKS[domain])


def test_estimates_of_latents_are_compared_with_what_they_earn(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    """One line per task and estimator, one per latent, and where the numbers come from."""
    folder = shutil.copytree(models[0], tmp_path / "model")
    data = str(models[0].parent / "data")
    main(["train", "dynamics", "--data", data, "--out", str(folder), "--steps", "5", "--width", "16"])
    main(["bench", "ranking", str(folder), "--episodes", "1", "--out", str(tmp_path / "results")])
    written = (tmp_path / "results" / "ranking.csv").read_text().splitlines()
    told = [line for line in written if line.startswith("#")]
    assert any(line.startswith("# commit: ") for line in told)
    assert "# seed of the pools: 0" in told
    lines = list(csv.DictReader(line for line in written if not line.startswith("#")))
    compared = {name for name in ESTIMATORS if not ESTIMATORS[name].learns}
    assert len(lines) == len(compared) * len({line["task"] for line in lines})
    assert {line["estimator"] for line in lines} == compared
    assert (tmp_path / "results" / "ranking.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_sweep_on_a_cluster_that_loses_a_node_equals_a_local_one(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    """Real jobs on two nodes of this machine; the one that is not the head goes away when rows have come."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    words = ["sweep", str(models[0]), "--limit", "6", "--episodes", "100", "--steps", "1000"]
    far, near = tmp_path / "far.sqlite", tmp_path / "near.sqlite"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    over, lost = threading.Event(), threading.Event()
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()

        def lose_a_node() -> None:
            while not (far.exists() and len(Store(far))):
                if over.wait(0.05):
                    return
            cluster.remove_node(second, allow_graceful=False)
            lost.set()

        thread = threading.Thread(target=lose_a_node)
        thread.start()
        main([*words, "--store", str(far), "--ray", cluster.address])
    finally:
        over.set()
        thread.join()
        cluster.shutdown()
    assert lost.is_set()
    main([*words, "--store", str(near), "--workers", "1"])
    ours, theirs = ({row.key: row.returns for row in Store(path).results()} for path in (far, near))
    assert ours.keys() == theirs.keys()
    assert len(Store(far).results()) == len(ours)  # none doubled
    assert all(np.array_equal(ours[key], theirs[key]) for key in ours)


def test_the_papers_numbers_are_whole() -> None:
    assert {domain: len(tasks) for domain, tasks in TASKS.items()} == dict.fromkeys(TASKS, 4)
    assert set(BEST) == {(domain, task) for domain, tasks in TASKS.items() for task in tasks}
    configs = sweep_configs()
    assert len({config.model_dump_json() for config in configs}) == 72
    # The paper's best settings are points of its own sweep.
    assert all(best_on_test_returns(*key) in [(config, 256) for config in configs] for key in BEST)
    assert set(RETURNS) == set(BEST)
    # the averages that its table prints
    for k, printed in enumerate((592.5, 627.2)):
        assert sum(pair[k] for pair in RETURNS.values()) / 16 == pytest.approx(printed, abs=0.5)


def test_the_papers_settings_of_ogbench_are_those_of_the_dataset() -> None:
    assert set(BEST_OGBENCH) == {name for name in OGBENCH if not name.startswith("pointmaze")}
    assert all(len(tasks) == 5 for tasks in BEST_OGBENCH.values())
    stitch, explore = (
        best_on_test_returns(f"antmaze-medium-{how}", "task3_shifted") for how in ("stitch", "explore")
    )
    assert stitch == (
        ZOLConfig(learning_rate=5e-3, steps=500, chi_square=0.01, trust_region=0.001, clip=50.0),
        512,
    )
    assert explore[0].steps == 200
    assert best_on_test_returns("cube-single-play", "task1")[1] == 1  # a single start state
    # worlds and datasets that the paper leaves out have what most of its tasks have
    elsewhere = best_on_test_returns("pointmaze-medium-navigate", "task1_shifted")
    assert elsewhere == best_on_test_returns("antmaze-medium", "task1")
    same = [settings[:5] == OGBENCH_ELSEWHERE for tasks in BEST_OGBENCH.values() for settings in tasks]
    assert (sum(same), len(same)) == (25, 40)
