"""What a method may look at offline: a labelled sample of the data, and start states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zol import prompt
from zol.common.errors import DataError, unknown_name
from zol.data import Dataset
from zol.fields import Layout, States
from zol.models.base import Model
from zol.tasks import Task

SAMPLES = 10_000  # transitions that most methods look at


@dataclass(frozen=True, repr=False)
class Evidence:
    """All that a method may look at: sampled transitions, their rewards for T tasks, and start states.

    Rewards belong to the states that transitions lead to, ``obs``. What they began with (``before``), the
    action and whether they ended the episode are there where the sample holds whole transitions, which
    estimators that learn by TD need; checkpoints of earlier versions hold next states only.

    ``starts`` are those of the world. Tasks that begin elsewhere have theirs in ``own_starts``: a density
    ratio belongs to the start distribution of its task, so such tasks are solved one by one
    (:func:`zol.adapt.solve`).
    """

    tasks: tuple[str, ...]
    obs: Tensor  # [N, D] next states s' sampled from the data
    rewards: Tensor  # r(s'), [T, N]
    starts: Tensor  # [S, D]
    data: str = ""  # fingerprint of the dataset the sample came from
    before: Tensor | None = None  # s, [N, D]
    action: Tensor | None = None  # a, [N, A]
    terminated: Tensor | None = None  # [N] bool
    own_starts: Tensor | None = None  # [T, S, D], where tasks begin their episodes in states of their own

    def __post_init__(self) -> None:
        if self.rewards.shape != (len(self.tasks), len(self.obs)):
            raise DataError(
                f"rewards have shape {tuple(self.rewards.shape)}; {len(self.tasks)} tasks and "
                f"{len(self.obs)} states need ({len(self.tasks)}, {len(self.obs)})"
            )
        for name in ("before", "action", "terminated"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.obs):
                raise DataError(f"'{name}' has {len(column)} rows, the sample {len(self.obs)} states")
        for name in ("obs", "rewards", "starts", "before", "action", "own_starts"):
            column = getattr(self, name)
            if column is not None and not bool(column.isfinite().all()):
                raise DataError(f"'{name}' of this sample has NaN or infinite entries: its data are damaged")
        if self.own_starts is not None and self.own_starts.shape[::2] != (len(self.tasks), self.obs.shape[1]):
            raise DataError(
                f"start states of tasks have shape {tuple(self.own_starts.shape)}; {len(self.tasks)} tasks "
                f"need ({len(self.tasks)}, S, {self.obs.shape[1]})"
            )
        if self.starts.ndim != 2 or len(self.starts) == 0:
            raise DataError("start states are missing: a density ratio begins at the start distribution")

    def __repr__(self) -> str:
        return (
            f"Evidence({len(self.obs):,} states with rewards of {len(self.tasks)} tasks: "
            f"{', '.join(self.tasks)}; {len(self.starts)} start states)"
        )

    @staticmethod
    def gather(
        dataset: Dataset,
        tasks: Task | Sequence[Task] | Mapping[str, Task],
        layout: Layout | None = None,
        *,
        samples: int = SAMPLES,
        starts: int = 256,
        generator: torch.Generator | None = None,
    ) -> "Evidence":
        """Label a random sample of a dataset with every task, and draw start states.

        ``layout`` names the observation columns for the rewards; without it they are one field, ``s["obs"]``.
        Without a generator the sample is that of seed 0.
        """
        generator = generator if generator is not None else torch.Generator().manual_seed(0)
        batch = dataset.sample(samples, generator)
        arrived = batch.arrived(layout or Layout.plain(dataset.obs_dim))
        labelled = Evidence.label(arrived, tasks, dataset.starts(starts, generator), dataset.fingerprint())
        return replace(labelled, before=batch.obs, terminated=batch.terminated)

    @staticmethod
    def label(
        states: States, tasks: Task | Sequence[Task] | Mapping[str, Task], starts: Tensor, data: str = ""
    ) -> "Evidence":
        """Label states that are already at hand, such as the sample that travels with a checkpoint."""
        wanted = _listed(tasks)
        rewards = torch.stack([task(states).float() for task in wanted])
        for name, bad in zip((t.name for t in wanted), (~rewards.isfinite()).sum(-1).tolist(), strict=True):
            if bad:
                raise DataError(f"task '{name}' gives NaN or infinity for {bad} of {len(states.obs)} states")
        names = tuple(task.name for task in wanted)
        return Evidence(names, states.obs, rewards, starts, data, action=states.action)

    @staticmethod
    def from_sample(
        sample: Mapping[str, Tensor],
        layout: Layout,
        tasks: Sequence[Task] | Mapping[str, Task],
        *,
        starts: int = 256,
        data: str = "",
    ) -> "Evidence":
        """Label the sample that travels with a checkpoint (``prompt.safetensors``).

        ``sample`` holds "obs" (next states) and "starts", and as far as the checkpoint has them "action",
        "physics", "before" and "terminated". The first ``starts`` start states are used.
        """
        for name in ("obs", "starts"):
            if name not in sample:
                raise DataError(
                    f"this checkpoint carries no sample of states ('{name}' of prompt.safetensors): bring "
                    "your own, zol.load(path, data=dataset) or Evidence.gather(dataset, tasks, layout)"
                )
        states = States(sample["obs"], layout, sample.get("action"), sample.get("physics"))
        labelled = Evidence.label(states, tasks, sample["starts"][:starts], data)
        return replace(labelled, before=sample.get("before"), terminated=sample.get("terminated"))

    def rewarded_tasks(self) -> tuple["Evidence", list[str]]:
        """Drop tasks with zero reward on every sampled state, which nothing can serve; return their names."""
        rewarded = (self.rewards.abs().amax(-1) > 0).tolist()
        tasks = [name for name, kept in zip(self.tasks, rewarded, strict=True) if kept]
        return self.only(*tasks), [name for name in self.tasks if name not in tasks]

    def constant_tasks(self) -> list[str]:
        """Tasks whose reward is the same, and not zero, in every sampled state: all behaviour earns alike."""
        alike = (self.rewards.amax(-1) == self.rewards.amin(-1)) & (self.rewards.abs().amax(-1) > 0)
        return [name for name, same in zip(self.tasks, alike.tolist(), strict=True) if same]

    def only(self, *tasks: str) -> "Evidence":
        """The same transitions with the rewards of some tasks; a single one brings its own start states."""
        for name in tasks:
            if name not in self.tasks:
                raise DataError(unknown_name("task in this evidence", name, self.tasks))
        rows = [self.tasks.index(name) for name in tasks]
        own = None if self.own_starts is None else self.own_starts[rows]
        starts = self.starts if own is None or len(rows) != 1 else own[0]
        return replace(self, tasks=tasks, rewards=self.rewards[rows], starts=starts, own_starts=own)

    def with_own_starts(self, starts: Mapping[str, Tensor]) -> "Evidence":
        """The same with start states ``[S, D]`` of some tasks' own; the others keep those that all share."""
        if not any(name in starts for name in self.tasks):
            return self
        count = min(len(self.starts), *(len(starts[name]) for name in self.tasks if name in starts))
        drawn = [starts.get(name, self.starts)[:count].to(self.starts) for name in self.tasks]
        first = drawn[0] if len(drawn) == 1 else self.starts
        return replace(self, own_starts=torch.stack(drawn), starts=first)

    def prompt(
        self, model: Model, how: prompt.RewardPrompt = "correlation", *, centre: bool = False
    ) -> Tensor:
        """Closed-form latents of all tasks, ``[T, d]``."""
        return prompt.reward(model, self.obs, self.rewards, how, centre=centre)


def _listed(tasks: Task | Sequence[Task] | Mapping[str, Task]) -> list[Task]:
    """One task or several as a list; what is no task is named."""
    given: list[object] = [tasks]
    if not isinstance(tasks, Task) and not callable(tasks):
        given = list(tasks.values()) if isinstance(tasks, Mapping) else list(tasks)
    found = [task for task in given if isinstance(task, Task)]
    if len(found) < len(given):
        wrong = next(task for task in given if not isinstance(task, Task))
        raise DataError(
            f"{getattr(wrong, '__name__', wrong)!r} is a {type(wrong).__name__}, a task was expected: "
            "zol.Task(name, function of states); agent.adapt takes bare functions, too"
        )
    return found
