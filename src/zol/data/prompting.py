"""The states that a checkpoint carries, so that it can be prompted on its own."""

import torch
from torch import Tensor

from zol.data.dataset import Dataset

SAMPLES = 10_000  # transitions


def prompt_sample(
    dataset: Dataset, seed: int, samples: int = SAMPLES, starts: int = 1024, steps: Tensor | None = None
) -> dict[str, Tensor]:
    """What a checkpoint needs to be prompted on its own: whole transitions and start states.

    Rewards belong to the states that transitions lead to, so these are called "obs"; "before" are the states
    that they begin in, which estimators that learn by TD need. ``steps`` are those to take, if they are not
    to be drawn uniformly.
    """
    generator = torch.Generator().manual_seed(seed)
    if steps is None:
        batch = dataset.sample(min(len(dataset), samples), generator)
    else:
        batch = dataset.take(steps.numpy())
    found = {
        "obs": batch.next_obs,
        "action": batch.action,
        "before": batch.obs,
        "terminated": batch.terminated,
        "starts": dataset.starts(starts, generator),
    }
    return found if batch.next_physics is None else found | {"physics": batch.next_physics}


def mixed_sample(given: Dataset, own: Dataset, own_share: float, seed: int) -> dict[str, Tensor]:
    """Such a sample of two sets, ``own_share`` of it from the second; start states are those of the first.

    Its rows are shuffled, because whoever wants fewer takes the first ones.
    """
    count, generator = min(len(given), SAMPLES), torch.Generator().manual_seed(seed)
    mine = round(own_share * count)
    parts = [
        prompt_sample(data, seed, steps=torch.randint(len(data), (size,), generator=generator))
        for data, size in ((given, count - mine), (own, mine))
    ]
    order = torch.randperm(count, generator=generator)
    shared = [name for name in parts[0] if name in parts[1] and name != "starts"]
    rows = {name: torch.cat([part[name] for part in parts])[order] for name in shared}
    return rows | {"starts": parts[0]["starts"]}
