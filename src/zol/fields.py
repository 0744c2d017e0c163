"""What a column means: named fields of an observation, and batches of states that are read by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from zol.common.errors import DataError, unknown_name


@dataclass(frozen=True)
class Field:
    """A named slice of the observation: ``obs[..., start : start + size]``."""

    name: str
    start: int
    size: int = 1
    unit: str = ""
    meaning: str = ""


@dataclass(frozen=True)
class Layout:
    """What every observation column means, and quantities derived from them.

    ``derived`` holds functions of :class:`States`, such as a centre-of-mass speed, that a user can read
    like any other field. ``hidden`` names those that observations alone do not determine: they need the
    simulator's state, or somebody who keeps track of them (see ``States.known``).
    """

    obs_dim: int
    fields: tuple[Field, ...]
    derived: Mapping[str, Callable[["States"], Tensor]] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Every name that ``states[name]`` accepts."""
        return [f.name for f in self.fields] + list(self.derived)

    def find(self, name: str) -> Field | None:
        """The stored field of that name, or None."""
        return next((f for f in self.fields if f.name == name), None)

    @staticmethod
    def plain(obs_dim: int) -> "Layout":
        """A layout for observations of which nothing is known: one field called ``obs``."""
        return Layout(obs_dim, (Field("obs", 0, obs_dim),))


@dataclass(frozen=True)
class States:
    """A batch of states as a reward sees them; leading dimensions are free.

    ``action`` is the action that *led to* the state; ``physics`` is the simulator's own state. Both are
    optional, because data sets and imagined rollouts may not have them. ``known`` holds values of derived
    fields that are known by other means, such as a prediction of a learned model. ``terminated`` marks
    states in which an episode is over (a fall, a goal that ends it); without it, none of them is terminal.
    Running out of time does not make a state terminal.
    """

    obs: Tensor  # [..., D]
    layout: Layout
    action: Tensor | None = None  # [..., A]
    physics: Tensor | None = None  # [..., P]
    known: Mapping[str, Tensor] = field(default_factory=dict)  # each [...]
    terminated: Tensor | None = None  # [...] bool

    def __post_init__(self) -> None:
        if self.obs.shape[-1] != self.layout.obs_dim:
            raise DataError(
                f"these observations have {self.obs.shape[-1]} columns, the layout expects "
                f"{self.layout.obs_dim} ({', '.join(self.layout.names)}): do data and world belong together?"
            )
        if self.terminated is not None and self.terminated.shape != self.obs.shape[:-1]:
            raise DataError(
                f"'terminated' has shape {tuple(self.terminated.shape)} for states of shape "
                f"{tuple(self.obs.shape[:-1])}: give one truth value per state"
            )

    def __getitem__(self, name: str) -> Tensor:
        """The field's values: ``[...]`` for a scalar field, ``[..., size]`` otherwise."""
        stored = self.layout.find(name)
        if stored is not None:
            part = self.obs[..., stored.start : stored.start + stored.size]
            return part.squeeze(-1) if stored.size == 1 else part
        if name in self.known:
            return self.known[name]
        if name in self.layout.derived:
            return self.layout.derived[name](self)
        raise DataError(unknown_name("observation field", name, self.layout.names))

    def rows(self, which: Tensor | slice) -> "States":
        """Some of the states, by number, mask or slice of the first dimension."""
        return States(
            self.obs[which],
            self.layout,
            action=None if self.action is None else self.action[which],
            physics=None if self.physics is None else self.physics[which],
            known={name: values[which] for name, values in self.known.items()},
            terminated=None if self.terminated is None else self.terminated[which],
        )

    def need_action(self) -> Tensor:
        """The actions, or an error that says why they are needed."""
        if self.action is None:
            raise DataError("this reward depends on the action, and these states carry none: pass action=...")
        return self.action

    def need_physics(self) -> Tensor:
        """The simulator states, or an error that says why they are needed."""
        if self.physics is None:
            raise DataError(
                "this reward needs the simulator state, which these states do not carry: "
                "use data that stores 'physics', or a task that reads observations only"
            )
        return self.physics
