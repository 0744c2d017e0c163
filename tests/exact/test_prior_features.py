"""The update of successor features of a prior, against a computation row by row."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from zol.collect.donut import collect
from zol.common.errors import DataError
from zol.data import Batch, BatchSpec, Dataset
from zol.data.sampling import Sampler
from zol.models.prior_features import MODEL, PriorFeaturesConfig, PriorFeaturesLearner, quantities_of
from zol.worlds import make
from zol.worlds.donut import Donut

GAMMA = 0.9


@pytest.fixture(scope="module")
def data() -> Dataset:
    return collect(3_000, torch.Generator().manual_seed(0))


def made(data: Dataset, **change: object) -> PriorFeaturesLearner:
    settings: dict[str, object] = {"z_dim": 5, "hidden": 16, "backward_hidden": 16, "rewards": 16}
    settings |= {"quantities": ("position:0", "position:1"), "discount": GAMMA, "first_rewards": 4}
    settings |= {"feature_steps": 3}
    config = PriorFeaturesConfig(obs_dim=2, action_dim=2, **settings | change)  # type: ignore[arg-type]
    learner = PriorFeaturesLearner(MODEL.network(config, torch.Generator().manual_seed(1)), config)
    learner.use_layout(Donut().layout)
    g = torch.Generator().manual_seed(2)
    learner.prepare(data.sample(500, g).next_obs, g)
    return learner


def batch_of(data: Dataset, learner: PriorFeaturesLearner, n: int = 12) -> Batch:
    g = torch.Generator().manual_seed(3)
    batch = Sampler(data, torch.device("cpu"), learner.batches).draw(learner.batches, n, g)
    z = learner.model.project(torch.randn(n, 5, generator=g))
    terminated = torch.arange(n) % 4 == 0
    return replace(batch, z=z, terminated=terminated)


@torch.no_grad()
def slowly(learner, again, slow, batch, noise) -> tuple[float, float]:
    """Both losses of the successor features, row by row."""
    vector = scalar = 0.0
    for i in range(len(batch)):
        n, z = int(batch.path_length[i]), batch.z[i]
        last = batch.path_obs[i, n - 1]
        action = (again.act(last, z) + noise[i]).clamp(-1 + 1e-6, 1 - 1e-6)
        following = slow(again.read(last[None]), z[None], action[None])[:, 0]  # [P, d]
        gamma = 0.0 if batch.terminated[i] else GAMMA**n
        features = sum(GAMMA**k * again.regressors(batch.path_obs[i, k]) for k in range(n))
        y = features + gamma * following.mean(0)
        y_z = features @ z + gamma * (following @ z).min()  # of two members
        psi = again.forward(batch.obs[i], z, batch.action[i])
        vector += float(0.5 * (psi - y).square().sum()) / len(batch)
        scalar += float(0.5 * (psi @ z - y_z).square().sum()) / len(batch)
    return vector, scalar


@pytest.mark.parametrize("n_step", [1, 3])
def test_losses_equal_those_of_every_row(data: Dataset, n_step: int) -> None:
    learner = made(data, n_step=n_step, q_loss=0.7)
    batch = batch_of(data, learner)
    assert batch.z is not None
    assert batch.path_obs is not None
    assert batch.path_length is not None
    assert learner.batches == BatchSpec(path=n_step)
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    target = learner.target_forward
    found = learner.update(batch, torch.Generator().manual_seed(4))

    # Again, from the weights before; φ and its centre are those after the step of the features.
    after = learner.model.state_dict()
    kept = {name: value for name, value in after.items() if name.startswith(("backward_map", "centre"))}
    again = MODEL.network(learner.config)
    again.load_state_dict(before | kept | {k: v for k, v in after.items() if k.startswith("normaliser")})
    slow = made(data, n_step=n_step, q_loss=0.7).target_forward  # targets before they moved
    assert not torch.equal(next(iter(slow.parameters())), next(iter(target.parameters())))
    g = torch.Generator().manual_seed(4)
    noise = (0.2 * torch.randn(12, 2, generator=g)).clamp(-0.3, 0.3)
    vector, scalar = slowly(learner, again, slow, batch, noise)
    assert float(found["successor_features"]) == pytest.approx(vector, rel=1e-4)
    assert float(found["q"]) == pytest.approx(scalar, rel=1e-4)
    assert float(found["loss"]) == pytest.approx(vector + 0.7 * scalar, rel=1e-4)


def test_features_learn_those_that_span_the_prior(data: Dataset) -> None:
    states = data.sample(400, torch.Generator().manual_seed(6)).next_obs

    @torch.no_grad()
    def error(learner: PriorFeaturesLearner) -> float:
        wanted = learner.wanted_features(states)
        phi = learner.model.backward_map(learner.model.read(states))
        return float((phi - wanted).square().sum(-1).mean() / wanted.square().sum(-1).mean())

    slow = {"backward_learning_rate": 3e-3, "backward_hidden": 64}
    assert error(made(data, **slow, feature_steps=300)) < 0.1 < error(made(data, **slow, feature_steps=0))


def test_the_actor_moves_every_other_time(data: Dataset) -> None:
    learner = made(data, actor_every=2)
    batch = batch_of(data, learner)
    g = torch.Generator().manual_seed(4)
    weights = [next(iter(learner.model.actor.parameters())).clone()]
    for _ in range(3):
        learner.update(batch, g)
        weights.append(next(iter(learner.model.actor.parameters())).clone())
    moved = [not torch.equal(a, b) for a, b in pairwise(weights)]
    assert moved == [True, False, True]


def test_quantities_are_read_by_name() -> None:
    pytest.importorskip("mujoco")
    layout = make("walker").layout
    obs = torch.randn(7, 24, dtype=torch.float64)
    found = quantities_of(layout, ("torso_height", "joint_velocities:2", "torso_upright"))(obs)
    assert torch.equal(found, obs[:, [14, 20, 0]])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "needs the quantities that rewards depend on: --quantities, of position"),
        (("positon:0",), "no quantity of this world called 'positon:0'"),
        (("position",), "'position' has 2 columns: say which one is meant, such as position:0"),
        (("position:2",), "'position' has 2 columns"),
    ],
)
def test_quantities_that_do_not_exist(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        quantities_of(Donut().layout, names)(torch.zeros(1, 2))


def test_batches_without_latents_are_refused(data: Dataset) -> None:
    learner = made(data)
    batch = replace(batch_of(data, learner), z=None)
    with pytest.raises(DataError, match="practises in a world"):
        learner.update(batch, torch.Generator())
