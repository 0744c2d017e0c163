r"""Finite MDPs, where everything zol estimates can be computed exactly.

With the transition matrix P_π of a policy, successor measures are one linear solve away:

    next      M(s, a, s') = Σ_t γ^t Pr(s_{t+1} = s' | s, a) = P(·|s, a) (I − γP_π)⁻¹
    current   M(s, a, s') = Σ_t γ^t Pr(s_t = s' | s, a)     = δ_s + γ P(·|s, a) (I − γP_π)⁻¹
    pairs     the paper's form over (s, a) pairs             = (I − γP_π^{SA})⁻¹

Nothing follows a terminal state: rows of P_π that leave one count as zero in the inverse. All of it is in
float64. These are the oracles of the test-suite, and the smallest worlds to learn in.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.fields import Field, Layout, States
from zol.tasks import Condition, Reward, Starts, Task
from zol.worlds.base import World

ROOMS = """
#############
#     #     #
#     #     #
#           #
#     #     #
#     #     #
## ####     #
#     ### ###
#     #     #
#     #     #
#           #
#     #     #
#############
""".strip().splitlines()


@dataclass(frozen=True)
class FiniteMDP:
    """A reward-free finite MDP. Policies are ``[..., S, A]``; rewards ``[..., S]`` are paid on arrival."""

    transition: Tensor  # P(s' | s, a), [S, A, S]
    start: Tensor  # ρ0, [S]
    discount: float
    terminal: Tensor | None = None  # [S] bool: states in which an episode is over

    @property
    def states(self) -> int:
        """The number of states, S."""
        return self.transition.shape[0]

    @property
    def actions(self) -> int:
        """The number of actions, A."""
        return self.transition.shape[1]

    def under(self, policy: Tensor) -> Tensor:
        """The transition matrix of a policy, P_π ``[..., S, S]``; rows of terminal states are zero."""
        return self.continuing(torch.einsum("...sa,sat->...st", policy, self.transition))

    def continuing(self, rows: Tensor) -> Tensor:
        """``rows [..., S, X]`` with those of terminal states set to zero, because nothing follows there."""
        return rows if self.terminal is None else rows * (~self.terminal).unsqueeze(-1)

    def successor(self, policy: Tensor, begins: Literal["next", "current"] = "next") -> Tensor:
        """The successor measure M^π(s, a, s'), ``[..., S, A, S]``, unnormalised."""
        eye = torch.eye(self.states, dtype=self.transition.dtype)
        resolvent = torch.linalg.inv(eye - self.discount * self.under(policy))
        following = torch.einsum("sat,...tu->...sau", self.transition, resolvent)
        if begins == "next":
            return following
        return eye.unsqueeze(1) + self.discount * following

    def successor_pairs(self, policy: Tensor) -> Tensor:
        """The paper's M^π over state–action pairs, ``[S·A, S·A]``, for one policy."""
        n = self.states * self.actions
        step = torch.einsum("sat,tb->satb", self.transition, self.continuing(policy)).reshape(n, n)
        return torch.linalg.inv(torch.eye(n, dtype=step.dtype) - self.discount * step)

    def occupancy(self, policy: Tensor, begins: Literal["next", "current"] = "next") -> Tensor:
        """d^π, ``[..., S]``: the discounted state distribution from the start distribution.

        It sums to 1, or to less if episodes end in terminal states.
        """
        M = self.successor(policy, begins)
        return (1 - self.discount) * torch.einsum("s,...sa,...sat->...t", self.start, policy, M)

    def value(self, policy: Tensor, reward: Tensor) -> Tensor:
        """(1 − γ) E Σ_t γ^t r(s_{t+1}), the normalised return ``[...]``."""
        return (self.occupancy(policy) * reward).sum(-1)

    def optimal_policy(self, reward: Tensor, tolerance: float = 1e-12) -> Tensor:
        """A deterministic optimal policy ``[..., S, A]`` by value iteration."""
        V = torch.zeros_like(reward)
        while True:
            later = self.continuing(V.unsqueeze(-1)).squeeze(-1)
            Q = torch.einsum("sat,...t->...sa", self.transition, reward + self.discount * later)
            following = Q.amax(-1)
            if float((following - V).abs().max()) < tolerance:
                return torch.nn.functional.one_hot(Q.argmax(-1), self.actions).to(reward.dtype)
            V = following

    def optimal_value(self, reward: Tensor) -> Tensor:
        """The best normalised return, ``[...]``."""
        return self.value(self.optimal_policy(reward), reward)

    def episode_return(self, policy: Tensor, reward: Tensor, steps: int, discount: float = 1.0) -> Tensor:
        """E Σ_{t<T} γ^t r(s_{t+1}) of episodes of at most T ``steps`` from every state, ``[..., S]``.

        V_T = P_π (r + γ V_{T−1}) with V_0 = 0, and nothing is earned after a terminal state.
        """
        P, V = self.under(policy), torch.zeros_like(reward)
        for _ in range(steps):
            V = torch.einsum("...st,...t->...s", P, reward + discount * V)
        return V

    def reach_probability(self, policy: Tensor, target: Tensor, steps: int) -> Tensor:
        """Pr(some s_t, 1 ≤ t ≤ T, is a target) from every state, ``[..., S]``; ``target`` is ``[S]`` bool.

        q_T = P_π (1[target] + 1[not target] q_{T−1}) with q_0 = 0, and nothing is reached after a terminal
        state.
        """
        P, hit = self.under(policy), target.to(self.transition.dtype)
        q = torch.zeros_like(P[..., 0])
        for _ in range(steps):
            q = torch.einsum("...st,...t->...s", P, hit + (1 - hit) * q)
        return q


class TabularWorld(World):
    """A finite MDP as a batched world: one-hot observations, and the largest action entry is taken.

    Choosing by the largest of A numbers in [−1, 1] lets continuous actors act in a discrete world. Unless
    other tasks are given, task ``goal_k`` pays for being in state k.
    """

    def __init__(
        self, name: str, mdp: FiniteMDP, episode_length: int = 100, tasks: Iterable[Task] | None = None
    ) -> None:
        self.name = name
        self.mdp = mdp
        self.layout = Layout(mdp.states, (Field("state", 0, mdp.states, "", "one-hot state"),))
        self.action_dim = mdp.actions
        self.episode_length = episode_length
        self.discount = mdp.discount
        if tasks is None:
            tasks = (Task(f"goal_{k}", _indicator(k)) for k in range(mdp.states))
        self.tasks = {task.name: task for task in tasks}
        self._state = torch.zeros(0, dtype=torch.int64)
        self._generator = torch.Generator().manual_seed(0)

    @property
    def physics(self) -> Tensor:
        """The state numbers of the running environments, ``[n, 1]``."""
        return self._state.unsqueeze(-1).double()

    def reset(self, n: int, generator: torch.Generator) -> States:
        """Draw from ρ0; the generator also drives the transitions that follow."""
        self._generator = generator
        self._state = torch.multinomial(self.mdp.start, n, replacement=True, generator=generator)
        return self._states(None)

    def set_physics(self, physics: Tensor) -> States:
        """Put the environments into these state numbers ``[n, 1]``."""
        self._state = physics.squeeze(-1).long()
        return self._states(None)

    def step(self, action: Tensor) -> States:
        """Take the action with the largest entry, ``[n, A]``."""
        if action.shape != (len(self._state), self.action_dim):
            raise DataError(
                f"actions have shape {tuple(action.shape)}, expected {(len(self._state), self.action_dim)}"
            )
        row = self.mdp.transition[self._state, action.argmax(-1)]
        self._state = torch.multinomial(row, 1, generator=self._generator).squeeze(-1)
        return self._states(action)

    def observe(self, physics: Tensor) -> Tensor:
        """One-hot rows ``[n, S]`` of state numbers ``[n, 1]``."""
        return torch.nn.functional.one_hot(physics.squeeze(-1).long(), self.mdp.states).float()

    def _states(self, action: Tensor | None) -> States:
        over = None if self.mdp.terminal is None else self.mdp.terminal[self._state]
        return States(
            self.observe(self.physics), self.layout, action=action, physics=self.physics, terminated=over
        )


def _indicator(k: int) -> Reward:
    return lambda states: states["state"][..., k]


def _is_in(k: int) -> Condition:
    return lambda states: states["state"][..., k] > 0.5


def _one_of(*cells: int) -> Starts:
    """Start states, uniformly from these."""
    pool = torch.tensor(cells, dtype=torch.float64).unsqueeze(-1)
    return lambda n, generator: pool[torch.randint(len(cells), (n,), generator=generator)]


def four_rooms(discount: float = 0.95, slip: float = 0.0) -> TabularWorld:
    """Four rooms joined by doors, 104 cells, four moves; a share ``slip`` of the moves is random."""
    cells = [(y, x) for y, row in enumerate(ROOMS) for x, mark in enumerate(row) if mark == " "]
    number = {cell: k for k, cell in enumerate(cells)}
    moves = torch.zeros(len(cells), 4, len(cells), dtype=torch.float64)
    for (y, x), k in number.items():
        for a, (dy, dx) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
            moves[k, a, number.get((y + dy, x + dx), k)] = 1.0
    moves = (1 - slip) * moves + slip * moves.mean(1, keepdim=True)
    start = torch.full((len(cells),), 1.0 / len(cells), dtype=torch.float64)
    return TabularWorld("four_rooms", FiniteMDP(moves, start, discount))


def chain(length: int = 8, discount: float = 0.9, slip: float = 0.1) -> FiniteMDP:
    """A corridor with two actions, left and right; starts at the left end."""
    transition = torch.zeros(length, 2, length, dtype=torch.float64)
    for s in range(length):
        left, right = max(s - 1, 0), min(s + 1, length - 1)
        for a, (there, back) in enumerate([(left, right), (right, left)]):
            transition[s, a, there] += 1 - slip
            transition[s, a, back] += slip
    start = torch.zeros(length, dtype=torch.float64)
    start[0] = 1.0
    return FiniteMDP(transition, start, discount)


def corridor(length: int = 9, discount: float = 0.95, slip: float = 0.1) -> TabularWorld:
    """A corridor whose two ends end the episode; starts are in the middle.

    It is the smallest world that uses everything a task can say. ``right`` and ``left`` ask for one end:
    they start near the other one, have a goal and a test of success. ``middle`` pays for every step spent in
    the middle; it starts where the world does, and its episodes are over once somebody falls out at an end.
    """
    walk = chain(length, discount, slip)
    start = torch.zeros_like(walk.start)
    start[length // 2] = 1.0
    terminal = torch.zeros(length, dtype=torch.bool)
    terminal[[0, length - 1]] = True

    def reach(name: str, end: int, *starts: int) -> Task:
        goal = torch.nn.functional.one_hot(torch.tensor(end), length).float()
        return Task(
            name, _indicator(end), f"arrive at the {name} end", _one_of(*starts), goal, success=_is_in(end)
        )

    tasks = (
        reach("right", length - 1, 1, 2),
        reach("left", 0, length - 2, length - 3),
        Task("middle", _indicator(length // 2), "be in the middle, and fall out at neither end"),
    )
    mdp = FiniteMDP(walk.transition, start, discount, terminal)
    return TabularWorld("corridor", mdp, episode_length=30, tasks=tasks)


def random_mdp(states: int, actions: int, generator: torch.Generator, discount: float = 0.9) -> FiniteMDP:
    """Dense random transitions and a random start distribution."""
    weights = torch.rand(states, actions, states, generator=generator, dtype=torch.float64) ** 4
    start = torch.rand(states, generator=generator, dtype=torch.float64)
    return FiniteMDP(weights / weights.sum(-1, keepdim=True), start / start.sum(), discount)
