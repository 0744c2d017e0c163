r"""Switches: facts that only change at certain places are brought into the goal's order one by one.

A puzzle of buttons has a state that no direction leads to: colours, which a press switches over. Of a named
quantity c, the facts (columns of 0 and 1), the sampled transitions show what switches do and where:

    an event     a transition with c(s') ≠ c(s); its pattern is e = c(s') XOR c(s)
    a switch     a pattern that was seen ``least`` times; it is used at the sampled state s' of such an event
                 whose place is nearest to their mean place

A switch is taken to change the same facts wherever they stand. The least number of uses n(c) from any c to
the goal's facts then is a breadth-first search over 2^F nodes, done once, and acting needs no memory: of the
switches with n(c XOR e) = n(c) − 1 the policy heads for the one to which the way through places of the data
is shortest (zol.adapt.ways). A way may lead over another switch and use it, which changes the plan. Where all
is in order, it heads for the one whose use does least harm.
"""

from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor

from zol.adapt.directions import goals_of
from zol.adapt.problem import Behaviour, Method, Problem
from zol.adapt.ways import MapConfig, Steering, Ways, has_a_place, place_of, steering, ways_to
from zol.adapt.zol import score
from zol.common.errors import DataError, unknown_name
from zol.fields import Layout, States
from zol.models.base import Model

MOST_FACTS = 16
UNREACHED = 1 << 20


class SwitchConfig(MapConfig):
    """Settings of map and plan."""

    facts: str = "buttons"
    """field of columns of 0 and 1 that switches change"""
    least: int = Field(default=5, ge=1)
    """events of a pattern in the sample that make it a switch"""


@dataclass(frozen=True)
class Switching:
    """The policies of T tasks; called with observations ``[T, E, D]``."""

    model: Model
    layout: Layout
    facts: str
    patterns: Tensor  # [G, F]
    uses: Tensor  # n(c) by the number of c, [T, 2^F]
    ways: Ways
    steer: Steering

    @torch.no_grad()
    def latent(self, obs: Tensor) -> Tensor:
        """z ``[T, E, d]`` for the states ``[T, E, D]``."""
        tasks, episodes = obs.shape[:2]
        c = States(obs, self.layout)[self.facts] > 0.5  # [T, E, F]
        after = c.unsqueeze(-2) ^ self.patterns  # [T, E, G, F]
        left = self.uses.gather(1, numbered(after).reshape(tasks, -1)).reshape(after.shape[:-1])
        flat = obs.reshape(1, tasks * episodes, -1).expand(len(self.patterns), -1, -1)  # [G, T·E, D]
        far = self.ways.lengths(flat).mT.reshape(left.shape)
        helpful = left == left.amin(-1, keepdim=True)
        chosen = torch.where(helpful, far, torch.inf).argmin(-1)  # [T, E]
        waypoints = self.ways.waypoints(flat).transpose(0, 1).reshape(*left.shape, -1)  # [T, E, G, D]
        index = chosen[..., None, None].expand(-1, -1, 1, waypoints.shape[-1])
        return self.steer(obs, waypoints.gather(-2, index).squeeze(-2))

    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]``."""
        return self.model.act(obs, self.latent(obs))


def by_switches(problem: Problem, settings: SwitchConfig) -> Behaviour:
    """A policy per task that uses one switch after another; the latent shown is that of its first step."""
    evidence, layout = problem.evidence, problem.layout
    if settings.facts not in layout.names:
        raise DataError(
            f"switches need facts: {unknown_name('observation field', settings.facts, layout.names)}"
        )
    if evidence.before is None:
        raise DataError(
            "what switches do is read off whole transitions, and this sample holds only the states they lead "
            "to: give data (zol.load(path, data=…)), or save the checkpoint again with this version"
        )
    before, after = States(evidence.before, layout), States(evidence.obs, layout)
    patterns, states = switches(before, after, settings, place_of(layout, settings))
    wanted = States(torch.stack(list(goals_of(problem))), layout)[settings.facts] > 0.5  # [T, F]
    ways = ways_to(list(states), problem, settings)
    policy = Switching(
        problem.model,
        layout,
        settings.facts,
        patterns,
        torch.stack([uses_left(goal, patterns) for goal in wanted]),
        ways,
        steering(problem, ways, settings),
    )
    first = policy.latent(evidence.starts[:1].expand(len(evidence.tasks), 1, -1)).squeeze(1)
    found = score(problem.model, evidence, first)
    told = dict(found.diagnostics) | {
        "switches": torch.full((1, len(evidence.tasks)), float(len(patterns)), dtype=torch.float64),
        "connected": ways.connected.mean().expand(1, len(evidence.tasks)),
    }
    return Behaviour(replace(found, configs=(settings.model_dump(),), diagnostics=told), policy)


def switches(before: States, after: States, settings: SwitchConfig, place: str) -> tuple[Tensor, Tensor]:
    """Patterns ``[G, F]`` and, for each, the sampled state ``[G, D]`` in which to use it."""
    facts = [states[settings.facts] for states in (before, after)]
    if facts[0].ndim != 2 or facts[0].shape[1] > MOST_FACTS:
        raise DataError(f"'{settings.facts}' should have 2 to {MOST_FACTS} columns of 0 and 1")
    changed = (facts[0] > 0.5) ^ (facts[1] > 0.5)
    events = changed.any(-1)
    patterns, number, count = changed[events].unique(dim=0, return_inverse=True, return_counts=True)
    at, obs = after[place][events], after.obs[events]
    kept = (count >= settings.least).nonzero().flatten().tolist()
    if not kept:
        raise DataError(
            f"'{settings.facts}' change in {int(events.sum())} of {len(events)} sampled transitions, and no "
            f"change was seen {settings.least} times: sample more data, or ask for fewer (least=…)"
        )
    typical = []
    for k in kept:
        own = number == k
        middle = at[own].mean(0)
        typical.append(obs[own][(at[own] - middle).norm(dim=-1).argmin()])
    return patterns[kept], torch.stack(typical)


def uses_left(goal: Tensor, patterns: Tensor) -> Tensor:
    """The least number of uses from every combination of facts to the goal's, ``[2^F]``, by breadth first."""
    left = torch.full((1 << len(goal),), UNREACHED)
    steps = numbered(patterns)
    frontier = numbered(goal.unsqueeze(0))
    left[frontier] = 0
    count = 0
    while len(frontier):
        count += 1
        reached = (frontier.unsqueeze(1) ^ steps).flatten().unique()
        frontier = reached[left[reached] == UNREACHED]
        left[frontier] = count
    return left


def numbered(facts: Tensor) -> Tensor:
    """Rows of truth values ``[…, F]`` as whole numbers ``[…]``."""
    return (facts.long() << torch.arange(facts.shape[-1])).sum(-1)


def has_buttons(layout: Layout) -> bool:
    """Whether observations name a place and the facts that the default settings are about."""
    return has_a_place(layout) and SwitchConfig().facts in layout.names


SWITCHES = Method(by_switches, SwitchConfig(), suits=has_buttons, single_latent=False)
