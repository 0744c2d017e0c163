r"""Batches as learners declare them: single steps, stretches, future states, next actions, expert windows.

A learner says what it wants in a :class:`BatchSpec`; the training loop draws it and knows no learner.

**Stretches** are for bootstraps that wait n steps. The first n terms of a successor measure along the data,
and what follows after them,

    M(s_t, a_t, ·) = Σ_{k<n} γ^k δ(s_{t+k+1}) + γⁿ M(s_{t+n}, ·)  =  c E_k[δ(s_{t+k+1})] + γⁿ M(s_{t+n}, ·),

need one state on the way if its offset k is drawn with probability ∝ γ^k; then c = (1 − γⁿ)/(1 − γ).
Near the end of an episode n is what is left of it, or one less where the data have to go on (``continued``).

**Future states** are s_{t+k} with Pr(k) = (1 − γ) γ^{k−1}, k ≥ 1, or the episode's last state if it ends
before. **Paths** are the steps that follow, up to H of them or to the end of the episode. **Expert windows**
are W consecutive states of demonstrations, ⌈N/W⌉ windows per batch.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zol.common import parallel
from zol.common.config import ConfigError
from zol.common.errors import DataError
from zol.data.batch import Batch
from zol.data.dataset import Dataset
from zol.data.resident import Source, choose_source


@dataclass(frozen=True)
class BatchSpec:
    """What a learner wants to see in every batch, beside transitions (s, a, s', terminated)."""

    stretch: int = 1
    """n: steps of data from ``obs`` to ``next_obs``; above 1, ``goal`` and ``length`` are filled, and what
    ``Batch.single`` needs"""
    discount: float = 0.0
    """γ with which the goal of a stretch is drawn"""
    future: float = 0.0
    """γ with which future states are drawn, which fills ``future_obs``; 0 draws none"""
    next_action: bool = False
    """fill ``next_action`` and ``last``"""
    path: int = 0
    """H: fill ``path_obs``, ``path_action`` and ``path_length`` with up to H steps from ``obs`` on"""
    continued: bool = False
    """only steps that the data go on from, or that end in a terminal state: a cut episode's last step is
    replaced by the one before it"""
    physics: bool = False
    """fill simulator states, where the data store them"""
    expert_window: int = 0
    """W: fill ``expert_obs`` and ``expert_next_obs`` with windows of this length from demonstrations"""

    def __post_init__(self) -> None:
        if self.stretch < 1 or self.expert_window < 0 or self.path < 0:
            raise ConfigError(
                f"a stretch has at least one step, a window and a path at least none, got "
                f"stretch={self.stretch}, expert_window={self.expert_window}, path={self.path}"
            )
        if self.stretch > 1 and not 0 < self.discount < 1:
            raise ConfigError(f"stretches need a discount in (0, 1), got {self.discount}")
        if not 0 <= self.future < 1:
            raise ConfigError(f"future states need a discount in (0, 1), or 0 for none, got {self.future}")


class Sampler:
    """Draws batches from data that stay where they are, or live on the training device.

    All randomness comes from the generator of the run and is drawn for the global batch, of which a process
    keeps its rows (zol.common.parallel), so that a run does not depend on where its data lie.
    """

    def __init__(
        self, dataset: Dataset, device: torch.device, spec: BatchSpec, demonstrations: Dataset | None = None
    ) -> None:
        """``spec`` says what will be asked for; single batches may ask for less."""
        if len(dataset) == 0:
            raise DataError("this dataset has no transitions to draw from")
        self.rows = len(dataset)
        self.device, self.spec = device, spec
        self.source = choose_source(dataset, device, physics=spec.physics)
        self.demonstrations = demonstrations
        if spec.expert_window:
            if demonstrations is None:
                raise DataError("this model learns from demonstrations, and none were given")
            if demonstrations.obs_dim != dataset.obs_dim:
                raise DataError(
                    f"the demonstrations have {demonstrations.obs_dim} observation columns, the data "
                    f"{dataset.obs_dim}: both must come from the same world"
                )
            windows = demonstrations.window_starts(spec.expert_window)
            self._windows = torch.from_numpy(windows).to(device)

    def draw(self, spec: BatchSpec, n: int, generator: torch.Generator) -> Batch:
        """This process's share of a batch of ``n`` rows."""
        if (spec.physics and not self.spec.physics) or spec.expert_window not in (0, self.spec.expert_window):
            raise DataError(
                f"this sampler was made for {self.spec}, and cannot draw {spec}: simulator states and "
                "windows have to be announced when it is made"
            )
        own = parallel.share(torch.randint(self.rows, (n,), generator=generator, device=self.device))
        if spec.continued:
            own = step_back(self.source, own)
        if spec.stretch > 1:
            chance = self._chance(n, generator)
            batch = look_ahead(self.source, own, spec.stretch, spec.discount, chance, spec.continued)
        else:
            batch = self.source.take(own)
        if spec.future:
            later = future_states(self.source, own, spec.future, self._chance(n, generator))
            batch = replace(batch, future_obs=later)
        if spec.next_action:
            batch = with_next_action(self.source, own, batch)
        if spec.path:
            batch = with_path(self.source, own, spec.path, batch)
        if spec.expert_window:
            batch = self._with_expert(batch, spec.expert_window, n, generator)
        return batch

    def _chance(self, n: int, generator: torch.Generator) -> Tensor:
        return parallel.share(torch.rand(n, generator=generator, device=self.device))

    def _with_expert(self, batch: Batch, window: int, n: int, generator: torch.Generator) -> Batch:
        assert self.demonstrations is not None
        count = -(-n // window)
        picks = torch.randint(len(self._windows), (count,), generator=generator, device=self.device)
        steps = self._windows[parallel.share(picks)].unsqueeze(1) + torch.arange(window, device=self.device)
        seen = self.demonstrations.take(steps.flatten().cpu().numpy(), physics=False).to(self.device)
        shape = (*steps.shape, -1)
        return replace(
            batch, expert_obs=seen.obs.reshape(shape), expert_next_obs=seen.next_obs.reshape(shape)
        )


def step_back(source: Source, steps: Tensor) -> Tensor:
    """The same steps, but for the last ones of episodes that were cut: those become the ones before."""
    last = torch.nonzero(source.left(steps) == 1).squeeze(1)
    cut = last[~source.take(steps[last]).terminated]
    before = (steps[cut] - 1).clamp_min(0)
    same_episode = source.left(before) == 2
    return steps.index_copy(0, cut, torch.where(same_episode, before, steps[cut]))


def look_ahead(
    source: Source, steps: Tensor, n: int, discount: float, chance: Tensor, continued: bool = False
) -> Batch:
    """The stretches of up to ``n`` transitions that begin with ``steps``; ``chance`` [N] in [0, 1) draws k.

    ``next_obs``, ``next_physics`` and ``terminated`` are those of the last transition, ``goal`` is s_{t+k+1},
    ``length`` is n. With ``continued`` a stretch ends a step before the end of an episode that was cut.
    """
    left = source.left(steps)
    length = left.clamp(max=n)
    first, last = source.take(steps), source.take(steps + length - 1)
    if continued:
        length = length - ((length == left) & ~last.terminated & (length > 1)).long()
        last = source.take(steps + length - 1)
    mass = 1 - discount ** length.double()
    offset = (torch.log1p(-chance.double() * mass) / math.log(discount)).long()  # P(k) ∝ γ^k, k < n
    offset = torch.minimum(offset, length - 1)  # rounding at the upper end
    return replace(
        first,
        first_obs=first.next_obs,
        first_terminated=first.terminated,
        next_obs=last.next_obs,
        next_physics=last.next_physics,
        terminated=last.terminated,
        goal=source.take(steps + offset).next_obs,
        length=length,
    )


def future_states(source: Source, steps: Tensor, discount: float, chance: Tensor) -> Tensor:
    """s_{t+k} ``[N, D]``, k geometric from 1 on, no later than the end of the episode."""
    offset = (torch.log1p(-chance.double()) / math.log(discount)).long()  # k − 1: P(k) = (1 − γ) γ^{k−1}
    return source.take(steps + torch.minimum(offset, source.left(steps) - 1)).next_obs


def with_next_action(source: Source, steps: Tensor, batch: Batch) -> Batch:
    """The batch with the actions that the data took in ``next_obs``; none where the episode is over."""
    ahead = steps + (1 if batch.length is None else batch.length)
    last = source.left(steps) == (1 if batch.length is None else batch.length)
    following = source.take(torch.where(last, steps, ahead)).action
    return replace(batch, next_action=following * ~last.unsqueeze(-1), last=last)


def with_path(source: Source, steps: Tensor, length: int, batch: Batch) -> Batch:
    """The batch with up to ``length`` steps from its own on; behind an episode's end its last is repeated."""
    left = source.left(steps)
    taken = [source.take(steps + (left - 1).clamp(max=k)) for k in range(length)]
    return replace(
        batch,
        path_obs=torch.stack([step.next_obs for step in taken], dim=1),
        path_action=torch.stack([step.action for step in taken], dim=1),
        path_length=left.clamp(max=length),
    )


def along_path(source: Source, steps: Tensor, length: int) -> Batch:
    """Steps with up to ``length`` of those that follow; ``terminated`` says how the last of them ended."""
    batch = with_path(source, steps, length, source.take(steps))
    assert batch.path_length is not None
    return replace(batch, terminated=source.take(steps + batch.path_length - 1).terminated)
