"""What a trial of a model needs: its learner on fixed data, or with practice in a world, and its tests."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from zol.bench.cpu_budget import Metered, Setup
from zol.collect.practice import Practice, PracticeConfig
from zol.common.config import Config
from zol.common.errors import DataError
from zol.data import Dataset
from zol.models.learner import NetworkLearner
from zol.models.pretraining import Pretraining
from zol.models.prior_features import PriorFeaturesLearner
from zol.train.acting import FOLDER, begun, plan_online, told_apart
from zol.train.loop import TrainConfig
from zol.train.planning import Plan, plan
from zol.train.returns import ReturnEvaluation
from zol.worlds import make
from zol.worlds.base import World


def opened(data: Path) -> tuple[Dataset, World]:
    """A dataset, and the world that it names."""
    dataset = Dataset.open(data)
    name = dataset.provenance.get("world")
    if name is None:
        raise DataError(
            f"{data} does not name its world, so nothing can be tested: zol explore makes sets that do"
        )
    return dataset, make(str(name))


@contextmanager
def on_data(
    model: str, settings: Mapping[str, Any], data: Dataset, world: World, *, seed: int, episodes: int
) -> Iterator[Setup]:
    """A model of ``MODELS`` on a fixed set, with its preset and these settings beside."""
    found = plan(model, data, device="cpu")
    training, _, own = told_apart(found, settings, Config, steps=None, seed=seed)
    config = found.entry.config(obs_dim=data.obs_dim, action_dim=data.action_dim, **own)
    with begun(found, config, training, out=None, device="cpu", threads=1) as learner:
        test = _test(world, learner, data, found.entry, episodes, seed)
        facts = _facts(found, learner, world, episodes) | {"transitions": len(data)}
        yield Setup(Metered(learner), data, training, test.returns, test.random, facts=facts)


@contextmanager
def by_practice(
    model: str,
    settings: Mapping[str, Any],
    world: World,
    folder: Path | None,
    *,
    seed: int,
    episodes: int,
    adjust: Callable[[PriorFeaturesLearner], None] | None = None,
) -> Iterator[Setup]:
    """A model that practises in the world; ``adjust`` may change what it practises for."""
    found = plan_online(model, world.name, device="cpu")
    training, practice, own = told_apart(found, settings, PracticeConfig, steps=None, seed=seed)
    config = found.entry.config(obs_dim=world.layout.obs_dim, action_dim=world.action_dim, **own)
    with begun(found, config, training, out=None, device="cpu", threads=1) as learner:
        assert isinstance(learner, PriorFeaturesLearner)
        if adjust is not None:
            adjust(learner)
        with practising(learner, world, practice, training, folder) as (feed, spent):

            def test() -> ReturnEvaluation:
                """Prompts come from what was visited so far."""
                return _test(world, learner, feed.prompt_sample(seed), found.entry, episodes, seed)

            facts = _facts(found, learner, world, episodes) | {"practice": practice.model_dump(mode="json")}
            yield Setup(
                Metered(learner, spent),
                feed.begun,
                training,
                lambda: test().returns(),
                lambda: test().random(),
                feed,
                practice.updates,
                facts,
            )


@contextmanager
def practising(
    learner: Any, world: World, practice: PracticeConfig, training: TrainConfig, folder: Path | None
) -> Iterator[tuple[Practice, float]]:
    """The feed of a learner that practises, and what its first steps at random cost in CPU seconds."""
    place, before = None if folder is None else folder / FOLDER, time.process_time()
    with closing(Practice(learner, world, practice, folder=place, seed=training.seed)) as feed:
        yield feed, time.process_time() - before


def _test(
    world: World,
    learner: NetworkLearner,
    data: Dataset | Mapping[str, Tensor],
    entry: Pretraining,
    episodes: int,
    seed: int,
) -> ReturnEvaluation:
    prompt: Any = entry.prompt_of(learner.model)
    return ReturnEvaluation(world, learner, data, episodes=episodes, seed=seed, prompt=prompt)


def _facts(plan: Plan, learner: NetworkLearner, world: World, episodes: int) -> dict[str, Any]:
    facts = {"preset": plan.preset, "world": world.name, "episodes": episodes}
    return facts | {"prompt": plan.entry.prompt_of(learner.model)}
