r"""The value of a latent by a d×d correction of what the model says about it.

The features are the model's own, φ(s, a) = [F(s, a, z), 1] (zol.measure): the span in which its values lie.
F solves the Bellman equation approximately. In its span the equation can be solved exactly on the data, by
one linear system per latent (zol.value.linear). With Q_F the model's own value and w = φᵀθ its ratio,

    J = (1 − γ) E_0[Q_F(s0, π_z(s0))] + E_β[ w(s, a) (r + γ'Q_F(s', π_z(s')) − Q_F(s, a)) ]

Without shrinkage Q_F drops out, and J is LSTD-Q's value and E_β[w r] at once. With an infinite one w = 0, and
J is the model's own value. In between, w has to repair only what is left of the TD error: J is exact if the
ratio *or* the Q-function is, also where F is wrong. One rule chooses the shrinkage of every latent: how well
w follows the flow equation on transitions that it was not fitted to. No reward enters.

F is the mean of the ensemble, as in the free ratio and in the targets that F was trained with. One head alone
would be another span than that of the values it corrects, and all heads side by side twice as many unknowns.

The standard error is the delta method's. The influence of a transition is w (r + γ'Q' − Q)/N with the
corrected Q, that of a start state (1 − γ) Q(s0)/S, and both samples are independent.
"""

import torch
from torch import Tensor

from zol import measure, prompt
from zol.models.base import Model
from zol.value.base import Estimator, ValueEstimate, ValueProblem, joined
from zol.value.linear import GRID, FlowEquations
from zol.value.steps import Steps, latent_chunks


def by_lstd(problem: ValueProblem, z: Tensor, ridge: float | None = None) -> ValueEstimate:
    """The corrected value of latents ``[K, d]``; ``ridge`` instead of the λ that is chosen for each of them.

    Differentiable in z, for searches; :meth:`Estimator.estimate` computes no gradients.
    """
    samples = 0 if problem.transitions is None else len(problem.transitions.obs)
    parts = latent_chunks(samples, 2 * problem.model.z_dim, z)
    return joined([_correct(problem, part, ridge) for part in parts])


def _correct(problem: ValueProblem, z: Tensor, ridge: float | None) -> ValueEstimate:
    model, steps, moments = problem.model, Steps.of(problem, z), problem.moments
    phi, following, start = value_features(model, steps, z)
    equations = FlowEquations.of(phi, following, start, steps.discount, steps.gamma)
    chosen, violation = equations.choose(GRID if ridge is None else (ridge,))
    # In units of reward per step: Q here is (1 − γ) Q, and so are TD errors.
    own = measure.own_value_weights(model, moments.moment, moments.weights, moments.mean).double().mT
    unit, gamma = 1.0 - steps.gamma, steps.discount.double().unsqueeze(-1)
    own_error = unit * steps.rewards.double().mT + (gamma * following - phi) @ own  # [K, N, T]
    w = (equations.phi @ equations.dual(chosen).unsqueeze(-1)).squeeze(-1)  # [K, N]
    n = w.shape[-1]
    correction = torch.einsum("kn,knt->kt", w, own_error) / (n * unit)
    change = equations.primal(chosen, own_error)  # of the weights of Q, [K, m, T]
    error = own_error - equations.change @ change
    value = start @ own + equations.start @ change  # of the start states, [K, S, T]
    by_row = (w.unsqueeze(-1) * error / unit).std(-2) / n**0.5
    by_start = value.std(-2) / value.shape[-2] ** 0.5 if value.shape[-2] > 1 else torch.zeros_like(by_row)
    dtype = problem.evidence.obs.dtype
    diagnostics = measure.diagnose(w, w) | {"flow_residual": violation, "ridge": chosen}
    return ValueEstimate(
        ((start @ own).mean(-2) + correction).to(dtype),
        (by_row.square() + by_start.square()).sqrt().to(dtype),
        {name: x.to(dtype) for name, x in diagnostics.items()},
        weights=w.to(dtype),
    )


def value_features(model: Model, steps: Steps, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """φ(s, a), φ(s', a') ``[K, N, m]`` and φ(s0, a0) ``[K, S, m]`` of latents ``[K, d]``, in float64."""

    def of(obs: Tensor, action: Tensor) -> Tensor:
        F = model.forward(obs, z.unsqueeze(-2), action).mean(0)
        return measure.value_features(model, F, prompt.regressors(model)(obs)).double()

    return (
        of(steps.obs, steps.action),
        of(steps.next_obs, steps.next_action),
        of(steps.starts, steps.start_action),
    )


ESTIMATOR = Estimator(
    by_lstd,
    formula="LSTD-Q on the data, features [F(s, a, z), 1]",
    interval="transitions and start states",
    cost="two passes of F over K × N transitions, and K systems of d + 1 equations",
    needs_transitions=True,
)
