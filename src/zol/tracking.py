r"""Following motions: one latent per step from the motion's own frames, and how near the body stays to them.

Distances are in standard deviations, so that they mean the same in every world. With σ_k the standard
deviation of column k over all frames of the motions and D columns,

    d(s, m) = √( mean_k ((s_k − m_k)/σ_k)² ):   two unrelated frames are about √2 apart
    distance   mean_t d(s_t, m_t)
    emd        optimal transport between the visited states and the motion's frames: time may slip
    near       share of steps with d(s_t, m_t) ≤ ½

Every motion is followed from its own first simulator state to its end, many motions at once.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor

from zol import prompt
from zol.common.errors import DataError
from zol.common.progress import Ticker
from zol.common.threads import one_torch_thread
from zol.data import Dataset
from zol.data.motion import Motion
from zol.models.base import Model
from zol.schedule import Schedule
from zol.tasks.humenv_metrics import earth_movers_distance
from zol.worlds.base import World

AT_ONCE = 100  # motions that are followed together
NEAR = 0.5
FRAMES = 200  # of each side in an optimal transport, which takes time with the cube of that


def motions_of(dataset: Dataset, limit: int | None = None, steps: int | None = None) -> list[Motion]:
    """The episodes of a set of demonstrations, at most ``limit`` of them, ``steps`` long at most."""
    if "physics" not in dataset.columns:
        raise DataError(
            "these demonstrations hold no simulator states, so a motion's first state cannot be entered: "
            "record them with zol demonstrate"
        )
    names = dataset.provenance.get("names")
    known = names if isinstance(names, list) and len(names) == dataset.episodes else None
    found = []
    for number in range(dataset.episodes if limit is None else min(limit, dataset.episodes)):
        rows = {
            name: np.array(column[: None if steps is None else steps + 1])
            for name, column in dataset.episode(number).items()
            if name in ("obs", "physics")
        }
        name = f"{number}" if known is None else f"{known[number]} {number}"
        obs, physics = (torch.from_numpy(rows[key]) for key in ("obs", "physics"))
        found.append(Motion(name, obs.float(), physics.double()))
    return found


def scale_of(motions: Sequence[Motion]) -> Tensor:
    """σ ``[D]`` of all frames; 1 for columns that never change."""
    spread = torch.cat([motion.obs for motion in motions]).double().std(0, correction=0)
    return torch.where(spread > 1e-8, spread, 1.0).float()


def distance(states: Tensor, frames: Tensor, scale: Tensor) -> Tensor:
    """d between states and frames ``[..., D]``, ``[...]``."""
    return ((states - frames) / scale).square().mean(-1).sqrt()


def scores(visited: Tensor, frames: Tensor, scale: Tensor) -> dict[str, Tensor]:
    """distance, emd and near of states ``[T, D]`` that followed frames ``[T, D]``."""
    d = distance(visited, frames, scale)
    every = max(1, -(-len(visited) // FRAMES))
    thin = [x[::every] / scale / scale.numel() ** 0.5 for x in (visited, frames)]
    return {"distance": d.mean(), "emd": earth_movers_distance(*thin), "near": (d <= NEAR).float().mean()}


@torch.no_grad()
def play(world: World, model: Model, plan: Schedule, physics: Tensor, steps: int) -> Tensor:
    """Observations ``[n, steps, D]`` after each action, from simulator states ``[n, P]``."""
    visited = []
    with one_torch_thread(world.threads is not None):
        states = world.set_physics(physics)
        for step in range(steps):
            obs = states.obs.float()
            states = world.step(model.act(obs, plan(step, obs)))
            visited.append(states.obs.float())
    return torch.stack(visited, dim=1)


def latents_of(model: Model, motion: Motion, window: int) -> Tensor:
    """One latent per step of a motion, ``[T − 1, d]``."""
    return prompt.tracking(model, motion.obs, window)


def follow_all(
    world: World,
    model: Model,
    motions: Sequence[Motion],
    latents: Callable[[Motion], Tensor],
    progress: Progress | None = None,
) -> list[Tensor]:
    """What is visited when each motion's latents are followed from its first state, ``[T − 1, D]`` each."""
    bar = Ticker(progress, "motions", len(motions))
    visited: list[Tensor] = []
    for begin in range(0, len(motions), AT_ONCE):
        group = motions[begin : begin + AT_ONCE]
        steps = [len(motion.obs) - 1 for motion in group]
        table = torch.stack([_padded(latents(motion), max(steps)) for motion in group], 1)  # [T, n, d]

        def plan(step: int | Tensor, obs: Tensor | None = None, table: Tensor = table) -> Tensor:
            return table[step]

        starts = torch.stack([motion.physics[0] for motion in group])
        seen = play(world, model, plan, starts, max(steps))
        visited += [seen[i, : steps[i]] for i in range(len(group))]
        bar.advance(len(group))
    return visited


def track(
    world: World,
    model: Model,
    motions: Sequence[Motion],
    *,
    window: int = 8,
    scale: Tensor | None = None,
    latents: Callable[[Motion], Tensor] | None = None,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Scores ``[M]`` of following each motion by its own latents, or by those that ``latents`` gives."""
    if not motions:
        raise DataError("there are no motions to follow")
    scale = scale_of(motions) if scale is None else scale
    chosen = latents or (lambda motion: latents_of(model, motion, window))
    visited = follow_all(world, model, motions, chosen, progress)
    rows = [scores(seen, motion.obs[1:], scale) for seen, motion in zip(visited, motions, strict=True)]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _padded(latents: Tensor, steps: int) -> Tensor:
    """Latents ``[T, d]`` continued by the last one."""
    return torch.cat([latents, latents[-1:].expand(steps - len(latents), -1)])
