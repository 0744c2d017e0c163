"""``zol train fb``: the defaults come from a preset and from the data, every flag overrides one of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pydantic
import torch
from rich.console import Console

from zol import checkpoint
from zol.common import parallel
from zol.common.config import Config
from zol.common.device import choose_device, choose_threads
from zol.common.errors import DataError, ZolError
from zol.data import Dataset
from zol.fields import Layout
from zol.models.fb import FB, FBConfig
from zol.models.fb_learner import FBLearner
from zol.train import TrainConfig, presets, pretrain
from zol.train.learned_world import WorldConfig, learn_world
from zol.train.presets import Preset
from zol.train.returns import ReturnTest
from zol.worlds import ALIASES, make
from zol.worlds.base import World

EPISODES = 10  # per task and test, where the data name a world
FROM_DATA = ("obs_dim", "action_dim")
RATES = ("learning_rate", "backward_learning_rate", "actor_learning_rate")
# Every field of FBConfig but those that the data decide, with the same types, limits and descriptions.
_fields: dict[str, Any] = {
    name: (field.annotation, field) for name, field in FBConfig.model_fields.items() if name not in FROM_DATA
}
Settings: Any = pydantic.create_model("Settings", __base__=Config, **_fields)


def fb(words: Sequence[str]) -> Callable[..., None]:
    """The command whose defaults suit these words: their preset, the world of their data, their device."""
    preset = _given(words, "preset") or "auto"
    world = _world_name(_given(words, "data"))
    gpu = torch.cuda.is_available() and (_given(words, "device") or "auto") != "cpu"
    if preset not in ("cpu", "paper"):
        preset = presets.choose("auto", world, gpu=gpu)
    values = presets.settings("paper" if preset == "paper" else "cpu", world)
    values.setdefault("discount", _discount(world))
    rate = _given(words, "learning-rate")
    if rate is not None:  # one rate for all networks, unless theirs are given too
        values |= dict.fromkeys(RATES, _number(rate))
    loop = TrainConfig(**{name: v for name, v in values.items() if name in TrainConfig.model_fields})
    sizes = Settings(**{name: v for name, v in values.items() if name in Settings.model_fields})
    chosen = preset

    def train_fb(
        data: Path,
        out: Path,
        preset: Preset = "auto",
        training: TrainConfig = loop,
        model: Settings = sizes,
        episodes: int = EPISODES if world is not None else 0,
        dynamics_steps: int = values.get("dynamics_steps", 0),
        device: str = "auto",
        threads: int = 0,
    ) -> None:
        """Pretrain forward–backward representations; called again, it continues where it stopped.

        The defaults below are those of the preset and of the data, as far as they are on the command line.

        Args:
            data: folder of a dataset (zol explore, zol data import)
            out: folder of the run; the finished checkpoint is in it
            preset: cpu trains within an hour on two cores; paper has the published settings of the data's
                domain; auto is paper if there is a GPU, else cpu
            training: the loop
            model: the networks and their losses; --learning-rate sets all three rates unless the others are
                given
            episodes: test episodes per task, every --eval-every steps, on the data's world; 0 tests nothing
            dynamics_steps: steps of the learned world that is trained next on the same data and stored in the
                checkpoint for zol adapt --method rehearse; 0 trains none
            device: auto, cpu, cuda, cuda:1 …, mps
            threads: of torch on the CPU; 0 chooses
        """
        del preset  # its values arrived as the defaults of training and model
        with parallel.processes(choose_device(device)) as place:
            work = training.batch_size // parallel.size() * model.hidden**2
            torch.set_num_threads(choose_threads(work, threads))
            dataset = Dataset.open(data)
            _train(dataset, out, training, model, episodes, place, chosen)
            if dynamics_steps:
                learn(dataset, out, WorldConfig(steps=dynamics_steps, seed=training.seed))

    return train_fb


def dynamics(data: Path, out: Path, config: WorldConfig = WorldConfig(), threads: int = 0) -> None:  # noqa: B008
    """Train a learned world and put it into a checkpoint, for zol adapt --method rehearse.

    Args:
        data: folder of the dataset that the checkpoint's model was trained on
        out: folder of the checkpoint; the training run is in its subfolder dynamics
        config: the loop and the networks
        threads: of torch on the CPU; 0 chooses
    """
    dataset, size = Dataset.open(data), checkpoint.load(out).model
    if (dataset.obs_dim, dataset.action_dim) != (size.obs_dim, size.action_dim):
        raise DataError(
            f"the data have {dataset.obs_dim} observation and {dataset.action_dim} action columns, the model "
            f"in {out} has {size.obs_dim} and {size.action_dim}: was it trained on other data?"
        )
    torch.set_num_threads(choose_threads(config.batch_size * config.width**2, threads))
    learn(dataset, out, config)


def learn(dataset: Dataset, out: Path, config: WorldConfig) -> None:
    """Train a learned world beside the model in ``out`` and say how good it is."""
    name = dataset.provenance.get("world")
    world = make(str(name)) if name is not None else None
    layout = world.layout if world is not None else Layout.plain(dataset.obs_dim)
    learned = learn_world(dataset, layout, config, out)
    console = Console(quiet=not parallel.is_main(), soft_wrap=True, highlight=False)
    console.print(
        f"learned world in {out}: one step misses {learned.one_step_error():.1%} of the variance of changes"
    )
    for task, trust in zip(
        world.tasks if world else (),
        learned.reward_correlation(list(world.tasks.values()), layout).tolist() if world else (),
        strict=True,
    ):
        console.print(f"  {task}: imagined and real rewards of held-out stretches correlate {trust:.2f}")


def _train(
    dataset: Dataset,
    out: Path,
    training: TrainConfig,
    sizes: Any,
    episodes: int,
    device: torch.device,
    preset: str,
) -> None:
    console = Console(quiet=not parallel.is_main(), soft_wrap=True, highlight=False)
    world = _tested_world(dataset, episodes)
    settings = FBConfig(obs_dim=dataset.obs_dim, action_dim=dataset.action_dim, **sizes.model_dump())
    model = FB(settings, torch.Generator().manual_seed(training.seed)).to(device)
    facts: dict[str, Any] = {"preset": preset, "transitions": len(dataset), "episodes": episodes}
    facts |= {"world": dataset.provenance["world"]} if "world" in dataset.provenance else {}
    where = f"{device} with {torch.get_num_threads()} threads" if device.type == "cpu" else str(device)
    console.print(
        f"preset {preset}: {sum(p.numel() for p in model.parameters()):,} weights, {len(dataset):,} "
        f"transitions, batch {training.batch_size}, {training.steps:,} steps on {where}"
    )
    test = None
    if world is not None:
        test = ReturnTest(world, model, dataset, episodes=episodes, seed=training.seed)
        if test.unrewarded:
            console.print(f"not tested, because the sample holds no reward: {', '.join(test.unrewarded)}")
        test = test if test.evidence.tasks else None
    learner = FBLearner(model, autocast=training.autocast, compiled=training.compiled)
    pretrain(learner, dataset, training, out, facts=facts, on_eval=test)
    console.print(f"the checkpoint is in {out}")


def _tested_world(dataset: Dataset, episodes: int) -> World | None:
    """The world to test in, or None if nothing is to be tested; known before any time is spent."""
    if episodes == 0:
        return None
    name = dataset.provenance.get("world")
    if name is None:
        raise DataError(
            "the data do not name the world they are from, so nothing can be tested: --episodes 0"
        )
    try:
        world = make(str(name))
    except ZolError as error:
        raise DataError(f"{error}; --episodes 0 trains without testing") from error
    if (world.layout.obs_dim, world.action_dim) != (dataset.obs_dim, dataset.action_dim):
        raise DataError(
            f"the data have {dataset.obs_dim} observation and {dataset.action_dim} action columns, their "
            f"world '{name}' has {world.layout.obs_dim} and {world.action_dim}: "
            "--episodes 0 trains without testing"
        )
    return world


def _given(words: Sequence[str], name: str) -> str | None:
    """The value of ``--name`` among the words of a command."""
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == f"--{name}":
            return value if equals else next(iter(words[place + 1 : place + 2]), None)
    return None


def _world_name(data: str | None) -> str | None:
    name = None if data is None else Dataset.open(data).provenance.get("world")
    return None if name is None else ALIASES.get(str(name), str(name))


def _discount(world: str | None) -> float:
    """The world's own, if it can be asked."""
    try:
        return FBConfig.model_fields["discount"].default if world is None else make(world).discount
    except ZolError:
        return float(FBConfig.model_fields["discount"].default)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ZolError(f"--learning-rate {text} is not a number") from None
