"""What is learned for every latent is exact on tables: fitted Q evaluation and the DICE family."""

from typing import Any

import pytest
import torch
from known_transitions import EVERY, GAMMA, REWARDS, STATES, Table, corridor, exact_sample, occupancy, seeded
from torch import Tensor

from zol.testing.exact import ExactFB
from zol.value import ESTIMATORS, ValueProblem
from zol.value.algaedice import inner_minimum
from zol.value.dice import DICESettings, LinearSaddle
from zol.value.linear import orthonormal
from zol.value.steps import Steps

EXACT: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-7}
DICE = ["dualdice", "gradientdice", "warmdice", "algaedice"]
Z = torch.zeros(1, 3, dtype=torch.float64)


def table(terminal: bool, greedy: bool = False) -> tuple[ValueProblem, Tensor, Tensor]:
    """A model that knows nothing but a policy; the policy, and what it earns."""
    mdp = corridor(terminal)
    policy = torch.rand(STATES, 2, generator=seeded(5), dtype=torch.float64).softmax(-1)
    if greedy:  # networks are not linear in actions, so theirs must be certain
        policy = torch.nn.functional.one_hot(policy.argmax(-1), 2).double()
    model = Table(torch.randn(STATES, 2, 3, generator=seeded(7), dtype=torch.float64), policy)
    return ValueProblem(model, exact_sample(mdp)), policy, mdp.value(policy, REWARDS)


@pytest.mark.parametrize("terminal", [False, True])
def test_fitted_q_evaluation_of_a_table_is_exact(terminal: bool) -> None:
    """One regression per iteration, in closed form: γ^(20/(1 − γ)) of the first guess is left."""
    problem, _, truth = table(terminal)
    estimator = ESTIMATORS["fqe"]
    assert estimator.settings is not None
    settings = estimator.settings.updated(layers=0, horizons=20.0)
    torch.testing.assert_close(estimator.estimate(problem, Z, settings).mean[0], truth, **EXACT)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_task_critic_of_several_policies_is_exact_in_a_table(terminal: bool) -> None:
    """Three latents with three policies share one critic; each has its own closed-form value."""
    mdp = corridor(terminal)
    model = ExactFB(mdp, torch.full((STATES,), 1 / STATES, dtype=torch.float64), generator=seeded(9))
    z = model.project(torch.randn(3, STATES, generator=seeded(10), dtype=torch.float64))
    truth = torch.stack([mdp.value(policy, REWARDS) for policy in model.policy(z)])
    assert float((truth[0] - truth[1]).abs().min()) > 0.01  # they do differ
    estimator = ESTIMATORS["task_critic"]
    assert estimator.settings is not None
    settings = estimator.settings.updated(layers=0, horizons=20.0)
    found = estimator.estimate(ValueProblem(model, exact_sample(mdp)), z, settings)
    torch.testing.assert_close(found.mean, truth, **EXACT)
    torch.testing.assert_close(found.diagnostics["doubt"], torch.zeros(3, 2, dtype=torch.float64), **EXACT)


def test_a_task_critic_is_pessimistic_where_its_members_disagree() -> None:
    problem, _, _ = table(False, greedy=True)
    estimator, latents = ESTIMATORS["task_critic"], torch.randn(4, 3, generator=seeded(), dtype=torch.float64)
    assert estimator.settings is not None
    small = estimator.settings.updated(steps=3, hidden=4, horizons=0.5)
    plain, careful = (
        estimator.estimate(problem, latents, small.updated(pessimism=kappa)) for kappa in (0.0, 2.0)
    )
    doubt = plain.diagnostics["doubt"]
    assert float(doubt.min()) > 0.0
    torch.testing.assert_close(careful.mean, plain.mean - 2 * doubt)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", DICE)
def test_dice_of_a_table_is_exact(name: str, terminal: bool) -> None:
    """By the saddle point of the convex problem, which is one linear system."""
    problem, policy, truth = table(terminal)
    estimator = ESTIMATORS[name]
    assert estimator.settings is not None
    found = estimator.estimate(problem, Z, estimator.settings.updated(layers=0, ridge=0.0))
    torch.testing.assert_close(found.mean[0], truth, **EXACT)
    mass = float(occupancy(corridor(terminal), policy).sum())
    assert float(found.diagnostics["mean_ratio"]) == pytest.approx(mass, abs=1e-8)
    assert float(found.diagnostics["flow_residual"]) < 1e-8
    assert float(found.diagnostics["negative_share"]) == 0.0


@pytest.mark.parametrize("name", DICE)
def test_the_saddle_point_is_the_true_ratio(name: str) -> None:
    """Every member of the family, in a table; the gradients of the Lagrangian are zero there."""
    problem, policy, _ = table(False)
    steps, settings = Steps.of(problem, Z), ESTIMATORS[name].settings
    assert isinstance(settings, DICESettings)

    def pairs(obs: Tensor, action: Tensor) -> Tensor:
        return torch.einsum("ns,...na->...nsa", obs, action).flatten(-2)

    here = pairs(steps.obs, steps.action)
    change = here - GAMMA * pairs(steps.next_obs, steps.next_action)[0]
    start = (1 - GAMMA) * pairs(steps.starts, steps.start_action)[0].mean(0)
    W = orthonormal(here[None])[0][0]
    phi, change, start, n = here @ W, change @ W, start @ W, len(here)
    reward = steps.rewards[0] @ phi / n if settings.reward else None
    saddle = LinearSaddle(
        (change.mT @ phi / n)[None],
        start[None],
        phi.mean(0)[None],
        phi.mean(0)[None],  # of ζ0 = 1
        None if reward is None else reward[None],
    )
    w = phi @ saddle.ratio(settings.updated(ridge=0.0))[0]
    data = torch.einsum("ns,na->sa", steps.obs, steps.action) / n
    true = (occupancy(corridor(False), policy) / data)[steps.obs.argmax(-1), steps.action.argmax(-1)]
    torch.testing.assert_close(w, true, **EXACT)

    def lagrangian(theta: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """The definition, one term after the other."""
        zeta, g = phi @ theta, phi @ x
        L = start @ x - (zeta * (change @ x)).mean() + settings.alpha / 2 * (zeta - 1).square().mean()
        L = L - settings.penalty / 2 * g.square().mean() - settings.reward * (zeta * steps.rewards[0]).mean()
        return L + settings.mass * (u * (zeta.mean() - 1) - u.square() / 2)

    # Given the ratio, the best g and u; the gradient in ζ is then zero as well, by the first equation.
    A, c = change.mT @ phi / n, 0.0 if reward is None else reward
    theta = phi.mT @ w / n
    x = torch.linalg.solve(A.mT, settings.alpha * (theta - phi.mean(0)) - c)
    parts = [part.clone().requires_grad_() for part in (theta, x, torch.zeros((), dtype=torch.float64))]
    for slope in torch.autograd.grad(lagrangian(*parts), parts):
        assert float(slope.norm()) < 1e-7


def test_the_saddle_point_where_nothing_fits_is_that_of_least_squares() -> None:
    """With α, p > 0 the best x is (b − Aθ)/p, and θ minimises what is left, with mass one."""
    A, b = (torch.randn(*size, generator=seeded(1), dtype=torch.float64) for size in ((4, 3), (4,)))
    n, base, c = torch.randn(3, 3, generator=seeded(2), dtype=torch.float64)
    settings = DICESettings(alpha=0.5, penalty=0.2, ridge=0.1)
    found = LinearSaddle(A[None], b[None], n[None], base[None], c[None]).ratio(settings)[0]
    alpha, penalty = 0.6, 0.3  # the ridge is added to both
    square = alpha * torch.eye(3).double() + A.mT @ A / penalty
    system = torch.cat([torch.cat([square, n[:, None]], 1), torch.cat([n, torch.zeros(1)])[None]])
    right = torch.cat([alpha * base + c + A.mT @ b / penalty, torch.ones(1)])
    torch.testing.assert_close(found, torch.linalg.solve(system, right)[:3], **EXACT)


@pytest.mark.parametrize("name", [*DICE, "fqe", "task_critic"])
def test_networks_near_the_exact_value(name: str) -> None:
    """A short training from the data's own distribution; the last layers are solved for."""
    problem, _, truth = table(False, greedy=True)
    estimator = ESTIMATORS[name]
    assert estimator.settings is not None
    small = {"steps": 20, "hidden": 16} | ({"ridge": 1e-5} if name in DICE else {})
    found = estimator.estimate(problem, Z, estimator.settings.updated(**small))
    before = problem.evidence.rewards.mean(-1)
    assert float((found.mean[0] - truth).abs().max()) < 0.05 * float((before - truth).abs().max())


def regularised_optimum(
    P: Tensor, gain: Tensor, data: Tensor, start: Tensor, alpha: float
) -> tuple[float, Tensor]:
    """max_d E_d[r] − (α/2) E_β[(d/β)²] over occupancies by a general solver, and the policy of the best d."""
    import numpy as np

    optimize = pytest.importorskip("scipy.optimize")
    S, A = gain.shape
    beta, r = data.flatten().numpy(), gain.flatten().numpy()
    flow = np.kron(np.eye(S), np.ones(A)) - GAMMA * P.reshape(S * A, S).numpy().T
    right = (1 - GAMMA) * start.numpy()
    found = optimize.minimize(
        lambda w: -(beta * w) @ r + alpha / 2 * beta @ w**2,
        np.ones(S * A),
        method="SLSQP",
        bounds=[(0.0, None)] * (S * A),
        constraints={"type": "eq", "fun": lambda w: flow @ (beta * w) - right, "jac": lambda w: flow * beta},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    d = torch.from_numpy(beta * found.x).reshape(S, A)
    return -float(found.fun), d / d.sum(-1, keepdim=True)


def test_algaedice_ascends_to_the_regularised_optimum() -> None:
    """max_π min_ν over all policies of a small MDP, by gradient ascent in logits."""
    S, A, alpha = 4, 2, 0.5
    P = torch.rand(S, A, S, generator=seeded(3), dtype=torch.float64) ** 3
    P = P / P.sum(-1, keepdim=True)
    reward = torch.rand(S, generator=seeded(4), dtype=torch.float64)
    count = torch.randint(1, 4, (S, A), generator=seeded(5))
    grid = torch.cartesian_prod(torch.arange(S), torch.arange(A))
    s, a = grid.repeat_interleave(count.flatten(), 0).unbind(-1)
    eye, start = torch.eye(S, dtype=torch.float64), EVERY[[0, 0, 1], :S]
    gain, n = P @ reward, len(s)
    phi = (eye[s].unsqueeze(-1) * torch.eye(A).double()[a].unsqueeze(-2)).reshape(1, n, S * A)
    logits = torch.zeros(S, A, dtype=torch.float64, requires_grad=True)
    discount = torch.full((n,), GAMMA, dtype=torch.float64)

    def objective() -> Tensor:
        policy = logits.softmax(-1)
        following = (P[s, a].unsqueeze(-1) * policy).reshape(1, n, S * A)  # expected features of (s', a')
        begin = (start.unsqueeze(-1) * policy).reshape(1, 3, S * A)
        return inner_minimum(phi, following, begin, discount, gain[s, a][None], GAMMA, alpha).sum()

    optimiser = torch.optim.LBFGS([logits], max_iter=300, line_search_fn="strong_wolfe", tolerance_change=0)

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -objective()
        loss.backward()
        return loss

    optimiser.step(closure)
    best, policy = regularised_optimum(P, gain, count.double() / n, start.mean(0), alpha)
    with torch.no_grad():
        assert float(objective()) == pytest.approx(best, abs=1e-6)
        torch.testing.assert_close(logits.softmax(-1), policy, rtol=0, atol=1e-3)
        logits.copy_((count / count.sum(-1, keepdim=True)).log())  # the data's own policy has less
        assert float(objective()) < best - 1e-4
