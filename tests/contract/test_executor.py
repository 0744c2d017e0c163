"""Lost workers cost their own job: no row lost, none doubled, on processes and on a cluster."""

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from bench_jobs import Sleeper

from zol.bench.executor import ATTEMPTS, run_jobs
from zol.bench.run import run_grid
from zol.bench.store import Store
from zol.common.errors import ZolError


def runs_of(marks: Path) -> Counter[int]:
    return Counter(int(mark.name.split("-")[0]) for mark in marks.iterdir())


def everything_once(store: Store, count: int) -> None:
    results = store.results()
    assert len(results) == 2 * count
    assert Counter(int(r.returns[0]) for r in results) == dict.fromkeys(range(count), 2)


def test_workers_killed_half_way_lose_and_double_nothing(tmp_path: Path) -> None:
    marks, store = tmp_path / "marks", Store(tmp_path / "s.sqlite")
    marks.mkdir()
    killed: set[int] = set()
    stop = threading.Event()

    def killer() -> None:
        """SIGKILL to the first three workers that are seen at work, while they are at it."""
        while not stop.is_set() and len(killed) < 3:
            for mark in sorted(marks.iterdir()):
                process = int(mark.name.split("-")[2])
                if process not in killed and len(killed) < 3:
                    killed.add(process)
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        run_grid([Sleeper(n, marks, seconds=0.3) for n in range(8)], store, workers=2)  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
    assert len(killed) == 3
    assert sum(runs_of(marks).values()) == 8 + 3  # each kill cost exactly one job
    everything_once(store, 8)


def test_finished_jobs_are_skipped_even_if_another_process_did_them(tmp_path: Path) -> None:
    marks, store = tmp_path / "marks", Store(tmp_path / "s.sqlite")
    marks.mkdir()
    jobs = [Sleeper(n, marks) for n in range(4)]
    store.add(jobs[1].run(1))
    run_grid(jobs, store, workers=1)  # type: ignore[arg-type]
    assert runs_of(marks) == {0: 1, 1: 1, 2: 1, 3: 1}
    everything_once(store, 4)


def test_a_job_that_raises_fails_once_and_the_others_go_on(tmp_path: Path) -> None:
    done: list[str] = []
    jobs = [Sleeper(0, tmp_path), Sleeper(1, tmp_path, fault="raise"), Sleeper(2, tmp_path, fault="die once")]
    with pytest.raises(ZolError, match=r"1 of 3 jobs failed.*\n.*sleeper 1 does not want to"):
        run_jobs(jobs, lambda job, _: done.append(job.name), workers=1)
    assert sorted(done) == ["sleeper 0", "sleeper 2"]
    assert runs_of(tmp_path) == {0: 1, 1: 1, 2: 2}


def test_a_job_that_kills_every_worker_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(ZolError, match="code -9, 3 times"):
        run_jobs([Sleeper(0, tmp_path, fault="die")], lambda *_: None, workers=1)
    assert runs_of(tmp_path) == {0: ATTEMPTS}


@pytest.mark.slow
def test_a_cluster_that_loses_a_node_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes on this machine; the one that is not the head is taken away while it works."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    marks, store = tmp_path / "marks", Store(tmp_path / "s.sqlite")
    marks.mkdir()
    here, known = str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, known])))  # nodes know the jobs
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    stop = threading.Event()
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        jobs = [Sleeper(n, marks, seconds=2.0) for n in range(8)]

        def lose_a_node() -> None:
            while len(list(marks.iterdir())) < 4:  # two are done, two are at work
                if stop.wait(0.1):
                    return
            cluster.remove_node(second, allow_graceful=False)

        thread = threading.Thread(target=lose_a_node)
        thread.start()
        run_grid(jobs, store, ray=cluster.address)  # type: ignore[arg-type]
    finally:
        stop.set()
        thread.join()
        cluster.shutdown()
    everything_once(store, 8)
    assert sum(runs_of(marks).values()) > 8  # the lost job did run again


def test_a_cluster_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ZolError, match="no Ray cluster answers"):
        run_jobs([], lambda *_: None, ray="auto")
