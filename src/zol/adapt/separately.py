"""Tasks that begin in different states, solved one by one and put together again.

A density ratio w = d^π / d^β belongs to a start distribution, and methods average over one. Where tasks have
start states of their own, each is a problem of its own; nothing else about a method changes.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from zol.adapt.problem import Behaviour, Problem
from zol.evidence import Evidence


def one_by_one(problem: Problem) -> list[Problem]:
    """A problem per task, each with the start states of its task."""
    return [
        replace(problem, evidence=problem.evidence.only(name), tasks={name: problem.tasks[name]})
        for name in problem.evidence.tasks
    ]


def merged(parts: Sequence[Behaviour], evidence: Evidence) -> Behaviour:
    """The behaviours of single tasks as that of all of them."""
    found = [part.found for part in parts]
    first = found[0]
    shared = [name for name in first.diagnostics if all(name in one.diagnostics for one in found)]
    traced = [name for name in first.trace if all(name in one.trace for one in found)]
    joined = replace(
        first,
        z=torch.cat([one.z for one in found], dim=1),
        start=torch.cat([one.start for one in found]),
        evidence=evidence,
        estimate=torch.cat([one.estimate for one in found], dim=1),
        diagnostics={name: torch.cat([one.diagnostics[name] for one in found], dim=1) for name in shared},
        trace={name: _joined_traces([one.trace[name] for one in found]) for name in traced},
    )
    policies = [part.policy for part in parts if part.policy is not None]
    if not policies:
        return Behaviour(joined)
    if len(policies) < len(parts):
        raise ValueError("a method gave a policy for some tasks and none for others")

    def act(obs: Tensor) -> Tensor:
        return torch.cat([policy(own) for policy, own in zip(policies, obs.split(1), strict=True)])

    return Behaviour(joined, act)


def _joined_traces(traces: Sequence[Tensor]) -> Tensor:
    """Traces ``[steps, C, 1]`` side by side, with NaN where one ended before the longest."""
    steps = max(len(trace) for trace in traces)
    padded = []
    for trace in traces:
        rest = torch.full((steps - len(trace), *trace.shape[1:]), torch.nan, dtype=trace.dtype)
        padded.append(torch.cat([trace, rest]))
    return torch.cat(padded, dim=-1)
