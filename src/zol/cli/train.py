"""``zol train NAME``: the defaults come from a preset and from the data, every flag overrides one of them.

Which defaults to show depends on some of the words themselves (the data's world, the preset, a checkpoint to
start from), so the words are read twice: first for those alone, then, with the defaults they decide, for all.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pydantic
import torch
import tyro

from zol.cli import run_file
from zol.cli.options import number
from zol.collect.mixed_practice import MixedPracticeConfig
from zol.common.config import Config
from zol.common.device import choose_threads
from zol.common.errors import DataError
from zol.data import Dataset
from zol.models.settings import FROM_DATA, PretrainingConfig
from zol.train import TrainConfig
from zol.train.acting import of_preset
from zol.train.learned_world import WorldConfig, add_learned_world
from zol.train.planning import Plan, entry_of, plan
from zol.train.pretraining import EPISODES, execute
from zol.worlds import make

Start = Annotated[str | None, tyro.conf.arg(name="from")]
Practise = Annotated[str | None, tyro.conf.arg(metavar="WORLD")]


def train(name: str, words: Sequence[str]) -> None:
    """Run ``zol train NAME`` with the words that follow."""
    command, description = train_command(name, words)
    run_file.run(command, f"train {name}", words, description=description)


def train_command(name: str, words: Sequence[str]) -> tuple[Callable[..., None], str]:
    """The command whose defaults are those that the words decide, and what it says of itself."""
    if entry_of(name).online:
        from zol.cli.train_online import online_command

        return online_command(name, words)
    typed = run_file.expanded(f"train {name}", words)
    found, _ = tyro.cli(
        _first_words, prog=f"zol train {name}", args=typed, return_unknown_args=True, add_help=False
    )
    return _train(plan(name, **found))


def _first_words(
    data: Path | None = None,
    preset: str = "auto",
    device: str = "auto",
    start_from: Start = None,
    learning_rate: str | None = None,
) -> dict[str, Any]:
    """What decides the defaults of all other words."""
    return {
        "data": data,
        "preset": preset,
        "device": device,
        "start_from": start_from,
        "learning_rate": None if learning_rate is None else number("learning-rate", learning_rate),
    }


def flags(config: type[PretrainingConfig]) -> Any:
    """Every field of a configuration but those that the data decide, with types, limits and descriptions."""
    fields: dict[str, Any] = {
        name: (_annotated(field), field)
        for name, field in config.model_fields.items()
        if name not in FROM_DATA
    }
    return pydantic.create_model(config.__name__, __base__=Config, **fields)


def _annotated(field: Any) -> Any:
    """The type of a field with what it tells the command line, which pydantic keeps apart."""
    said = [note for note in field.metadata if type(note).__module__.startswith("tyro")]
    return Annotated[field.annotation, *said] if said else field.annotation


def _train(found: Plan) -> tuple[Callable[..., None], str]:
    Settings, acting = flags(found.entry.config), of_preset(found, MixedPracticeConfig)

    def command(
        data: Path,
        out: Path,
        preset: str = "auto",
        start_from: Start = None,
        practise: Practise = None,
        training: TrainConfig = found.training,
        practice: MixedPracticeConfig = acting,
        model: Settings = Settings(**found.settings),  # type: ignore[valid-type]  # noqa: B008
        episodes: int = 0 if found.dataset is not None and found.world_name is None else EPISODES,
        dynamics_steps: int = found.dynamics_steps,
        device: str = "auto",
        threads: int = 0,
    ) -> None:
        """Pretrain a model.

        Args:
            data: folder of a dataset (zol explore, zol data import)
            out: folder of the run; the finished checkpoint is in it
            preset: cpu trains within an hour on two cores; paper has the published settings of the data's
                domain; auto is paper if there are such settings and a GPU, else cpu
            start_from: checkpoint whose network is trained further: a folder, a zoo name, or
                hf://organisation/name
            practise: world in which the model's own policies act while it trains; what they visit joins the
                data, in the run's folder practice. Without it, training is offline
            training: the loop
            practice: how it acts, with --practise
            model: the networks and their losses; --learning-rate sets all rates unless the others are given
            episodes: test episodes per task, every --eval-every steps, on the data's world; 0 tests nothing,
                which is the default where the data name no world
            dynamics_steps: steps of the learned world that is trained next on the same data and stored in the
                checkpoint for zol adapt, which plays latents in it; 0 trains none
            device: auto, cpu, cuda, cuda:1 …, mps
            threads: of torch on the CPU; 0 chooses
        """
        del data, preset, start_from  # they made the plan
        if practise is None and practice != acting:
            raise DataError("some of these settings are for practice: --practise WORLD names a world for it")
        execute(
            found,
            out=out,
            training=training,
            settings=model.model_dump(),  # type: ignore[attr-defined]
            acting=None if practise is None else (make(practise), practice),
            episodes=episodes,
            dynamics_steps=dynamics_steps,
            device=device,
            threads=threads,
        )

    return command, _told(found, "data")


def in_a_world(found: Plan) -> str:
    """What a command that acts in a world says of itself."""
    return _told(found, "world")


def _told(found: Plan, where: str) -> str:
    return (
        f"Pretrain {found.entry.title}; called again, it continues where it stopped. The defaults below are "
        f"those of the preset and of the {where}, as far as they are on the command line."
    )


def dynamics(data: Path, out: Path, config: WorldConfig = WorldConfig(), threads: int = 0) -> None:  # noqa: B008
    """Train a learned world and put it into a checkpoint, for zol adapt, which plays latents in it.

    Args:
        data: folder of the dataset that the checkpoint's model was trained on
        out: folder of the checkpoint; the training run is in its subfolder dynamics
        config: the loop and the networks
        threads: of torch on the CPU; 0 chooses
    """
    torch.set_num_threads(choose_threads(config.batch_size * config.width**2, threads))
    add_learned_world(Dataset.open(data), out, config)
