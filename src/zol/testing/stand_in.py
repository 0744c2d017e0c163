"""A stand-in for another project's checkpoint: its files and shapes, with random weights.

No published weights can be shipped, so pages, notebooks and tests of foreign checkpoints need one that is
made on the spot.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

WIDTH, MEMBERS = 16, 2


def stand_in_checkpoint(
    folder: str | Path, *, obs_dim: int = 4, action_dim: int = 2, z_dim: int = 8, seed: int = 0
) -> Path:
    """Write the files of a Meta Motivo FB model with random weights, for ``zol.load(folder, discount=…)``."""
    o, a, d, h, P = obs_dim, action_dim, z_dim, WIDTH, MEMBERS
    many = {
        "_forward_map.embed_z": o + d,
        "_forward_map.embed_sa": o + a,
    }  # layers of P networks: [P, in, out]
    one = {"_actor.embed_z": o + d, "_actor.embed_s": o}  # ordinary layers: [out, in]
    layers = [(f"{t}.0", n, h, P) for t, n in many.items()] + [(f"{t}.3", h, h // 2, P) for t in many]
    layers += [("_forward_map.Fs.0", h, h, P), ("_forward_map.Fs.2", h, d, P)]
    layers += [(f"{t}.0", n, h, 1) for t, n in one.items()] + [(f"{t}.3", h, h // 2, 1) for t in one]
    layers += [("_actor.policy.0", h, h, 1), ("_actor.policy.2", h, a, 1)]
    layers += [("_backward_map.net.0", o, h, 1), ("_backward_map.net.3", h, d, 1)]
    rng, tensors = np.random.default_rng(seed), {}
    for name, n_in, n_out, members in layers:
        shape = (members, n_in, n_out) if members > 1 else (n_out, n_in)
        tensors[f"{name}.weight"] = rng.standard_normal(shape) / np.sqrt(n_in)
        tensors[f"{name}.bias"] = np.zeros((members, 1, n_out) if members > 1 else n_out)
    norms = [*((t, (P, 1, h)) for t in many), *((t, (h,)) for t in one), ("_backward_map.net", (h,))]
    for name, size in norms:
        tensors[f"{name}.1.weight"], tensors[f"{name}.1.bias"] = np.ones(size), np.zeros(size)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    save_file({k: v.astype(np.float32) for k, v in tensors.items()}, place / "model.safetensors")
    part = {"hidden_dim": h, "model": "simple", "hidden_layers": 1, "embedding_layers": 2}
    head = {"hidden_dim": h, "hidden_layers": 1, "norm": True}
    archi = {"z_dim": d, "norm_z": True, "f": part | {"num_parallel": P}, "actor": part, "b": head}
    config = {"obs_dim": o, "action_dim": a, "archi": archi, "norm_obs": False, "seq_length": 8}
    (place / "config.json").write_text(json.dumps(config))
    return place
