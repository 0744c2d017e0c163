"""``zol train NAME`` of models that act in a world while they learn: ``--world`` and ``--demonstrations``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tyro

from zol.cli import run_file
from zol.cli.options import number
from zol.cli.train import flags, in_a_world
from zol.collect.online import OnlineConfig
from zol.common.errors import DataError
from zol.train import TrainConfig
from zol.train.acting import of_preset, plan_online
from zol.train.online import execute_online
from zol.train.planning import Plan
from zol.worlds import make


def online_command(name: str, words: Sequence[str]) -> tuple[Callable[..., None], str]:
    """The command whose defaults are those that the words decide, and what it says of itself."""
    typed = run_file.expanded(f"train {name}", words)
    found, _ = tyro.cli(
        _first_words, prog=f"zol train {name}", args=typed, return_unknown_args=True, add_help=False
    )
    if found.pop("practise") is not None:
        raise DataError(
            f"--practise is for models that learn from data, and {name} acts in its world anyway: --world"
        )
    planned = plan_online(name, **found)
    if planned.entry.online == "practice":
        from zol.cli.train_practice import practice_command

        return practice_command(planned)
    return _train(planned)


def _first_words(
    world: str | None = None,
    preset: str = "auto",
    device: str = "auto",
    learning_rate: str | None = None,
    practise: str | None = None,
) -> dict[str, Any]:
    """What decides the defaults of all other words, and one that belongs to other models."""
    rate = None if learning_rate is None else number("learning-rate", learning_rate)
    own = {"world": world, "preset": preset, "device": device, "learning_rate": rate}
    return own | {"practise": practise}


def _train(found: Plan) -> tuple[Callable[..., None], str]:
    Settings = flags(found.entry.config)

    def command(
        out: Path,
        world: str | None = None,
        demonstrations: Path | None = None,
        preset: str = "auto",
        training: TrainConfig = found.training,
        online: OnlineConfig = of_preset(found, OnlineConfig),  # noqa: B008
        model: Settings = Settings(**found.settings),  # type: ignore[valid-type]  # noqa: B008
        episodes: int = 0,
        device: str = "auto",
        threads: int = 0,
    ) -> None:
        """Pretrain a model in a world.

        Args:
            out: folder of the run; the finished checkpoint is in it, what was visited in its folder replay
            world: name of the world to act in
            demonstrations: folder of a set of states to stay near (zol demonstrate records one)
            preset: cpu trains on two cores; paper has the published settings of the humanoid; auto is paper
                if there are such settings and a GPU, else cpu
            training: the loop
            online: how it acts while it learns
            model: the networks and their losses; --learning-rate sets all rates unless the others are given
            episodes: test episodes per task, every --eval-every steps, beside tracking; 0 tests nothing
            device: auto, cpu, cuda, cuda:1 …, mps
            threads: of torch on the CPU; 0 chooses
        """
        del preset  # it made the plan
        if world is None:
            raise DataError(
                f"{found.entry.name} acts in a world while it learns: --world NAME (zol worlds list)"
            )
        execute_online(
            found,
            make(world),
            demonstrations,
            out=out,
            training=training,
            settings=model.model_dump(),  # type: ignore[attr-defined]
            online=online,
            episodes=episodes,
            device=device,
            threads=threads,
        )

    return command, in_a_world(found)
