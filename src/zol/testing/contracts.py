"""Public contract checks: run them on your own datasets, models and worlds."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from zol.data import Dataset
from zol.data.episodes import ROUNDING
from zol.models.base import Model
from zol.worlds.base import World


def check_dataset(dataset: Dataset) -> None:
    """Check that a dataset keeps the promises that training and evaluation rely on.

    Raises AssertionError with the broken promise. The set is scanned and copied once.
    """
    steps, rows = len(dataset), len(dataset) + dataset.episodes
    assert steps > 0, "a dataset has at least one transition"
    assert (dataset.lengths > 0).all(), "every episode has at least one step"
    assert all(len(c) == rows for c in dataset.columns.values()), "an episode of L steps owns L + 1 rows"

    columns = dataset.columns
    for name in ("obs", "action"):
        assert columns[name].dtype == np.float32, f"'{name}' is float32"
        assert columns[name].ndim == 2, f"'{name}' is a table [rows, columns]"
    for name, column in columns.items():
        if column.dtype.kind == "f":
            assert np.isfinite(column).all(), f"'{name}' is finite"
    assert np.abs(columns["action"]).max() <= 1 + ROUNDING, "actions are normalised to [−1, 1]"
    final = dataset.first_rows + dataset.lengths
    ends = np.zeros(rows, dtype=bool)
    ends[final - 1] = True
    assert not columns["action"][final].any(), "the final state of an episode has no action (zeros)"
    done = np.asarray(columns["terminated"]) | np.asarray(columns["truncated"])
    assert np.array_equal(done, ends), "the last step of an episode, and no other, is terminated or truncated"

    first = dataset.sample(64, torch.Generator().manual_seed(0))
    again = dataset.sample(64, torch.Generator().manual_seed(0))
    assert torch.equal(first.obs, again.obs), "the same generator gives the same sample"
    assert first.next_obs.shape == first.obs.shape, "every state has a successor"
    everything = dataset.transitions()
    assert len(everything) == steps, "transitions() gives every step once"
    same_episode = ~torch.from_numpy(ends[dataset.rows(np.arange(steps))])[:-1]
    assert torch.equal(everything.next_obs[:-1][same_episode], everything.obs[1:][same_episode]), (
        "inside an episode, the next state of a step is the state of the next step"
    )
    starts = dataset.starts()
    assert starts.shape[0] > 0, "there is a start state"
    assert starts.shape[1] == dataset.obs_dim, "start states are observations"

    with tempfile.TemporaryDirectory() as folder:
        stored = dataset.save(Path(folder) / "set")
        assert stored.fingerprint() == dataset.fingerprint(), "saving does not change the fingerprint"
        digests = [bytes(digest) for digest in np.asarray(stored.stored_digests)]
        assert digests == list(dataset.digests()), "what is stored is what was given"


def check_model(model: Model, obs: Tensor | None = None, *, seed: int = 0) -> None:
    """Check that a model keeps the promises that prompting, adaptation and rollouts rely on.

    Raises AssertionError with the broken promise. ``obs`` ``[N, D]`` are observations to try it on, where
    Gaussian ones make no sense.
    """
    g = torch.Generator().manual_seed(seed)
    tensors = model.state_dict().values() if isinstance(model, torch.nn.Module) else ()
    dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.get_default_dtype())

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=dtype)

    obs = draw(7, model.obs_dim) if obs is None else obs.to(dtype)
    samples, z = len(obs), model.project(draw(3, model.z_dim))
    _check_project(model, z)
    with torch.no_grad():
        B = model.backward(obs)
        action = model.act(obs, z.unsqueeze(1))  # [3, samples, A]
        F = model.forward(obs, z.unsqueeze(1), action)
        assert B.shape == (samples, model.z_dim), f"backward gives [N, d], got {tuple(B.shape)}"
        assert action.shape == (3, samples, model.action_dim), "act broadcasts latents against states"
        assert F.shape[1:] == (3, samples, model.z_dim), "forward gives [P, ..., d]"
        assert all(bool(x.isfinite().all()) for x in (B, action, F)), "outputs are finite"
        assert bool((action.abs() <= 1 + 1e-6).all()), "actions are normalised to [−1, 1]"
        assert torch.equal(action, model.act(obs, z.unsqueeze(1))), "act is deterministic: the mean action"
        deep = model.backward(obs.reshape(1, samples, 1, -1))
        assert deep.shape == (1, samples, 1, model.z_dim), "leading dimensions are free"
        for k in range(3):
            alone = model.forward(obs, z[k].expand(samples, -1), model.act(obs, z[k].expand(samples, -1)))
            assert torch.allclose(alone, F[:, k], rtol=1e-4, atol=1e-5), "a row does not depend on the batch"
    _check_gradients(model, obs, z)
    assert 0 < model.discount < 1, "the discount lies strictly between 0 and 1"


def _check_project(model: Model, z: Tensor) -> None:
    assert torch.allclose(model.project(z), z, rtol=1e-5, atol=1e-6), "projecting twice is projecting once"
    zero = model.project(torch.zeros_like(z))
    assert bool(zero.isfinite().all()), "projecting the zero latent gives no NaN"


def _check_gradients(model: Model, obs: Tensor, z: Tensor) -> None:
    leaf = z[0].clone().requires_grad_()
    action = model.act(obs, leaf.unsqueeze(0))
    through_actor = _gradient(action.square().sum(), leaf)
    assert through_actor is not None, "act is differentiable in z"
    assert bool(through_actor.abs().max() > 0), "the gradient of act reaches z"
    total = model.forward(obs, leaf.unsqueeze(0), action.detach()).sum()
    through_forward = _gradient(total, leaf)
    assert through_forward is not None, "forward is differentiable in z"
    assert bool(through_forward.isfinite().all()), "gradients are finite"


def _gradient(value: Tensor, leaf: Tensor) -> Tensor | None:
    """The gradient, or None if the value does not depend on the leaf at all."""
    if not value.requires_grad:
        return None
    return torch.autograd.grad(value, leaf, retain_graph=True, allow_unused=True)[0]


def check_world(world: World, *, envs: int = 6, seed: int = 0, tolerance: float = 1e-6) -> None:
    """Check that a batched world keeps its promises: paired starts, independent environments, pure rewards.

    ``tolerance`` bounds how exactly a state can be restored from its physics.
    """

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    first = world.reset(envs, generator())
    physics = world.physics.clone()
    assert first.obs.shape == (envs, world.layout.obs_dim), "reset gives [n, D]"
    again = world.reset(envs, generator())
    assert torch.equal(first.obs, again.obs), "the same generator gives the same start states"
    assert torch.allclose(world.observe(physics), first.obs, atol=tolerance), "observe reads physics"
    restored = world.set_physics(physics)
    assert torch.allclose(restored.obs, first.obs, atol=tolerance), "set_physics restores the state"

    action = 2 * torch.rand(envs, world.action_dim, generator=generator()) - 1
    together = world.step(action)
    assert together.obs.shape == first.obs.shape, "step keeps the number of environments"
    assert bool(together.obs.isfinite().all()), "observations are finite"
    assert together.action is not None, "states carry the action that led to them"
    for name, task in world.tasks.items():
        reward = task(together)
        assert reward.shape == (envs,), f"task '{name}' gives one reward per environment"
        assert bool(reward.isfinite().all()), f"task '{name}' is finite"
        assert torch.equal(reward, task(together)), f"task '{name}' is a pure function"
    reached = together.obs.clone()
    world.set_physics(physics[:2])
    alone = world.step(action[:2])
    assert torch.allclose(alone.obs, reached[:2], atol=tolerance), "environments do not influence each other"
    covered = sum(field.size for field in world.layout.fields)
    assert covered == world.layout.obs_dim, "every observation column has a name"
