"""Two processes with half a batch each take the very steps of one process with the whole batch."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.spawn import spawn

from zol.common import parallel
from zol.common.errors import DataError
from zol.data import Batch
from zol.fields import Layout
from zol.models import MODELS
from zol.models.learner import NetworkLearner
from zol.models.prior_features import PriorFeaturesLearner

SIZES: dict[str, Any] = {"obs_dim": 5, "action_dim": 2, "z_dim": 8, "hidden": 32, "backward_hidden": 32}
BATCH, STEPS = 128, 8
COLUMNS = ("obs", "action", "next_obs", "terminated", "future_obs", "next_action", "last")
STRETCH = ("goal", "length", "first_obs", "first_terminated")
WINDOW = 8  # of demonstrations, where a model wants them
CASES: dict[str, dict[str, Any]] = {  # of FB, unless a model is named
    "plain": {},
    "pessimistic": {"pessimism": 0.5, "actor_pessimism": 0.5},
    "with q": {"q_loss": 0.1},
    "discrete": {"discrete": True},
    "stretches": {"n_step": 9, "q_loss": 0.1},
    **{name: {"model": name} for name in MODELS if name not in ("fb", "prior_features")},
    "prior_features": {"model": "prior_features", "quantities": ("obs:0", "obs:3"), "rewards": 32},
    "byol": {"model": "successor_features", "features": "byol"},
    "byol_gamma, centred": {"model": "successor_features", "features": "byol_gamma", "centred": True},
    "one encoder": {"model": "td_jepa", "symmetric": True},
    "icvf": {"model": "successor_features", "features": "icvf"},
    "rldp": {"model": "successor_features", "features": "rldp", "dynamics_horizon": 3},
    **{f"stretches of {name}": {"model": name, "n_step": 9} for name in ("one_step_fb", "hilp", "td_jepa")},
    "centred": {"centred": True, "n_step": 9, "q_loss": 0.1},
    "centred, pessimistic": {"centred": True, "pessimism": 0.5},
    "standing B": {"centred": True, "freeze_backward": 0.5},
    "prior over rewards": {"prior_share": 0.4, "averaging": 0.1, "hindsight": 0.2},
    **{f"prior of {name}": {"model": name, "prior_share": 0.4} for name in ("hilp", "td_jepa")},
    "cloning": {"bc": 0.3, "encoder": "deep"},
    "joined flow": {"joined": True, "actor": "flow", "bc": 0.3},
    **{f"flow of {name}": {"model": name, "actor": "flow", "bc": 0.3} for name in ("fb", "hilp", "td_jepa")},
}


def global_batch(step: int, stretches: bool) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(step)

    def draw(columns: int) -> torch.Tensor:
        return torch.randn(BATCH, columns, generator=g, dtype=torch.float64)

    columns = [draw(5), draw(2).tanh(), draw(5), torch.rand(BATCH, generator=g) < 0.1, draw(5)]
    columns += [draw(2).tanh(), torch.zeros(BATCH, dtype=torch.bool)]
    if stretches:
        columns += [draw(5), torch.randint(1, 10, (BATCH,), generator=g), draw(5)]
        columns += [torch.rand(BATCH, generator=g) < 0.1]
    return columns


def path(step: int) -> dict[str, torch.Tensor]:
    """Three steps that follow, for features that predict along them."""
    g = torch.Generator().manual_seed(1_000 + step)
    obs = torch.randn(BATCH, 3, 5, generator=g, dtype=torch.float64)
    action = torch.rand(BATCH, 3, 2, generator=g, dtype=torch.float64)
    length = torch.randint(1, 4, (BATCH,), generator=g)
    return {"path_obs": obs, "path_action": action, "path_length": length}


def train(changes: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Every loss and summed gradient of every step, and the whole state after the last one."""
    changes = dict(changes)
    entry = MODELS[changes.pop("model", "fb")]
    config = entry.config(**SIZES, normalise_obs=True, **changes)
    learner = entry.learner(entry.network(config).double(), config)
    if isinstance(learner, PriorFeaturesLearner):
        learner.use_layout(Layout.plain(5))
        learner.space.rebuild(*built_on(learner))
    seen: dict[str, torch.Tensor] = {}
    gradients = watch_gradients(learner)
    generator = torch.Generator().manual_seed(7)
    for step in range(STEPS):
        columns = dict(zip(COLUMNS + STRETCH, global_batch(step, "n_step" in changes), strict=False)) | path(
            step
        )
        batch = Batch(**{name: parallel.share(column) for name, column in columns.items()})
        learner.note_progress(step / STEPS)
        terms = learner.update(with_demonstrations(batch, step) if entry.online else batch, generator)
        seen |= {f"{step} {name}": value for name, value in terms.items()}
    state = {**learner.model.state_dict(), **learner.state_dict()}
    return seen | gradients | {name: value.clone() for name, value in state.items()}


def built_on(learner: PriorFeaturesLearner) -> tuple[torch.Tensor, torch.Tensor, torch.Generator]:
    """States, their quantities and a generator, for the space of rewards."""
    g = torch.Generator().manual_seed(5)
    states = torch.randn(2_000, 5, generator=g, dtype=torch.float64)
    assert learner.quantities is not None
    return states, learner.quantities(states), g


def with_demonstrations(batch: Batch, step: int) -> Batch:
    """The batch with latents that acted and with windows: our share of the global ones."""
    g = torch.Generator().manual_seed(1000 + step)
    z = torch.randn(BATCH, 8, generator=g, dtype=torch.float64)
    windows = torch.randn(2, BATCH // WINDOW, WINDOW, 5, generator=g, dtype=torch.float64)
    obs, next_obs = (parallel.share(part) for part in windows)
    return replace(batch, z=parallel.share(z), expert_obs=obs, expert_next_obs=next_obs)


def watch_gradients(learner: NetworkLearner) -> dict[str, torch.Tensor]:
    """Gradients as the optimisers get them, by optimiser, parameter and step; filled while training."""
    seen: dict[str, torch.Tensor] = {}
    for part, adam in learner.optimisers.items():

        def record(*_: object, part: str = part, adam: Any = adam) -> None:
            step = sum(name.startswith(f"{part} 0 ") for name in seen)
            for index, parameter in enumerate(adam.parameters):
                seen[f"{part} {index} step {step}"] = parameter.grad.clone()

        adam.optimiser.register_step_pre_hook(record)
    return seen


def in_process(rank: int, folder: str) -> None:
    """What one of two processes sees, in every case: starting processes takes longer than their work."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    try:
        seen = {case: train(changes) for case, changes in CASES.items()}
        with pytest.raises(DataError, match=f"{BATCH - 1} rows cannot be shared evenly by 2 processes"):
            parallel.share(torch.zeros(BATCH - 1))
        torch.save(seen, Path(folder) / f"{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, torch.Tensor]]]:
    folder = tmp_path_factory.mktemp("two")
    spawn(in_process, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_two_processes_are_one(two: list[dict[str, dict[str, torch.Tensor]]], case: str) -> None:
    one, (first, second) = train(CASES[case]), (process[case] for process in two)
    assert len(one) > STEPS * 20
    for name, value in one.items():
        torch.testing.assert_close(first[name], value, rtol=1e-10, atol=1e-10, msg=f"{name}: {{}}".format)
        assert torch.equal(first[name], second[name]), name  # not a bit apart, or they would drift


def test_alone_everything_is_as_it_was() -> None:
    x = torch.randn(3, 2)
    assert (parallel.rank(), parallel.size(), parallel.is_main()) == (0, 1, True)
    assert torch.equal(parallel.share(x), x)
    assert parallel.gather(x) is x
    assert parallel.total(x) == (x,)
    with parallel.processes("cpu") as device:
        assert device == torch.device("cpu")
        assert parallel.size() == 1


SCRIPT = """
from zol.common import parallel
with parallel.processes("cpu") as device:
    print(f"[{parallel.rank()} of {parallel.size()} on {device}]", flush=True)
"""


def test_torchrun_is_joined(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "[0 of 2 on cpu]" in done.stdout
    assert "[1 of 2 on cpu]" in done.stdout
