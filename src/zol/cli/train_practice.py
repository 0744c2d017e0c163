"""``zol train NAME`` of models that practise in a world: ``--world`` instead of ``--data``."""

from collections.abc import Callable
from pathlib import Path

from zol.cli.train import flags, in_a_world
from zol.collect.practice import PracticeConfig
from zol.common.errors import DataError
from zol.train import TrainConfig
from zol.train.acting import of_preset
from zol.train.planning import Plan
from zol.train.practice import execute_practice
from zol.train.pretraining import EPISODES
from zol.worlds import make


def practice_command(found: Plan) -> tuple[Callable[..., None], str]:
    """The command whose defaults are those of the plan, and what it says of itself."""
    Settings = flags(found.entry.config)

    def command(
        out: Path,
        world: str | None = None,
        preset: str = "auto",
        training: TrainConfig = found.training,
        practice: PracticeConfig = of_preset(found, PracticeConfig),  # noqa: B008
        model: Settings = Settings(**found.settings),  # type: ignore[valid-type]  # noqa: B008
        episodes: int = EPISODES,
        device: str = "auto",
        threads: int = 0,
    ) -> None:
        """Pretrain a model in a world.

        Args:
            out: folder of the run; the finished checkpoint is in it, what was visited in its folder practice
            world: name of the world to practise in
            preset: cpu trains on one core
            training: the loop
            practice: how it acts while it learns
            model: the networks and their losses; --learning-rate sets all rates unless the others are given
            episodes: test episodes per task, every --eval-every steps; 0 tests nothing
            device: auto, cpu, cuda, cuda:1 …, mps
            threads: of torch on the CPU; 0 chooses
        """
        del preset  # it made the plan
        if world is None:
            raise DataError(f"{found.entry.name} practises in a world: --world NAME (zol worlds list)")
        execute_practice(
            found,
            make(world),
            out=out,
            training=training,
            settings=model.model_dump(),  # type: ignore[attr-defined]
            practice=practice,
            episodes=episodes,
            device=device,
            threads=threads,
        )

    return command, in_a_world(found)
