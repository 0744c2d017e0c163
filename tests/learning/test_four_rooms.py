"""FB learns four rooms from random transitions, and ZOL does no harm there. All judged exactly."""

import pytest
import torch
from torch.nn import functional

from zol import measure, prompt
from zol.adapt import ZOLConfig, zol_search
from zol.data import Dataset
from zol.evidence import Evidence
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.models.network import Network
from zol.train import TrainConfig, fit
from zol.worlds.tabular import FiniteMDP, TabularWorld, four_rooms

SEED = 0


def random_transitions(world: TabularWorld, n: int, generator: torch.Generator) -> Dataset:
    """Every state and action equally often, each transition on its own."""
    mdp = world.mdp
    state = torch.randint(mdp.states, (n,), generator=generator)
    choice = torch.randint(mdp.actions, (n,), generator=generator)
    arrival = mdp.transition[state, choice].argmax(-1)  # without slips every move is certain
    return Dataset.from_arrays(
        obs=functional.one_hot(state, mdp.states).numpy(),
        action=functional.one_hot(choice, mdp.actions).numpy(),
        next_obs=functional.one_hot(arrival, mdp.states).numpy(),
        truncated=torch.ones(n).numpy(),
        resets=torch.eye(mdp.states).numpy(),
    )


@pytest.fixture(scope="module")
def rooms() -> TabularWorld:
    return four_rooms()


@pytest.fixture(scope="module")
def data(rooms: TabularWorld) -> Dataset:
    return random_transitions(rooms, 40_000, torch.Generator().manual_seed(SEED))


@pytest.fixture(scope="module")
def trained(rooms: TabularWorld, data: Dataset) -> Network:
    config = FBConfig(
        obs_dim=rooms.mdp.states,
        action_dim=4,
        z_dim=104,
        discount=rooms.discount,
        hidden=128,
        backward_hidden=128,
        backward_layers=1,
        discrete=True,
        learning_rate=2e-3,
        backward_learning_rate=2e-3,
        target_rate=0.1,
        orthonormality=0.1,
    )
    model = fb_network(config, torch.Generator().manual_seed(SEED))
    fit(FBLearner(model, config), data, TrainConfig(steps=2500, batch_size=128, seed=SEED, anneal=0.3))
    return model.eval()


def true_returns(mdp: FiniteMDP, model: Network, z: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """Exact return of each latent's greedy policy, ``[goals]``."""
    with torch.no_grad():
        chosen = model.act(torch.eye(mdp.states), z.unsqueeze(1)).argmax(-1)
    return mdp.value(functional.one_hot(chosen, mdp.actions).double(), rewards)


def test_fb_reaches_ninety_percent_of_the_optimum(rooms: TabularWorld, trained: Network) -> None:
    goals = torch.eye(rooms.mdp.states, dtype=torch.float64)
    z = prompt.goal(trained, torch.eye(rooms.mdp.states))
    got = true_returns(rooms.mdp, trained, z, goals)
    best = rooms.mdp.optimal_value(goals)
    uniform = torch.full((rooms.mdp.states, 4), 0.25, dtype=torch.float64)
    assert float(got.mean() / best.mean()) >= 0.9
    assert float(rooms.mdp.value(uniform, goals).mean() / best.mean()) < 0.2  # the bar is not trivial


def evidence_for(rooms: TabularWorld, data: Dataset, goals: list[int]) -> Evidence:
    tasks = {name: rooms.tasks[name] for name in (f"goal_{k}" for k in goals)}
    generator = torch.Generator().manual_seed(1)
    return Evidence.gather(data, tasks, rooms.layout, samples=2_000, starts=32, generator=generator)


def test_zol_searches_without_losing_much(rooms: TabularWorld, trained: Network, data: Dataset) -> None:
    goals = list(range(0, rooms.mdp.states, 8))
    evidence = evidence_for(rooms, data, goals)
    rewards = torch.eye(rooms.mdp.states, dtype=torch.float64)[goals]
    z0 = evidence.prompt(trained)
    found = zol_search(trained, evidence, z0, ZOLConfig())
    before = true_returns(rooms.mdp, trained, trained.project(z0), rewards).mean()
    after = true_returns(rooms.mdp, trained, found.z[0], rewards).mean()
    # It need not gain: the ratio ranks latents badly near z0 (docs/zol.md). Losing a tenth would be a fault.
    assert float(after) >= 0.9 * float(before)
    assert float(found.distance.mean()) > 0  # it did search


def test_the_learned_ratio_follows_the_exact_one(rooms: TabularWorld, trained: Network) -> None:
    """w_z of the trained networks against d^π/ρ of the very policies they act with.

    The rank of the model and its young TD errors blur sharp occupancies (0.43 on average when this was
    written); an untrained model gives about 0.
    """
    every_state = torch.eye(rooms.mdp.states)
    z = prompt.goal(trained, every_state[::8])
    with torch.no_grad():
        mu = measure.forward_mean(trained, every_state, z)
        learned = measure.raw_ratio(trained, mu, trained.backward(every_state))
        chosen = trained.act(every_state, z.unsqueeze(1)).argmax(-1)
    exact = rooms.mdp.occupancy(functional.one_hot(chosen, 4).double()) * rooms.mdp.states
    pairs = zip(learned.double(), exact, strict=True)
    correlation = [float(torch.corrcoef(torch.stack(pair))[0, 1]) for pair in pairs]
    assert sum(correlation) / len(correlation) > 0.3, correlation
