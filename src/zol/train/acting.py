"""What trainings share that act in a world while they learn: zol.train.online, zol.train.practice, and
zol.train.pretraining where a model practises beside its data.

Their loop is the one of all models (zol.train.loop). Here is what stands around it: how settings are told
apart, one process with its network and learner, tests of what was learned so far, the checkpoint at the end.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from zol import checkpoint
from zol.checkpoint import Checkpoint
from zol.common import parallel
from zol.common.config import Config
from zol.common.device import choose_device, choose_threads
from zol.common.errors import DataError, unknown_name
from zol.models.learner import NetworkLearner
from zol.models.settings import FROM_DATA
from zol.train.loop import Feed, TrainConfig, require_outputs
from zol.train.planning import Plan, plan
from zol.train.returns import ReturnEvaluation
from zol.worlds import ALIASES
from zol.worlds.base import World

C = TypeVar("C", bound=Config)
FOLDER = "practice"  # of the set that practice fills, in that of the run


def plan_online(model: str, world: str | None, **words: Any) -> Plan:
    """The settings for a model that acts in a world of this name."""
    return plan(model, acts_in=None if world is None else ALIASES.get(world, world), **words)


def of_preset(plan: Plan, acting: type[C]) -> C:
    """How the preset acts."""
    return acting(**{k: v for k, v in plan.others.items() if k in acting.model_fields})


def told_apart(
    plan: Plan, given: Mapping[str, Any], acting: type[C], *, steps: int | None, seed: int
) -> tuple[TrainConfig, C, dict[str, Any]]:
    """The loop, how it acts, and settings of the model, each the plan's with what was given instead."""
    own = {name for name in plan.entry.config.model_fields if name not in FROM_DATA}
    known = own | set(TrainConfig.model_fields) | set(acting.model_fields)
    for name in given:
        if name not in known:
            raise DataError(unknown_name(f"setting of {plan.entry.name} or its training", name, known))

    def those(names: Any) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name in names}

    loop = those(TrainConfig.model_fields) | {"seed": seed} | ({} if steps is None else {"steps": steps})
    return (
        plan.training.updated(**loop),
        of_preset(plan, acting).updated(**those(acting.model_fields)),
        {**plan.settings, **those(own)},
    )


def require_one_process(name: str) -> None:
    """Refuse torchrun with several processes."""
    if parallel.size() > 1:
        raise DataError(
            f"{name} acts in one world while it learns, and {parallel.size()} processes were started: run it "
            "without torchrun"
        )


@contextmanager
def begun(
    plan: Plan, config: Any, training: TrainConfig, *, out: str | Path | None, device: str, threads: int
) -> Iterator[NetworkLearner]:
    """The learner of a new network, in one process; what cannot work is said before the first step."""
    require_outputs(out, training)
    entry, before = plan.entry, torch.get_num_threads()
    with parallel.processes(choose_device(device)) as place:
        require_one_process(entry.name)
        torch.set_num_threads(choose_threads(training.batch_size * config.hidden**2, threads))
        try:
            network = entry.network(config, torch.Generator().manual_seed(training.seed)).to(place)
            learner = entry.learner(network, config, autocast=training.autocast, compiled=training.compiled)
            assert isinstance(learner, NetworkLearner)
            yield learner
        finally:
            torch.set_num_threads(before)


def returns(
    world: World, learner: NetworkLearner, feed: Feed, *, episodes: int, seed: int, prompt: Any
) -> Callable[[int], dict[str, float]]:
    """A test of prompted latents, with prompts from what there is by then."""

    def test(step: int) -> dict[str, float]:
        sample = feed.prompt_sample(seed)
        found = ReturnEvaluation(world, learner, sample, episodes=episodes, seed=seed, prompt=prompt)
        return found(step) if found.evidence.tasks else {}

    return test


def finished(
    out: str | Path | None,
    learner: NetworkLearner,
    facts: Mapping[str, Any],
    sample: Mapping[str, torch.Tensor],
) -> Checkpoint:
    """The checkpoint in ``out``, or one in memory."""
    if out is not None:
        return checkpoint.load(out)
    network = learner.checked.freeze()
    known = checkpoint.description(network) | dict(learner.facts) | dict(facts)
    return Checkpoint(network, known, sample, None)
