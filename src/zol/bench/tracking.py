"""``zol bench tracking``: do a model's latents reproduce motions that they are shown?

Every motion is followed from its first state, by one latent per step from its own frames (zol.tracking). The
controls hold one random latent of the same model for the whole motion, and act at random.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor

from zol import tracking
from zol.bench.benchmark import Benchmark
from zol.common.errors import ZolError
from zol.common.files import write_bytes
from zol.common.progress import progress_bar
from zol.common.provenance import of_numbers
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.data.motion import Motion
from zol.models.base import Model
from zol.report import print_table
from zol.session import load
from zol.worlds import make
from zol.worlds.base import World

OWN, RANDOM_LATENT, RANDOM_ACTION = "its latents", "one random latent", "random actions"


class Chance:
    """A model that acts at random, whatever it is asked for."""

    def __init__(self, action_dim: int, seed: int) -> None:
        self.action_dim, self.generator = action_dim, torch.Generator().manual_seed(seed)

    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        """Uniform actions."""
        return 2 * torch.rand(*obs.shape[:-1], self.action_dim, generator=self.generator) - 1


def tracking_rows(
    world: World, model: Model, motions: Sequence[Motion], *, window: int, seed: int = 0
) -> dict[str, dict[str, Tensor]]:
    """Scores ``[M]`` of a model's own latents and of both controls."""
    generator = torch.Generator().manual_seed(seed)
    held = {m.name: model.project(torch.randn(model.z_dim, generator=generator)) for m in motions}

    def hold(motion: Motion) -> Tensor:
        return held[motion.name].expand(len(motion.obs) - 1, -1)

    chance: Model = Chance(world.action_dim, seed)  # type: ignore[assignment]
    return {
        OWN: tracking.track(world, model, motions, window=window),
        RANDOM_LATENT: tracking.track(world, model, motions, latents=hold),
        RANDOM_ACTION: tracking.track(world, chance, motions, latents=hold),
    }


def tracking_bench(
    models: tyro.conf.Positional[tuple[Path, ...]],
    demonstrations: Path,
    motions: int | None = None,
    steps: int | None = None,
    window: int = 8,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """How near models stay to motions that they are asked to reproduce, beside random latents and actions.

    Distances are in standard deviations of the motions' frames: unrelated frames are about 1.4 apart.

    Args:
        models: checkpoint folders or names of the zoo, all of the world of the demonstrations
        demonstrations: folder of a set of motions (zol demonstrate)
        motions: only the first so many
        steps: only the first so many steps of each
        window: frames ahead that a latent averages
        seed: of the controls
        out: file for the scores of every motion, with command, commit and hardware (.json)
    """
    if not models:
        raise ZolError("no model to test: give checkpoint folders (zol train writes them)")
    data = Dataset.open(demonstrations)
    name = data.provenance.get("world")
    if not isinstance(name, str):
        raise ZolError(f"{demonstrations} does not name its world: record it with zol demonstrate")
    world, clips = make(name), tracking.motions_of(data, motions, steps)
    if data.obs_dim != world.layout.obs_dim:
        raise ZolError(f"{demonstrations} has {data.obs_dim} columns, {name} has {world.layout.obs_dim}")
    rows, console = [], terminal()
    raw: dict[str, dict[str, Any]] = {}
    with progress_bar() as progress:
        bar = progress.add_task("models", total=len(models))
        for path in models:
            model = load(path).model
            if model.obs_dim != world.layout.obs_dim or model.action_dim != world.action_dim:
                raise ZolError(
                    f"{path} has {model.obs_dim} observations and {model.action_dim} actions, {name} has "
                    f"{world.layout.obs_dim} and {world.action_dim}: it was trained in another world"
                )
            found = tracking_rows(world, model, clips, window=window, seed=seed)
            raw[str(path)] = {kind: {k: v.tolist() for k, v in each.items()} for kind, each in found.items()}
            shown = [OWN, RANDOM_LATENT] if path != models[-1] else list(found)
            rows += [
                [path.name if kind != RANDOM_ACTION else "", kind, *cells(found[kind])] for kind in shown
            ]
            progress.advance(bar)
    header = ["model", "follows", "distance", "emd", "near"]
    note = "mean over motions ± 1.96 standard errors; near: share of steps within half a standard deviation"
    print_table(console, (header, rows), f"{name}: tracking {len(clips)} motions", caption=note)
    if out is not None:
        told: dict[str, Any] = {"world": name, "demonstrations": data.fingerprint()}
        told |= {"motions": [clip.name for clip in clips]}
        told |= {"window": window, "seed": seed, **of_numbers(), "scores": raw}
        write_bytes(out, (json.dumps(told, indent=1) + "\n").encode())
        console.print(f"the scores of every motion are in {out}", soft_wrap=True)


def cells(scores: Mapping[str, Tensor]) -> list[str]:
    """Means over motions with their intervals."""
    found = []
    for values in scores.values():
        error = 1.96 * float(values.std()) / len(values) ** 0.5 if len(values) > 1 else float("nan")
        found.append(f"{float(values.mean()):.3f} ± {error:.3f}")
    return found


TRACKING = Benchmark(tracking_bench)
