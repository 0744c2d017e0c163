"""Options of FB for stability: centred measure, a B that stands still, latents of a prior over rewards."""

import re
from typing import Any

import pytest
import torch
from ring import GAMMA as RING_GAMMA
from ring import STATES as RING_STATES
from ring import exact_measure, ring
from torch import Tensor

from zol import measure
from zol.common.config import ConfigError
from zol.common.errors import DataError
from zol.data import Batch
from zol.data.sampling import Sampler
from zol.models import MODELS, prior_latents
from zol.models.base import CENTRED
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.models.layers import unit
from zol.models.losses import centring_term, dense_loss, gram_loss, pessimistic, q_loss, standing_loss
from zol.models.reward_prior import evaluate
from zol.testing.exact import ExactFB
from zol.worlds.tabular import FiniteMDP

GAMMA, ENDS = 0.8, 5  # the state in which episodes end
FOLLOWS = torch.tensor([[1, 0], [2, 0], [3, 1], [4, 3], [5, 2]])  # where (s, a) leads
POLICY = torch.tensor([0, 0, 1, 0, 1])  # what π does in the other states
SMALL: dict[str, Any] = {"obs_dim": 3, "action_dim": 2, "z_dim": 6, "hidden": 16, "backward_hidden": 16}
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


class Solved:
    """F and B that solve the centred equation of π, on rows that are all the pairs (s, a) of a small MDP."""

    def __init__(self) -> None:
        S = 6
        transition = torch.zeros(S, 2, S, dtype=torch.float64)
        transition[torch.arange(5).unsqueeze(1), torch.arange(2), FOLLOWS] = 1
        transition[ENDS, :, ENDS] = 1
        terminal = torch.arange(S) == ENDS
        self.mdp = FiniteMDP(transition, torch.full((S,), 1 / S, dtype=torch.float64), GAMMA, terminal)
        self.policy = torch.nn.functional.one_hot(torch.cat([POLICY, torch.zeros(1, dtype=torch.long)]), 2)
        self.next = FOLLOWS.flatten()  # [10]
        self.rho = torch.bincount(self.next, minlength=S).double() / 10
        turn = torch.linalg.qr(draw(S, S))[0]
        self.B = (turn / self.rho.sqrt()).mT  # of every state, [S, d]
        self.M = self.mdp.successor(self.policy.double())  # [S, A, S]
        self.F = (self.M / self.rho.sqrt() - self.rho.sqrt() / (1 - GAMMA)) @ turn.mT  # [S, A, d]
        self.gamma = GAMMA * (self.next != ENDS).double()

    def rows(self) -> Tensor:
        """F of every row, [1, 10, d]."""
        return self.F[:5].flatten(0, 1).unsqueeze(0)

    def following(self, state: Tensor) -> Tensor:
        """F(s', π(s')) of these states; where episodes have ended, anything."""
        return self.F[state, self.policy.argmax(-1)[state]]


@pytest.fixture(scope="module")
def solved() -> Solved:
    return Solved()


class TestCentredMeasure:
    """m = 1/(1 − γ) + FᵀB."""

    @pytest.mark.parametrize("penalty", [0.0, 0.5])
    @pytest.mark.parametrize("members", [1, 3])
    def test_the_term_is_what_the_square_of_pairs_gains(self, members: int, penalty: float) -> None:
        """The slow form: the Bellman error of 1/(1 − γ) + FᵀB for every pair; steps, stretches and ends."""
        n, d = 13, 4
        F, B = draw(members, n, d).requires_grad_(), draw(n, d, seed=1).requires_grad_()
        target_F, target_B = draw(members, n, d, seed=2), draw(n, d, seed=3)
        length = torch.arange(n, dtype=torch.float64) % 4 + 1
        gamma, mass = GAMMA**length * (torch.arange(n) % 5 > 0), (1 - GAMMA**length) / (1 - GAMMA)
        constant = (1 - gamma) / (1 - GAMMA)
        if penalty:
            fast = dense_loss(F, B, pessimistic(target_F @ target_B.mT, penalty), gamma, mass).value
        else:
            fast = gram_loss(F, B, target_F.mean(0), target_B, gamma, mass).value
        fast = fast + centring_term(F, B, constant)
        whole = 1 / (1 - GAMMA)
        later = pessimistic(whole + target_F @ target_B.mT, penalty)
        slow = torch.zeros((), dtype=torch.float64)
        for member in F:
            for i in range(n):
                for j in range(n):
                    m = whole + member[i] @ B[j]
                    if i == j:
                        slow = slow - mass[i] * m / n
                    else:
                        slow = slow + 0.5 * (m - gamma[i] * later[i, j]).square() / (n * (n - 1))
        for a, b in zip(torch.autograd.grad(fast, (F, B)), torch.autograd.grad(slow, (F, B)), strict=True):
            torch.testing.assert_close(a, b, **EXACT)

    def test_its_solution_is_stationary(self, solved: Solved) -> None:
        """In F and in B, with a terminal state: the expected loss over independent rows i and j."""
        F, B = solved.rows()[0].clone().requires_grad_(), solved.B.clone().requires_grad_()
        goals = B[solved.next]
        later = solved.following(solved.next) @ goals.detach().mT
        constant = (1 - solved.gamma) / (1 - GAMMA)
        square = 0.5 * (F @ goals.mT - solved.gamma.unsqueeze(1) * later).square().mean()
        added = (constant.unsqueeze(1) * (F @ goals.mT)).mean()
        loss = square + added - (F * goals).sum(-1).mean()
        for gradient in torch.autograd.grad(loss, (F, B)):
            torch.testing.assert_close(gradient, torch.zeros_like(gradient), **EXACT)

    def test_the_loss_of_values_is_zero_at_the_solution(self, solved: Solved) -> None:
        """Moves are certain, so that nothing of the error is left."""
        B, z = solved.B[solved.next], draw(10, 6, seed=4)
        target = solved.following(solved.next).unsqueeze(0)
        constant = (1 - solved.gamma) / (1 - GAMMA)
        right = q_loss(solved.rows(), B, z, target, solved.gamma, 0.5, None, constant)
        assert float(right) == pytest.approx(0, abs=1e-16)
        assert float(q_loss(solved.rows(), B, z, target, solved.gamma, 0.5)) > 0.1

    def test_ratio_and_value_are_read_off_as_they_are(self, solved: Solved) -> None:
        """By zol.measure, from features that keep their mean."""
        model = ExactFB(solved.mdp, solved.rho, measure=CENTRED, features_centred=False)
        every, z = torch.eye(6, dtype=torch.float64), draw(6, seed=5)
        B, policy = model.backward(every), model.policy(z)
        assert float(B.mT @ solved.rho @ (B.mT @ solved.rho)) == pytest.approx(1)
        mu = measure.forward_mean(model, every, z)
        occupancy = solved.mdp.occupancy(policy)
        torch.testing.assert_close(measure.raw_ratio(model, mu, B), occupancy / solved.rho, **EXACT)
        reward = draw(6, seed=6)
        moment, mean = B.mT @ (solved.rho * reward), solved.rho @ reward
        Q = measure.action_value(model, model.forward(every, z, policy), moment, mean).squeeze(0)
        expected = torch.einsum("sa,sat,t->s", policy, solved.mdp.successor(policy), reward)
        torch.testing.assert_close(Q, expected, **EXACT)

    def test_networks_and_settings_know_it(self) -> None:
        config = FBConfig(**SMALL, centred=True)
        assert fb_network(config).measure == CENTRED
        for name in ("one_step_fb", "fb_cpr"):
            entry, settings = MODELS[name], SMALL | {"centred": True}
            assert entry.network(entry.config(**settings)).measure == CENTRED
        with pytest.raises(ConfigError, match="a measure that is not centred: it is trained further with"):
            FBLearner(fb_network(FBConfig(**SMALL)), config)
        with pytest.raises(ConfigError, match="a measure that is centred"):
            FBLearner(fb_network(config), FBConfig(**SMALL))


class TestStandingBackward:
    """The loss of F alone, and when it begins."""

    @pytest.mark.parametrize("centred", [False, True])
    def test_it_is_the_loss_of_all_pairs(self, centred: bool) -> None:
        """With C and E[B] of the batch: the square over pairs, also i = j, has the same gradient in F."""
        n, d, members = 11, 4, 2
        F, B, target = draw(members, n, d).requires_grad_(), draw(n, d, seed=1), draw(n, d, seed=2)
        gamma = torch.linspace(0, 0.9, n, dtype=torch.float64)
        mass = torch.linspace(1, 3, n, dtype=torch.float64)
        constant = (1 - gamma) / (1 - GAMMA) if centred else None
        fast = standing_loss(F, B, target, gamma, B.mT @ B / n, B.mean(0), mass, constant).value
        error = F @ B.mT - (gamma.unsqueeze(-1) * target) @ B.mT
        if constant is not None:
            error = error + constant.unsqueeze(-1)
        slow = 0.5 * error.square().mean((1, 2)).sum() - (mass * (F * B).sum(-1)).mean(1).sum()
        torch.testing.assert_close(torch.autograd.grad(fast, F), torch.autograd.grad(slow, F), **EXACT)

    def test_for_an_orthonormal_b_it_is_that_of_successor_features(self) -> None:
        F, B, target = draw(2, 9, 4).requires_grad_(), draw(9, 4, seed=1), draw(9, 4, seed=2)
        gamma, eye = torch.linspace(0, 0.9, 9, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
        fast = standing_loss(F, B, target, gamma, eye, B.mean(0)).value
        slow = 0.5 * (F - B - gamma.unsqueeze(-1) * target).square().sum(-1).mean(1).sum()
        torch.testing.assert_close(torch.autograd.grad(fast, F), torch.autograd.grad(slow, F), **EXACT)

    @pytest.mark.parametrize("n", [1, 3])
    def test_the_solution_of_the_measure_is_its_own(self, solved: Solved, n: int) -> None:
        """After n steps of the policy, too, some of which end earlier."""
        where, counted = solved.next.clone(), torch.zeros(10, 6, dtype=torch.float64)
        going, length = torch.ones(10, dtype=torch.bool), torch.zeros(10, dtype=torch.float64)
        for k in range(n):
            counted += GAMMA**k * solved.B[where] * going.unsqueeze(1)
            length += going
            going = going & (where != ENDS)
            if k < n - 1:
                following = FOLLOWS[where.clamp_max(4), POLICY[where.clamp_max(4)]]
                where = torch.where(going, following, where)
        gamma, mass = GAMMA**length * (where != ENDS), (1 - GAMMA**length) / (1 - GAMMA)
        F, rho = solved.rows().clone().requires_grad_(), solved.rho
        C, mean = torch.eye(6, dtype=torch.float64), solved.B.mT @ rho
        on_the_way = counted / mass.unsqueeze(1)  # the mean of B over the states that a goal is drawn from
        constant = (1 - gamma) / (1 - GAMMA)
        loss = standing_loss(F, on_the_way, solved.following(where), gamma, C, mean, mass, constant).value
        (gradient,) = torch.autograd.grad(loss, F)
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), **EXACT)

    def test_b_and_what_it_sees_stand_still_from_then_on(self) -> None:
        config = FBConfig(**SMALL, normalise_obs=True)
        standing = FBLearner(fb_network(config), config.updated(freeze_backward=0.4))
        moving = FBLearner(fb_network(config), config)
        kept: dict[str, Tensor] = {}
        for step in range(10):
            obs, action, next_obs = torch.randn(32, 8, generator=seeded(step)).split((3, 2, 3), dim=1)
            batch = Batch(obs, action, next_obs, torch.zeros(32, dtype=torch.bool))
            for one in (standing, moving):
                one.note_progress(step / 10)
                one.update(batch, seeded(step))
            state = standing.model.state_dict()
            if step == 3:
                assert all(
                    torch.equal(value, state[name]) for name, value in moving.model.state_dict().items()
                )
                kept = {name: value.clone() for name, value in state.items()}
        for name, value in standing.model.state_dict().items():
            still = name.startswith(("backward_map", "normaliser"))
            assert torch.equal(value, kept[name]) == still, name
        with torch.no_grad():
            B = standing.model.backward(batch.next_obs)
        assert int(standing.standing.mean.batches) == 6
        assert standing.standing.covariance.value.shape == (B.shape[1], B.shape[1])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"freeze_backward": 0.4, "pessimism": 0.5}, "not computed any more once B stands still"),
            ({"freeze_backward": 0.4, "frozen": True}, "so that B never moves: leave freeze_backward out"),
            ({"freeze_backward": 1.0}, "freeze_backward"),
            ({"averaging": 0.01, "actor_averaging": 0.1}, "averages the actor, too: leave actor_averaging"),
        ],
        ids=str,
    )
    def test_what_does_not_go_together_is_said(self, change: dict, message: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(message)):
            FBConfig(**SMALL, **change)


@pytest.mark.parametrize(
    "change",
    [{"centred": True}, {"centred": True, "freeze_backward": 0.5, "n_step": 3}],
    ids=str,
)
def test_the_measure_of_a_behaviour_is_learned(change: dict) -> None:
    """One-step FB on a ring, whose measure is a matrix."""
    data, entry, steps = ring(4000, 0), MODELS["one_step_fb"], 300
    sizes: dict[str, Any] = {"hidden": 64, "backward_hidden": 32, "backward_norm": False, "members": 1}
    rates: dict[str, Any] = {"learning_rate": 3e-3, "backward_learning_rate": 3e-3, "target_rate": 0.1}
    config = entry.config(
        obs_dim=RING_STATES, action_dim=2, z_dim=RING_STATES, discount=RING_GAMMA, discrete=True,
        **sizes, **rates, **change,
    )  # fmt: skip
    learner = entry.learner(entry.network(config, seeded()), config)
    generator, sampler = seeded(1), Sampler(data, torch.device("cpu"), learner.batches)
    for step in range(steps):
        learner.scale_learning_rates(min(1.0, 1.4 * (steps - step) / steps))
        learner.note_progress(step / steps)
        learner.update(sampler.draw(learner.batches, 256, generator), generator)
    model, eye = learner.model, torch.eye(RING_STATES)
    rho = data.transitions().next_obs.mean(0)
    z, every = torch.randn(RING_STATES, 1, RING_STATES), torch.eye(2).expand(RING_STATES, 2, 2)
    with torch.no_grad():
        F, B = model.forward(eye.unsqueeze(1), z, every).mean(0), model.backward(eye)
        found = measure.raw_ratio(model, F, B) * rho / (1 - RING_GAMMA)
    torch.testing.assert_close(found, exact_measure(), atol=0.12, rtol=0)


class TestLatentsOfThePrior:
    """z = Π(E[B r]) of random rewards over the columns of a batch."""

    def test_quantiles_by_counting(self) -> None:
        states = torch.randint(4, (20, 3), generator=seeded()).double()
        states[:, 2] = draw(20)
        found = prior_latents.quantiles(states)
        for i in range(20):
            for k in range(3):
                column, x = states[:, k], states[i, k]
                expected = ((column < x).sum() + 0.5 * (column == x).sum()) / 20
                assert float(found[i, k]) == pytest.approx(float(expected))

    def test_each_is_the_prompt_of_a_reward(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn: list[Tensor] = []

        def spy(rewards: Tensor, values: Tensor) -> Tensor:
            drawn.append(evaluate(rewards, values))
            return drawn[-1]

        monkeypatch.setattr(prior_latents, "evaluate", spy)
        B, states = draw(200, 5), draw(200, 4, seed=1)
        z = prior_latents.reward_latents(B, states, seeded(2))
        (rewards,) = drawn
        assert 32 < len(z) <= prior_latents.REWARDS
        assert float(rewards.std(0).min()) >= 0.03
        assert 0 <= float(rewards.min()) <= float(rewards.max()) <= 1 + 1e-6
        for k, row in enumerate(z):
            torch.testing.assert_close(row, unit(sum(rewards[i, k] * B[i] for i in range(200)) / 200))  # type: ignore[arg-type]
        moved = prior_latents.reward_latents(B, 100 * states**3 + 7, seeded(2))
        torch.testing.assert_close(moved, z)  # no unit of a column matters

    def test_their_share_of_the_training_latents(self) -> None:
        config = FBConfig(**SMALL, prior_share=0.3)
        learner, plain = (FBLearner(fb_network(c), c) for c in (config, FBConfig(**SMALL)))
        B, states = torch.randn(4000, 6, generator=seeded()), torch.randn(4000, 3, generator=seeded(1))
        z, others = learner.training_latents(B, seeded(2), states), plain.training_latents(B, seeded(2))
        replaced = (z != others).any(-1)
        assert float(replaced.float().mean()) == pytest.approx(0.3, abs=0.03)
        assert len(z[replaced].unique(dim=0)) <= prior_latents.REWARDS
        with pytest.raises(
            DataError, match=r"FBLearner gives none: training_latents\(B, generator, states\)"
        ):
            learner.training_latents(B, seeded(2))

    def test_states_that_do_not_vary_say_nothing(self) -> None:
        config = FBConfig(**SMALL, prior_share=1.0)
        learner, B = FBLearner(fb_network(config), config), torch.randn(50, 6)
        plain = FBLearner(fb_network(FBConfig(**SMALL)), FBConfig(**SMALL))
        z = learner.training_latents(B, seeded(), torch.ones(50, 3))
        assert torch.equal(z, plain.training_latents(B, seeded()))

    def test_rewards_are_about_the_columns_that_b_reads(self) -> None:
        config = FBConfig(**SMALL, prior_share=1.0, goal_columns="1:3")
        learner, B = FBLearner(fb_network(config), config), torch.randn(50, 6)
        states = torch.randn(50, 3)
        one = learner.training_latents(B, seeded(), states)
        states[:, 0] = torch.randn(50)
        assert torch.equal(one, learner.training_latents(B, seeded(), states))

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("fb_cpr", {"prior_share": 0.1}, "mixes its latents in its own way"),
            ("fb_cpr", {"freeze_backward": 0.1}, "B follows what its policies visit"),
            ("prior_features", {"prior_share": 0.1}, "are those of rewards already"),
        ],
    )
    def test_models_that_cannot_say_so(self, name: str, change: dict, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            MODELS[name].config(**SMALL, **change)


def test_features_are_not_averaged_without_their_covariance() -> None:
    entry = MODELS["hilp"]
    config = entry.config(**SMALL, averaging=0.01)
    with pytest.raises(ConfigError, match=r"a hilp model averages its actor alone, actor_averaging=0\.01"):
        entry.learner(entry.network(config), config)
