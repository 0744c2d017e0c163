"""The paper's sweep: 72 configurations × all tasks of a domain as one batched search, then test episodes.

Beside every configuration stands its control, a random move of plain FB's latent as long as the search's. All
of them are tested on the same start states, so that what selection on test returns buys can be computed
afterwards (:mod:`zol.bench.ablation`). Latents that are equal to the last bit, such as those of two clips
that never bite, are tested once.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tyro

from zol.adapt import METHODS, Adapted, ZOLConfig, perturbed, prompted, zol_search
from zol.adapt.controls import PerturbConfig
from zol.adapt.paper_settings import TASKS, sweep_configs
from zol.bench.ablation import CONTROL, SEARCH, choice_table, gather_sweeps
from zol.bench.benchmark import Benchmark
from zol.bench.conditions import BASELINE, BenchedModel, Conditions, open_model
from zol.bench.executor import require_ray
from zol.bench.jobs import LatentJob, cell_key
from zol.bench.run import STORE, run_grid
from zol.bench.store import Key, Result, Store, canonical
from zol.common.errors import ZolError
from zol.common.provenance import command as running_command
from zol.common.terminal import terminal
from zol.models.base import Latent
from zol.report import print_table
from zol.tasks.humenv import REWARDS

ENVIRONMENTS = 400  # per job: enough to keep physics busy, little enough to lose


def search_key(config: ZOLConfig) -> str:
    """The configuration of a search, as the store names it."""
    return canonical(METHODS[SEARCH].key(config))


def control_key(config: ZOLConfig) -> str:
    """That of the control which moves as far as this search."""
    return canonical(METHODS[CONTROL].key(PerturbConfig(as_far_as=config)))


def sweep_keys(benched: BenchedModel, conditions: Conditions, configs: Sequence[ZOLConfig]) -> set[Key]:
    """All cells of a sweep."""
    names = [(BASELINE, "{}")]
    names += [(SEARCH, search_key(config)) for config in configs]
    names += [(CONTROL, control_key(config)) for config in configs]
    return {
        cell_key(benched, conditions, task, method, configuration)
        for method, configuration in names
        for task in benched.evidence.tasks
    }


def search_all(
    benched: BenchedModel, conditions: Conditions, configs: Sequence[ZOLConfig]
) -> list[tuple[str, str, Adapted]]:
    """Method, configuration and latents: plain FB, every search in one batch, every control."""
    problem = benched.problem()
    model, evidence = problem.model, problem.evidence
    plain = prompted(model, evidence)
    searched = zol_search(model, evidence, plain.z[0], configs, trace=False)
    found = [(BASELINE, "{}", plain)]
    for c, config in enumerate(configs):
        found.append((SEARCH, search_key(config), _row(searched, c)))
    for c, config in enumerate(configs):
        # A generator per configuration: its control does not depend on which others are swept.
        generator = problem.generator(f"sweep/{canonical(config.model_dump())}")
        moved = perturbed(model, evidence, plain.z[0], searched.distance[c], generator)
        found.append((CONTROL, control_key(config), moved))
    return found


def plan_sweep(
    benched: BenchedModel,
    conditions: Conditions,
    configs: Sequence[ZOLConfig],
    store: Store,
    command: str | None = None,
) -> list[LatentJob]:
    """Search, then the jobs that test what is not in the store yet; equal latents share their episodes."""
    if sweep_keys(benched, conditions, configs) <= store.keys():
        return []
    shared: dict[tuple[str, bytes], tuple[Latent, list[Result]]] = {}
    for method, configuration, found in search_all(benched, conditions, configs):
        for t, task in enumerate(found.evidence.tasks):
            latent = found.latent(task)
            cell = Result(
                key=cell_key(benched, conditions, task, method, configuration),
                returns=np.empty(0),
                estimate=float(found.estimate[0, t]),
                diagnostics=latent.diagnostics,
                chosen=dict(found.configs[0]),
            )
            _, cells = shared.setdefault((task, latent.z.numpy().tobytes()), (latent, []))
            cells.append(cell)
    known = store.keys()
    todo = [(z, cells) for z, cells in shared.values() if any(cell.key not in known for cell in cells)]
    at_once = max(1, ENVIRONMENTS // conditions.episodes)
    parts = [todo[begin : begin + at_once] for begin in range(0, len(todo), at_once)]
    return [
        LatentJob(
            benched.path,
            conditions,
            tuple(z for z, _ in part),
            tuple(tuple(cells) for _, cells in part),
            f"part {number} of {len(parts)}",
            command,
        )
        for number, part in enumerate(parts, 1)
    ]


def _row(found: Adapted, c: int) -> Adapted:
    """One configuration of many."""
    return replace(
        found,
        z=found.z[c : c + 1],
        configs=found.configs[c : c + 1],
        estimate=found.estimate[c : c + 1],
        diagnostics={name: value[c : c + 1] for name, value in found.diagnostics.items()},
        trace={},
    )


def sweep(
    models: tyro.conf.Positional[tuple[Path, ...]],
    store: Path = STORE,
    episodes: int = 20,
    steps: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    ray: str | None = None,
) -> None:
    """Test the configurations of the paper's sweep and as many random moves of the same sizes.

    They are 72 on control tasks, and 15 on the 45 tasks of HumEnv for a model that was trained there.

    All configurations and tasks of a model are searched as one batch. Each is then tested on the same start
    states as plain FB, so that zol report can show what choosing by test returns buys, and what each
    hyperparameter does. 20 episodes per cell instead of 100, because 2 × 72 configurations × 4 tasks are many
    cells. Resumable, like every zol bench.

    Args:
        models: checkpoint folders or names of the zoo
        store: file of results, created if need be
        episodes: test episodes per configuration and task
        steps: length of an episode; the world's own unless told
        limit: only the first so many configurations, for a trial
        seed: of the random moves
        workers: local processes; as many as cores unless told
        ray: address of a Ray cluster to run on instead (auto: the one on this machine)
    """
    console = terminal()
    if not models:
        raise ZolError("no model to test: give checkpoint folders (zol train writes them)")
    conditions = Conditions(name="sweep", episodes=episodes, steps=steps, seed=seed)
    results = Store(store)
    if ray is not None:
        require_ray()
    for path in models:
        benched = open_model(path, conditions)
        configs = sweep_configs(benched.domain)[:limit]
        jobs = plan_sweep(benched, conditions, configs, results, running_command())
        console.print(f"{path}: {len(jobs)} jobs to do", soft_wrap=True)
        run_grid(jobs, results, workers=workers, ray=ray)
    sweeps = gather_sweeps(results.results(benchmark=conditions.benchmark), [])
    if sweeps:
        header, rows = choice_table(sweeps)
        short = [[row[0], row[1], row[2]] for row in rows]
        print_table(console, (header[:3], short), "What choosing by test returns buys")
    console.print(f"{len(results)} cells are in {store}; zol report {store} shows them", soft_wrap=True)


SWEEP = Benchmark(sweep, {**TASKS, "humenv": tuple(REWARDS)}, (BASELINE, SEARCH, CONTROL))
