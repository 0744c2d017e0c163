"""A learned world: a dynamics ensemble, where its rollouts begin, and real experience to judge it by.

It travels inside a checkpoint as one file. Besides the ensemble it holds full start states, from which
imagined rollouts begin, and held-out stretches of real experience. Replaying the actions of a stretch from
its first state shows how well imagined rewards follow real ones, for any task, as soon as the task is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.common.config import ConfigError
from zol.common.errors import CheckpointError, DataError
from zol.common.reading import parse_json
from zol.common.tensors import assign, check_finite, open_tensors, shapes_of, write_tensors
from zol.data import Dataset
from zol.fields import Layout, States
from zol.imagination.dynamics import Dynamics, DynamicsConfig, full_state
from zol.tasks import Task


@dataclass(frozen=True, repr=False)
class LearnedWorld:
    """Dynamics, full start states, and G held-out stretches of L real steps each.

    A full state ``[X]`` is the observation followed by the hidden fields that rewards may ask for.
    """

    dynamics: Dynamics
    starts: Tensor  # [S, X]
    states: Tensor  # of the stretches, [G, L + 1, X]
    actions: Tensor  # of the stretches, [G, L, A]

    def __repr__(self) -> str:
        return (
            f"LearnedWorld({self.dynamics.members} networks; one step misses {self.one_step_error():.1%} of "
            f"the variance of changes; {len(self.starts)} start states)"
        )

    @staticmethod
    def gather(
        dynamics: Dynamics,
        dataset: Dataset,
        layout: Layout,
        generator: torch.Generator,
        *,
        held_out: int,
        starts: int = 256,
        stretches: int = 128,
        length: int = 50,
    ) -> "LearnedWorld":
        """Draw start states, and stretches of the last ``held_out`` episodes, which training must not use.

        The one-step error on the stretches is recorded in the dynamics.
        """
        fields = dynamics.config.hidden_fields
        obs, physics = dataset.simulated_starts(starts, generator)
        first = full_state(States(obs, layout, physics=physics), fields)
        picks = _stretches(dataset, held_out, stretches, length, generator)
        batch = dataset.take(picks.reshape(-1))
        before = full_state(batch.departed(layout), fields).reshape(*picks.shape, -1)
        last = full_state(batch.arrived(layout), fields).reshape(*picks.shape, -1)[:, -1:]
        states, actions = torch.cat([before, last], dim=1), batch.action.reshape(*picks.shape, -1)
        record_one_step_error(dynamics, states, actions)
        return LearnedWorld(dynamics.eval(), first, states, actions)

    def replay(self) -> Tensor:
        """The states each member imagines when it repeats the actions of the stretches, ``[P, G, L, X]``."""
        x = self.states[:, 0].expand(self.dynamics.members, *self.states[:, 0].shape)
        seen = []
        with torch.no_grad():
            for action in self.actions.unbind(1):
                x = self.dynamics(x, action.expand(self.dynamics.members, *action.shape))
                seen.append(x)
        return torch.stack(seen, dim=2)

    def reward_correlation(self, tasks: Sequence[Task], layout: Layout) -> Tensor:
        """Correlation between imagined and real mean reward of the stretches, ``[T]``.

        This is what a search in the learned world relies on: that more imagined reward means more real
        reward. A task whose reward does not vary over the stretches gets the mean correlation of the state
        columns instead.
        """
        played = self.replay()  # [P, G, L, X]
        actions = self.actions.expand(self.dynamics.members, *self.actions.shape)
        imagined = rewards(self.dynamics, tasks, layout, played, actions).mean((1, 3))  # [T, G]
        real = rewards(self.dynamics, tasks, layout, self.states[:, 1:], self.actions).mean(-1)
        states = correlation(played.mean((0, 2)).T, self.states[:, 1:].mean(1).T).mean()
        varies = real.std(-1) > 1e-6
        return torch.where(varies, correlation(imagined, real), states)

    def one_step_error(self) -> float:
        """Share of the variance of one-step changes that predictions miss, averaged over columns."""
        return float(self.dynamics.error.square().mean())

    def median_one_step_error(self) -> float:
        """The same share of the median column, which a few columns of noise (contact sensors) do not move."""
        return float(self.dynamics.error.square().median())

    def save(self, path: Path) -> None:
        """Write everything into one safetensors file."""
        tensors = {f"net.{name}": value for name, value in self.dynamics.state_dict().items()}
        tensors |= {"starts": self.starts, "states": self.states, "actions": self.actions}
        for name, tensor in tensors.items():
            check_finite(tensor, f"'{name}' of the learned world for {path}")
        write_tensors(path, tensors, {"config": self.dynamics.config.model_dump_json()})

    @staticmethod
    def load(path: Path) -> "LearnedWorld":
        """Read what :meth:`save` wrote; shapes are compared with its settings before anything is read."""
        with open_tensors(path) as file:
            config = _settings(file.metadata, path)
            with torch.device("meta"):
                dynamics = Dynamics(config)
            net = {f"net.{name}": shape for name, shape in shapes_of(dynamics).items()}
            file.require(net | _experience(file.shapes, config, path))
            found = {name: file.read(name, torch.float32, own=name in net) for name in file.shapes}
        assign(dynamics, {n.removeprefix("net."): found[n] for n in net}, path)
        return LearnedWorld(dynamics.eval(), found["starts"], found["states"], found["actions"])


def _settings(header: Mapping[str, str], path: Path) -> DynamicsConfig:
    """The configuration in a file's header: JSON, which has lists where the configuration has tuples."""
    if "config" not in header:
        raise CheckpointError(f"{path} lacks 'config' in its header: it is not a learned world of zol")
    facts = parse_json(header["config"], f"'config' of {path}")
    names = facts.get("hidden_fields")
    try:
        return DynamicsConfig(
            **(facts | {"hidden_fields": tuple(names) if isinstance(names, list) else names})
        )
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _experience(
    shapes: Mapping[str, tuple[int, ...]], config: DynamicsConfig, path: Path
) -> dict[str, tuple[int, ...]]:
    """The shapes of start states and stretches: their columns follow from the settings."""
    starts, states = (shapes.get(name, ()) for name in ("starts", "states"))
    if len(starts) != 2 or len(states) != 3 or 0 in (*starts, *states) or states[1] < 2:
        raise CheckpointError(
            f"{path} holds no start states [S, X] and stretches [G, L + 1, X], but {list(starts)} and "
            f"{list(states)}: it is not a learned world of zol"
        )
    own = config.state_dim
    stretches, steps = states[0], states[1] - 1
    return {
        "starts": (starts[0], own),
        "states": (stretches, steps + 1, own),
        "actions": (stretches, steps, config.action_dim),
    }


def rewards(
    dynamics: Dynamics, tasks: Sequence[Task], layout: Layout, states: Tensor, actions: Tensor
) -> Tensor:
    """Rewards ``[T, ...]`` of full states ``[..., X]``, each with the action ``[..., A]`` that led to it."""
    own = dynamics.config.obs_dim
    known: Mapping[str, Tensor] = {
        name: states[..., own + k] for k, name in enumerate(dynamics.config.hidden_fields)
    }
    seen = States(states[..., :own], layout, action=actions, known=known)
    return torch.stack([task(seen).to(states.dtype) for task in tasks])


def correlation(x: Tensor, y: Tensor) -> Tensor:
    """Pearson correlation along the last dimension; 0 where either side is constant."""
    x, y = (v - v.mean(-1, keepdim=True) for v in (x, y))
    scale = x.norm(dim=-1) * y.norm(dim=-1)
    return torch.where(scale > 1e-12, (x * y).sum(-1) / scale.clamp_min(1e-12), 0.0)


@torch.no_grad()
def record_one_step_error(dynamics: Dynamics, states: Tensor, actions: Tensor) -> None:
    """Store the root mean square one-step error of every column, in units of its usual change."""
    before, after = states[:, :-1].flatten(0, 1), states[:, 1:].flatten(0, 1)
    missed = dynamics.changes(before, actions.flatten(0, 1)) - (after - before) / dynamics.change
    dynamics.error.copy_(missed.square().mean((0, 1)).sqrt())


def _stretches(
    dataset: Dataset, held_out: int, count: int, length: int, generator: torch.Generator
) -> NDArray[np.int64]:
    """Step numbers ``[count, length]``, each row within one of the last ``held_out`` episodes."""
    if not 0 < held_out <= dataset.episodes:
        raise DataError(f"{held_out} episodes to judge by cannot be taken from a set of {dataset.episodes}")
    length = min(length, int(dataset.lengths[-held_out:].max()))
    starts = dataset.window_starts(length, last=held_out)
    picks = torch.randint(len(starts), (count,), generator=generator).numpy()
    return np.asarray(starts[picks][:, None] + np.arange(length), dtype=np.int64)
