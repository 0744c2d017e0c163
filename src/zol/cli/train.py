"""``zol train``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
import tyro
from rich.console import Console

from zol.adapt import Evidence, prompted
from zol.data import Dataset
from zol.errors import DataError
from zol.models.fb import FB, FBConfig, FBLearner
from zol.provenance import command
from zol.rollout import evaluate
from zol.tasks import States
from zol.train import Hook, TrainConfig, pretrain, prompt_sample
from zol.worlds import make
from zol.worlds.base import World


def train(
    model: tyro.conf.Positional[Literal["fb"]],
    data: Path,
    out: Path,
    config: TrainConfig = TrainConfig(),  # noqa: B008
    z_dim: int = 50,
    hidden: int = 256,
    backward_hidden: int = 256,
    discount: float | None = None,
    learning_rate: float = 1e-4,
    target_rate: float = 0.01,
    orthonormality: float = 1.0,
    normalise_obs: bool = False,
    episodes: int = 0,
) -> None:
    """Pretrain a model on reward-free data; called again, it continues where it stopped.

    Args:
        model: what to train
        data: folder of a dataset (zol explore, zol data import)
        out: folder of the run; the finished checkpoint is in it
        config: the training loop
        z_dim: size of a latent
        hidden: width of F and of the actor
        backward_hidden: width of B
        discount: γ; the world's own if it is known, else 0.98
        learning_rate: of all networks
        target_rate: how fast targets follow
        orthonormality: weight of the orthonormality loss
        normalise_obs: normalise observations by running statistics
        episodes: test episodes per task at every log line, on the data's world; 0 tests nothing
    """
    del model  # one kind so far; the argument is there so that commands keep working when others join
    dataset = Dataset.open(data)
    name = dataset.provenance.get("world")
    world = make(str(name)) if name is not None else None
    settings = FBConfig(
        obs_dim=dataset.obs_dim,
        action_dim=dataset.action_dim,
        z_dim=z_dim,
        hidden=hidden,
        backward_hidden=backward_hidden,
        discount=discount if discount is not None else (world.discount if world else 0.98),
        learning_rate=learning_rate,
        backward_learning_rate=learning_rate,
        actor_learning_rate=learning_rate,
        target_rate=target_rate,
        orthonormality=orthonormality,
        normalise_obs=normalise_obs,
    )
    if episodes and world is None:
        raise DataError(f"{data} does not say which world it is from, so nothing can be tested: --episodes 0")
    learner = FBLearner(FB(settings, torch.Generator().manual_seed(config.seed)))
    test = _tester(world, learner.model, dataset, episodes, config.seed) if world and episodes else None
    facts = {"world": name, "command": command()}
    found = {key: value for key, value in facts.items() if value is not None}
    pretrain(learner, dataset, config, out, facts=found, on_log=test)
    Console().print(f"the checkpoint is in {out}", soft_wrap=True)


def _tester(world: World, model: FB, dataset: Dataset, episodes: int, seed: int) -> Hook:
    """Mean return of plain FB on every task of the world, from the same start states each time."""
    sample = prompt_sample(dataset, seed)
    states = States(sample["obs"], world.layout, sample["action"], sample.get("physics"))
    labelled = Evidence.label(states, world.tasks, sample["starts"][:256], dataset.fingerprint())
    evidence, silent = labelled.audible()
    if silent:
        Console().print(
            f"not tested, because the sample holds no reward: {', '.join(silent)}", soft_wrap=True
        )

    def test(step: int) -> Mapping[str, float]:
        latents = prompted(model, evidence).latents()
        generator = torch.Generator().manual_seed(seed)
        returns = evaluate(world, model, latents, episodes=episodes, generator=generator).returns.mean(1)
        return {f"return/{task}": float(r) for task, r in zip(evidence.tasks, returns, strict=True)}

    return test
