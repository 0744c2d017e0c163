"""The paper's sweep: 72 configurations × all tasks of a domain as one batched search, then test episodes.

Beside every configuration stands its control, a random move of plain FB's latent as long as the search's. All
of them are tested on the same start states, so that what selection on test returns buys can be computed
afterwards (:mod:`zol.bench.ablation`). Latents that are equal to the last bit, such as those of two clips
that never bite, are tested once.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from zol.adapt.controls import perturbed, prompted
from zol.adapt.result import Adapted
from zol.adapt.zol import ZOLConfig, zol
from zol.bench.ablation import AS_FAR_AS, CONTROL, SEARCH
from zol.bench.jobs import LatentJob, cell_key
from zol.bench.protocols import Protocol, Subject
from zol.bench.results import BASELINE
from zol.bench.store import Key, Result, Store, canonical
from zol.models.base import Latent

ENVIRONMENTS = 400  # per job: enough to keep physics busy, little enough to lose


def sweep_keys(subject: Subject, protocol: Protocol, configs: Sequence[ZOLConfig]) -> set[Key]:
    """All cells of a sweep."""
    names = [(BASELINE, "{}")]
    names += [(SEARCH, canonical(config.model_dump())) for config in configs]
    names += [(CONTROL, canonical({AS_FAR_AS: config.model_dump()})) for config in configs]
    return {
        cell_key(subject, protocol, task, method, configuration)
        for method, configuration in names
        for task in subject.evidence.tasks
    }


def search_all(
    subject: Subject, protocol: Protocol, configs: Sequence[ZOLConfig]
) -> list[tuple[str, str, Adapted]]:
    """Method, configuration and latents: plain FB, every search in one batch, every control."""
    problem = subject.problem(protocol, None)
    model, evidence = problem.model, problem.evidence
    plain = prompted(model, evidence)
    searched = zol(model, evidence, plain.z[0], configs, trace=False)
    found = [(BASELINE, "{}", plain)]
    for c, config in enumerate(configs):
        found.append((SEARCH, canonical(config.model_dump()), _row(searched, c)))
    for c, config in enumerate(configs):
        # A generator per configuration: its control does not depend on which others are swept.
        generator = problem.generator(f"sweep/{canonical(config.model_dump())}")
        moved = perturbed(model, evidence, plain.z[0], searched.distance[c], generator)
        found.append((CONTROL, canonical({AS_FAR_AS: config.model_dump()}), moved))
    return found


def plan_sweep(
    subject: Subject,
    protocol: Protocol,
    configs: Sequence[ZOLConfig],
    store: Store,
    command: str | None = None,
) -> list[LatentJob]:
    """Search, then the jobs that test what is not in the store yet; equal latents share their episodes."""
    if sweep_keys(subject, protocol, configs) <= store.keys():
        return []
    shared: dict[tuple[str, bytes], tuple[Latent, list[Result]]] = {}
    for method, configuration, found in search_all(subject, protocol, configs):
        for t, task in enumerate(found.evidence.tasks):
            latent = found.latent(task)
            cell = Result(
                key=cell_key(subject, protocol, task, method, configuration),
                returns=np.empty(0),
                estimate=float(found.estimate[0, t]),
                diagnostics=latent.diagnostics,
                chosen=dict(found.configs[0]),
            )
            _, cells = shared.setdefault((task, latent.z.numpy().tobytes()), (latent, []))
            cells.append(cell)
    known = store.keys()
    todo = [(z, cells) for z, cells in shared.values() if any(cell.key not in known for cell in cells)]
    at_once = max(1, ENVIRONMENTS // protocol.episodes)
    parts = [todo[begin : begin + at_once] for begin in range(0, len(todo), at_once)]
    return [
        LatentJob(
            subject.path,
            protocol,
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
