"""The d×d correction is exact where theory says so, in every convention, also when F is wrong."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from known_transitions import EVERY, GAMMA, REWARDS, STATES, Table, corridor, exact_sample, occupancy, seeded
from torch import Tensor

from zol.models.base import Measure
from zol.testing.exact import ExactFB
from zol.value import ESTIMATORS, ValueProblem
from zol.value.linear import FOLDS, GRID, FlowEquations
from zol.value.lstd import by_lstd, value_features
from zol.value.steps import Steps

EXACT = {"rtol": 1e-7, "atol": 1e-7}
CONVENTIONS = [
    Measure(normalised, begins, offset)  # type: ignore[arg-type]
    for normalised, begins, offset in itertools.product((False, True), ("next", "current"), (0.0, 1.0))
]


class Wrong(ExactFB):
    """An exact model whose F has been mixed up: its span is right and every value wrong."""

    mixed = True

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        F = super().forward(obs, z, action)
        mixing = torch.randn(STATES, STATES, generator=seeded(8), dtype=torch.float64)
        return F @ mixing if self.mixed else F


@dataclass(frozen=True)
class Case:
    model: Wrong
    problem: ValueProblem
    z: Tensor
    truth: Tensor  # [K, T]


def case(measure: Measure, terminal: bool = False, mixed: bool = True) -> Case:
    mdp = corridor(terminal)
    evidence = exact_sample(mdp)
    model = Wrong(mdp, evidence.obs.mean(0), measure=measure, temperature=0.5, generator=seeded(2))
    model.mixed = mixed
    z = model.project(torch.randn(3, STATES, generator=seeded(4), dtype=torch.float64))
    truth = torch.stack([mdp.value(model.policy(row), REWARDS) for row in z])
    return Case(model, ValueProblem(model, evidence), z, truth)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("measure", CONVENTIONS, ids=str)
def test_exact_where_the_values_lie_in_the_span(measure: Measure, mixed: bool, terminal: bool) -> None:
    given = case(measure, terminal, mixed)
    found = ESTIMATORS["lstd"].estimate(given.problem, given.z)
    torch.testing.assert_close(found.mean, given.truth, **EXACT)
    assert float(found.diagnostics["flow_residual"].max()) < 1e-6
    if mixed:
        own = ESTIMATORS["value"].estimate(given.problem, given.z).mean
        assert float((own - given.truth).abs().max()) > 0.1


@pytest.mark.parametrize("terminal", [False, True])
def test_exact_where_the_ratio_lies_in_the_span(terminal: bool) -> None:
    """F holds the true ratio and two columns of noise; no Q-function is anywhere near."""
    mdp = corridor(terminal)
    evidence = exact_sample(mdp)
    assert evidence.before is not None
    assert evidence.action is not None
    policy = torch.rand(STATES, 2, generator=seeded(5), dtype=torch.float64).softmax(-1)
    data = torch.einsum("ns,na->sa", evidence.before, evidence.action) / len(evidence.obs)
    ratio = occupancy(mdp, policy) / data.clamp_min(1e-300)
    noise = torch.randn(STATES, 2, 2, generator=seeded(7), dtype=torch.float64)
    model = Table(torch.cat([ratio.unsqueeze(-1), noise], dim=-1), policy)
    z = torch.zeros(1, 3, dtype=torch.float64)
    found = ESTIMATORS["lstd"].estimate(ValueProblem(model, evidence), z)
    torch.testing.assert_close(found.mean[0], mdp.value(policy, REWARDS), **EXACT)
    mass = float(occupancy(mdp, policy).sum())
    assert float(found.diagnostics["mean_ratio"]) == pytest.approx(mass, abs=1e-8)
    assert float(found.diagnostics["negative_share"]) == 0.0


def random_rows(problem: ValueProblem, rows: int, seed: int) -> ValueProblem:
    evidence = problem.evidence
    pick = torch.randint(len(evidence.obs), (rows,), generator=seeded(seed))
    parts = {name: getattr(evidence, name)[pick] for name in ("obs", "before", "action", "terminated")}
    return replace(problem, evidence=replace(evidence, rewards=evidence.rewards[:, pick], **parts))


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("measure", CONVENTIONS[::3], ids=str)
def test_primal_and_dual_are_one_number(measure: Measure, ridge: float) -> None:
    """The ratio's E[w (r + γQ' − Q)] and LSTD-Q's value, on a sample where nothing is exact."""
    given = case(measure, mixed=True)
    problem, z = random_rows(given.problem, 90, 1), given.z
    steps, model = Steps.of(problem, z), given.model
    equations = FlowEquations.of(*value_features(model, steps, z), steps.discount, GAMMA)
    target = steps.rewards.mT.expand(3, -1, -1)
    chosen = torch.full((3,), ridge, dtype=torch.float64)
    primal = (1 - GAMMA) * torch.einsum("km,kmt->kt", equations.b, equations.primal(chosen, target))
    w = torch.einsum("knm,km->kn", equations.phi, equations.dual(chosen))
    torch.testing.assert_close(torch.einsum("kn,knt->kt", w, target) / 90, primal, rtol=1e-8, atol=1e-8)
    if ridge == 0.0:  # then nothing of the model's own value is left
        torch.testing.assert_close(by_lstd(problem, z, ridge).mean, primal, rtol=1e-8, atol=1e-8)


def test_without_shrinkage_it_is_lstd_q() -> None:
    """The slow version: one row at a time, in the given features."""
    given = case(Measure())
    problem, z = random_rows(given.problem, 90, 2), given.z[:1]
    steps, model = Steps.of(problem, z), given.model
    m = STATES + 1
    A, c = torch.zeros(m, m).double(), torch.zeros(m, 2).double()
    phi, after, start = (part[0] for part in value_features(model, steps, z))
    for i in range(90):
        A += phi[i].outer(phi[i] - steps.discount[i] * after[i])
        c += phi[i].unsqueeze(-1) * steps.rewards[:, i]
    weights = torch.linalg.pinv(A, rtol=1e-10) @ c  # the constant lies in the span of F
    slow = (1 - GAMMA) * start.mean(0) @ weights
    torch.testing.assert_close(by_lstd(problem, z, 0.0).mean[0], slow, **EXACT)


@pytest.mark.parametrize("measure", CONVENTIONS, ids=str)
def test_with_infinite_shrinkage_it_is_the_models_own_value(measure: Measure) -> None:
    given = case(measure)
    problem = random_rows(given.problem, 90, 3)
    own = ESTIMATORS["value"].estimate(problem, given.z).mean
    torch.testing.assert_close(by_lstd(problem, given.z, float("inf")).mean, own, **EXACT)


def test_shrinkage_is_chosen_on_transitions_that_were_left_out() -> None:
    """With few rows some shrinkage is chosen; the residuals are those of the slow version."""
    given = case(Measure())
    problem, z = random_rows(given.problem, 23, 4), given.z[:1]
    steps, model = Steps.of(problem, z), given.model
    equations = FlowEquations.of(*value_features(model, steps, z), steps.discount, GAMMA)
    found = equations.held_out_violation(GRID)[..., 0]  # [folds, λ]
    phi, after, start = (part[0] for part in value_features(model, steps, z))
    f, change, b = phi, phi - GAMMA * after, (1 - GAMMA) * start.mean(0)
    largest = torch.linalg.eigvalsh(f.mT @ f / 23)[-1]
    for ridge, got in list(zip(GRID, found.mT, strict=True))[1:-1]:
        for g in range(FOLDS):
            held = torch.arange(23) % FOLDS == g
            A = change[~held].mT @ f[~held] / (~held).sum()
            rows = torch.cat([A, (ridge * largest / 23) ** 0.5 * f])  # ‖Aθ − b‖² + λ s E[(φᵀθ)²]
            theta = torch.linalg.lstsq(
                rows, torch.cat([b, torch.zeros(23).double()]), driver="gelsd"
            ).solution
            error = change[held].mT @ f[held] / held.sum() @ theta - b
            assert float(got[g]) == pytest.approx(float(error.square().sum() / b.square().sum()), rel=1e-5)
    mean = found.mean(0)
    best = int(mean.argmin())
    allowed = float(mean[best] + found[:, best].std() / FOLDS**0.5)
    chosen, violation = equations.choose()
    assert float(chosen) == max(ridge for ridge, worth in zip(GRID, mean, strict=True) if worth <= allowed)
    assert float(chosen) > 0
    assert float(violation) == pytest.approx(float(mean[GRID.index(float(chosen))]) ** 0.5)
    w = (equations.phi @ equations.dual(chosen).unsqueeze(-1)).squeeze(-1)
    flow = (w[0].unsqueeze(-1) * change).mean(0)
    assert float(equations.violation(w)) == pytest.approx(float((flow - b).norm() / b.norm()), rel=1e-5)


def test_gradients_reach_the_latent() -> None:
    given = case(Measure(), mixed=False)
    problem = random_rows(given.problem, 60, 5)
    z = given.z[:2].clone().requires_grad_()
    (slope,) = torch.autograd.grad(by_lstd(problem, z, 0.1).mean.sum(), z)
    step = 1e-5 * torch.randn(z.shape, generator=seeded(6), dtype=torch.float64)
    with torch.no_grad():
        difference = by_lstd(problem, z + step, 0.1).mean.sum() - by_lstd(problem, z - step, 0.1).mean.sum()
    assert float(difference) == pytest.approx(float(2 * (slope * step).sum()), rel=1e-5)
    assert abs(float(difference)) > 1e-8


def test_the_error_is_that_of_other_samples() -> None:
    """The delta method's standard error against the spread over independent samples, from one start state."""
    policy = torch.rand(STATES, 2, generator=seeded(5), dtype=torch.float64).softmax(-1)
    model = Table(torch.randn(STATES, 2, 4, generator=seeded(7), dtype=torch.float64), policy)
    given = ValueProblem(model, replace(exact_sample(corridor(True)), starts=EVERY[:1]))
    z = torch.zeros(1, 4, dtype=torch.float64)
    found = [by_lstd(random_rows(given, 800, seed), z, 0.0) for seed in range(200)]
    spread = torch.stack([one.mean for one in found]).std(0)
    told = torch.stack([one.error for one in found]).square().mean(0).sqrt()
    torch.testing.assert_close(told, spread, rtol=0.25, atol=0)


def test_start_states_add_their_share_to_the_error() -> None:
    """With all transitions known exactly, what is left is the spread of the values of start states."""
    given = case(Measure(), mixed=False)
    starts = EVERY[torch.multinomial(given.model.mdp.start, 500, replacement=True, generator=seeded())]
    evidence = replace(given.problem.evidence, starts=starts)
    found = by_lstd(replace(given.problem, evidence=evidence), given.z, float("inf"))
    policy = given.model.policy(given.z)
    Q = torch.einsum("ksat,nt->knsa", given.model.mdp.successor(policy), REWARDS)
    V = (1 - GAMMA) * torch.einsum("ksa,knsa->kns", policy, Q) @ starts.mT  # [K, T, S]
    torch.testing.assert_close(found.error, V.std(-1) / 500**0.5, **EXACT)
