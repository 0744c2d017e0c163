"""Small checkpoints in the formats of other projects, written key by key from their file layouts.

Nothing here uses zol's networks: keys, shapes and the slow evaluation below are a second account of the
formats, so that agreement means something.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

O, A, D = 7, 3, 4  # observation, action, latent of the flat formats
Shapes = dict[str, tuple[int, ...]]
Stored = tuple[dict[str, Any], dict[str, np.ndarray]]  # a configuration, and tensors by their names


def layer(prefix: str, n_in: int, n_out: int, members: int = 1) -> Shapes:
    if members == 1:
        return {f"{prefix}.weight": (n_out, n_in), f"{prefix}.bias": (n_out,)}
    return {f"{prefix}.weight": (members, n_in, n_out), f"{prefix}.bias": (members, 1, n_out)}


def norm(prefix: str, dim: int, members: int = 1) -> Shapes:
    shape = (dim,) if members == 1 else (members, 1, dim)
    return {f"{prefix}.weight": shape, f"{prefix}.bias": shape}


def block(prefix: str, n_in: int, n_out: int, members: int = 1) -> Shapes:
    return norm(f"{prefix}.mlp.0", n_in, members) | layer(f"{prefix}.mlp.1", n_in, n_out, members)


def embedding(prefix: str, n_in: int, h: int, depth: int, members: int = 1, residual: bool = False) -> Shapes:
    if residual:
        shapes = block(f"{prefix}.0", n_in, h, members)
        for i in range(1, depth - 1):
            shapes |= block(f"{prefix}.{i}", h, h, members)
        return shapes | block(f"{prefix}.{depth - 1}", h, h // 2, members)
    shapes = layer(f"{prefix}.0", n_in, h, members) | norm(f"{prefix}.1", h, members)
    for i in range(depth - 2):
        shapes |= layer(f"{prefix}.{3 + 2 * i}", h, h, members)
    return shapes | layer(f"{prefix}.{3 + 2 * (depth - 2)}", h, h // 2, members)


def trunk(prefix: str, h: int, n_out: int, layers: int, members: int = 1, residual: bool = False) -> Shapes:
    shapes: Shapes = {}
    for i in range(layers):
        shapes |= (
            block(f"{prefix}.{i}", h, h, members) if residual else layer(f"{prefix}.{2 * i}", h, h, members)
        )
    last = f"{prefix}.{layers if residual else 2 * layers}"
    return shapes | (block if residual else layer)(last, h, n_out, members)


def forward(
    prefix: str,
    o: int,
    d: int,
    a: int,
    out: int,
    h: int,
    layers: int,
    depth: int = 2,
    members: int = 2,
    residual: bool = False,
) -> Shapes:
    return (
        embedding(f"{prefix}.embed_z", o + d, h, depth, members, residual)
        | embedding(f"{prefix}.embed_sa", o + a, h, depth, members, residual)
        | trunk(f"{prefix}.Fs", h, out, layers, members, residual)
    )


def actor(
    prefix: str, o: int, d: int, a: int, h: int, layers: int, depth: int = 2, residual: bool = False
) -> Shapes:
    return (
        embedding(f"{prefix}.embed_z", o + d, h, depth, 1, residual)
        | embedding(f"{prefix}.embed_s", o, h, depth, 1, residual)
        | trunk(f"{prefix}.policy", h, a, layers, 1, residual)
    )


def head(prefix: str, n_in: int, n_out: int, h: int, layers: int) -> Shapes:
    if layers == 0:
        return layer(f"{prefix}.0", n_in, n_out)
    shapes = layer(f"{prefix}.0", n_in, h) | norm(f"{prefix}.1", h)
    for i in range(layers - 1):
        shapes |= layer(f"{prefix}.{3 + 2 * i}", h, h)
    return shapes | layer(f"{prefix}.{3 + 2 * (layers - 1)}", h, n_out)


def statistics(prefix: str, dim: int) -> Shapes:
    return {
        f"{prefix}.running_mean": (dim,),
        f"{prefix}.running_var": (dim,),
        f"{prefix}.num_batches_tracked": (),
    }


def fill(shapes: Shapes, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in shapes.items():
        if name.endswith(("num_batches_tracked", "counter")):
            tensors[name] = np.full(shape, 5, dtype=np.int64)
            continue
        values = 0.5 * rng.standard_normal(shape)
        if name.endswith(("running_var", "mean_square")):
            values = np.abs(values) + 0.3
        if name == "_z_cov":
            values = values @ values.T + np.eye(len(values))
        tensors[name] = values.astype(np.float32)
    return tensors


def write(
    folder: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], kwargs: dict[str, Any] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=4))
    save_file(tensors, folder / "model.safetensors")
    if kwargs is not None:
        (folder / "init_kwargs.json").write_text(json.dumps(kwargs, indent=4))
    return folder


def targets(tensors: dict[str, np.ndarray], *groups: str) -> dict[str, np.ndarray]:
    """The slow copies that agent checkpoints carry: ``_target_x`` for every ``_x``."""
    return {
        f"_target{name}": value.copy()
        for name, value in tensors.items()
        if any(name.startswith(group + ".") for group in groups)
    }


def box(n: int) -> dict[str, Any]:
    return {
        "low": [float("-inf")] * n,
        "high": [float("inf")] * n,
        "shape": [n],
        "dtype": "float32",
        "type": "Box",
    }


# --- Meta Motivo -----------------------------------------------------------------------------------------


def metamotivo(*, cpr: bool = True, residual: bool = False, norm_obs: bool = True, depth: int = 2) -> Stored:
    f = {
        "hidden_dim": 8,
        "model": "residual" if residual else "simple",
        "hidden_layers": 2,
        "embedding_layers": depth,
        "num_parallel": 2,
        "ensemble_mode": "batch",
    }
    archi = {
        "z_dim": D,
        "norm_z": 1,
        "f": f,
        "b": {"hidden_dim": 6, "hidden_layers": 1, "norm": 1},
        "actor": {k: f[k] for k in ("hidden_dim", "model", "hidden_layers", "embedding_layers")},
    }
    shapes = (
        head("_backward_map.net", O, D, 6, 1)
        | forward("_forward_map", O, D, A, D, 8, 2, depth, 2, residual)
        | actor("_actor", O, D, A, 8, 2, depth, residual)
    )
    if cpr:
        archi |= {"critic": f, "discriminator": {"hidden_dim": 8, "hidden_layers": 3}}
        shapes |= forward("_critic", O, D, A, 1, 8, 2, depth, 2, residual)
        shapes |= head("_discriminator.trunk", O + D, 1, 8, 3)
    if norm_obs:
        shapes |= statistics("_obs_normalizer", O)
    config = {
        "obs_dim": O,
        "action_dim": A,
        "device": "cpu",
        "archi": archi,
        "inference_batch_size": 500000,
        "seq_length": 8,
        "actor_std": 0.2,
        "norm_obs": norm_obs,
    }
    return config, fill(shapes)


# --- td_jepa ---------------------------------------------------------------------------------------------

FORWARD = {
    "name": "ForwardArchi",
    "hidden_dim": 8,
    "model": "simple",
    "hidden_layers": 1,
    "embedding_layers": 2,
    "num_parallel": 2,
    "ensemble_mode": "batch",
}
IDENTITY = {"name": "Identity"}
KWARGS = {"obs_space": box(O), "action_dim": A}


def _encoder(layers: int, norm: bool = True) -> dict[str, Any]:
    return {"name": "BackwardArchi", "hidden_dim": 6, "hidden_layers": layers, "norm": norm}


def _actor(flow: bool) -> dict[str, Any]:
    name = "noise_conditioned_actor" if flow else "simple"
    return {"name": name, "model": "simple", "hidden_dim": 8, "hidden_layers": 1, "embedding_layers": 2}


def td_jepa_fb(*, flow: bool = False, left: bool = True) -> Stored:
    """FB; with flow, the actor reads raw observations, as in the published runs."""
    L = 5
    archi = {
        "name": "FBFlowBCModelArchiConfig" if flow else "FBModelArchiConfig",
        "L_dim": L,
        "z_dim": D,
        "norm_z": True,
        "f": FORWARD,
        "b": _encoder(2),
        "actor": _actor(flow),
        "left_encoder": _encoder(0) if left else IDENTITY,
        "rgb_encoder": IDENTITY,
        "augmentator": IDENTITY,
    }
    seen = L if left else O
    shapes = head("_backward_map.net", O, D, 6, 2) | forward("_forward_map", seen, D, A, D, 8, 1)
    shapes |= head("_left_encoder.net", O, L, 6, 0) if left else {}
    if flow:
        archi["actor_vf"] = {
            "name": "SimpleVectorFieldArchiConfig",
            "model": "simple",
            "hidden_dim": 6,
            "hidden_layers": 4,
        }
        shapes |= actor("_actor", O + A, D, A, 8, 1)
        sizes = [O + A + 1, 6, 6, 6, 6, A]
        for i in range(5):
            shapes |= layer(f"_actor_vf.net.{2 * i}", sizes[i], sizes[i + 1])
    else:
        shapes |= actor("_actor", seen, D, A, 8, 1)
    config = {
        "name": "FBFlowBCModel" if flow else "FBModel",
        "device": "cpu",
        "archi": archi,
        "obs_normalizer": {"name": "IdentityNormalizerConfig"},
        "inference_batch_size": 500000,
        "seq_length": 1,
        "actor_std": 0.2,
        "amp": False,
        "actor_encode_obs": not flow,
    }
    tensors = fill(shapes)
    return config, tensors | targets(tensors, "_backward_map", "_forward_map", "_left_encoder")


def td_jepa_hilp(*, centred: bool = True) -> Stored:
    L = 5
    shapes = (
        {"features_mean": (D,), "_z_cov": (D, D)}
        | head("_left_encoder.net", O, L, 6, 2)
        | head("_features.net", O, D, 6, 2)
        | head("_features2.net", O, D, 6, 2)
        | forward("_sf", L, D, A, D, 8, 1)
        | actor("_actor", L, D, A, 8, 1)
        | statistics("_obs_normalizer._normalizer", O)
    )
    config = {
        "name": "HilpModel",
        "device": "cpu",
        "archi": {
            "name": "SFModelArchiConfig",
            "L_dim": L,
            "z_dim": D,
            "norm_z": True,
            "successor_features": FORWARD,
            "features": _encoder(2, norm=False),
            "actor": _actor(False),
            "left_encoder": _encoder(2),
            "rgb_encoder": IDENTITY,
            "augmentator": IDENTITY,
        },
        "obs_normalizer": {"name": "BatchNormNormalizerConfig", "momentum": 0.01},
        "actor_std": 0.2,
        "center_features": centred,
        "actor_encode_obs": True,
    }
    tensors = fill(shapes)
    return config, tensors | targets(tensors, "_sf", "_features", "_features2", "_left_encoder")


def td_jepa_jepa(*, symmetric: bool = False) -> Stored:
    phi, psi = 5, (5 if symmetric else D)
    shapes = (
        {"_z_cov": (psi, psi)}
        | head("_phi_mlp_encoder.net", O, phi, 6, 0)
        | forward("_phi_predictor", phi, psi, A, psi, 8, 1)
        | actor("_actor", phi, psi, A, 8, 1)
    )
    if not symmetric:
        shapes |= head("_psi_mlp_encoder.net", O, psi, 6, 2)
        shapes |= forward("_psi_predictor", psi, psi, A, phi, 8, 1)
    config = {
        "name": "TDJEPAModel",
        "device": "cpu",
        "archi": {
            "name": "TDJEPAModelArchiConfig",
            "phi_dim": phi,
            "psi_dim": D,
            "norm_z": True,
            "rgb_encoder": IDENTITY,
            "augmentator": IDENTITY,
            "phi_predictor": FORWARD,
            "psi_predictor": FORWARD,
            "phi_mlp_encoder": _encoder(0),
            "psi_mlp_encoder": _encoder(2),
            "actor": _actor(False),
        },
        "obs_normalizer": {"name": "IdentityNormalizerConfig"},
        "actor_std": 0.2,
        "actor_use_full_encoder": True,
        "symmetric": symmetric,
    }
    tensors = fill(shapes)
    return config, tensors | targets(tensors, "_phi_mlp_encoder", "_psi_mlp_encoder", "_phi_predictor")


# --- BFM-Zero --------------------------------------------------------------------------------------------

FIELDS = {"history_actor": 5, "last_action": A, "privileged_state": 4, "state": 6}
FULL = ["state", "privileged_state", "last_action", "history_actor"]
SIGHT = {"f": FULL, "b": ["state", "privileged_state"], "actor": ["state", "last_action", "history_actor"]}
BFM_KWARGS = {
    "obs_space": {"type": "Dict", "spaces": {k: box(v) for k, v in FIELDS.items()}},
    "action_dim": A,
}


def bfm_zero() -> Stored:
    """Its residual F and critics are hidden_layers deep where the config says embedding_layers."""

    def sees(part: str) -> dict[str, Any]:
        return {"name": "DictInputFilterConfig", "key": SIGHT[part]}

    width = {part: sum(FIELDS[k] for k in keys) for part, keys in SIGHT.items()}
    f = FORWARD | {"model": "residual", "hidden_layers": 4, "input_filter": sees("f")}
    config = {
        "name": "FBcprAuxModel",
        "device": "cpu",
        "archi": {
            "name": "FBcprAuxModelArchiConfig",
            "z_dim": D,
            "norm_z": True,
            "f": f,
            "b": _encoder(1) | {"input_filter": sees("b")},
            "actor": {
                "name": "residual",
                "model": "residual",
                "hidden_dim": 8,
                "hidden_layers": 4,
                "embedding_layers": 2,
                "input_filter": sees("actor"),
            },
            "critic": f,
            "discriminator": {
                "name": "DiscriminatorArchi",
                "hidden_dim": 8,
                "hidden_layers": 3,
                "input_filter": sees("b"),
            },
            "aux_critic": f,
        },
        "obs_normalizer": {
            "name": "ObsNormalizerConfig",
            "normalizers": {k: {"name": "BatchNormNormalizerConfig", "momentum": 0.01} for k in FIELDS},
            "allow_mismatching_keys": False,
        },
        "inference_batch_size": 500000,
        "seq_length": 8,
        "actor_std": 0.05,
        "amp": False,
        "norm_aux_reward": {"name": "RewardNormalizer", "translate": False, "scale": True},
    }
    shapes = (
        forward("_forward_map", width["f"], D, A, D, 8, 4, 4, 2, True)
        | forward("_critic", width["f"], D, A, 1, 8, 4, 4, 2, True)
        | forward("_aux_critic", width["f"], D, A, 1, 8, 4, 4, 2, True)
        | actor("_actor", width["actor"], D, A, 8, 4, 2, True)
        | head("_backward_map.net", width["b"], D, 6, 1)
        | head("_discriminator.trunk", width["b"] + D, 1, 8, 3)
        | {f"_aux_reward_normalizer.{n}": (1,) for n in ("mean", "mean_square", "counter")}
    )
    for name, size in FIELDS.items():
        shapes |= statistics(f"_obs_normalizer._normalizers.{name}._normalizer", size)
    tensors = fill(shapes)
    return config, tensors | targets(tensors, "_backward_map", "_forward_map", "_critic", "_aux_critic")


# --- slow evaluation, one row and one member at a time, in float64 ----------------------------------------


class Slow:
    """Evaluates stored networks straight from their tensors."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.t = {k: v.astype(np.float64) for k, v in tensors.items()}

    def linear(self, prefix: str, x: np.ndarray, p: int) -> np.ndarray:
        w, b = self.t[f"{prefix}.weight"], self.t[f"{prefix}.bias"]
        return x @ w[p] + b[p, 0] if w.ndim == 3 else w @ x + b

    def norm(self, prefix: str, x: np.ndarray, p: int) -> np.ndarray:
        w, b = self.t[f"{prefix}.weight"], self.t[f"{prefix}.bias"]
        w, b = (w[p, 0], b[p, 0]) if w.ndim == 3 else (w, b)
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * w + b

    def block(self, prefix: str, x: np.ndarray, p: int) -> np.ndarray:
        return self.linear(f"{prefix}.mlp.1", self.norm(f"{prefix}.mlp.0", x, p), p)

    def indices(self, prefix: str) -> list[int]:
        return sorted({int(k[len(prefix) + 1 :].split(".")[0]) for k in self.t if k.startswith(prefix + ".")})

    def residual(self, prefix: str) -> bool:
        return any(k.startswith(prefix + ".") and ".mlp." in k for k in self.t)

    def embedding(self, prefix: str, x: np.ndarray, p: int = 0) -> np.ndarray:
        indices = self.indices(prefix)
        if self.residual(prefix):
            for i in indices:
                y = mish(self.block(f"{prefix}.{i}", x, p))
                x = x + y if i not in (indices[0], indices[-1]) else y
            return x
        x = np.tanh(self.norm(f"{prefix}.1", self.linear(f"{prefix}.0", x, p), p))
        for i in indices[2:]:
            x = np.maximum(self.linear(f"{prefix}.{i}", x, p), 0)
        return x

    def trunk(self, prefix: str, x: np.ndarray, p: int = 0) -> np.ndarray:
        *middle, last = self.indices(prefix)
        if self.residual(prefix):
            for i in middle:
                x = x + mish(self.block(f"{prefix}.{i}", x, p))
            return self.block(f"{prefix}.{last}", x, p)
        for i in middle:
            x = np.maximum(self.linear(f"{prefix}.{i}", x, p), 0)
        return self.linear(f"{prefix}.{last}", x, p)

    def forward(self, prefix: str, s: np.ndarray, z: np.ndarray, a: np.ndarray) -> np.ndarray:
        out = []
        for p in range(2):
            sa = self.embedding(f"{prefix}.embed_sa", np.concatenate([s, a]), p)
            sz = self.embedding(f"{prefix}.embed_z", np.concatenate([s, z]), p)
            out.append(self.trunk(f"{prefix}.Fs", np.concatenate([sa, sz]), p))
        return np.array(out)

    def actor(self, s: np.ndarray, z: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        eps = np.zeros(0) if noise is None else noise
        es = self.embedding("_actor.embed_s", np.concatenate([s, eps]))
        ez = self.embedding("_actor.embed_z", np.concatenate([s, z, eps]))
        return np.tanh(self.trunk("_actor.policy", np.concatenate([es, ez])))

    def head(self, prefix: str, x: np.ndarray, sphere: bool) -> np.ndarray:
        indices = self.indices(prefix)
        if len(indices) == 1:
            x = self.linear(f"{prefix}.0", x, 0)
        else:
            x = np.tanh(self.norm(f"{prefix}.1", self.linear(f"{prefix}.0", x, 0), 0))
            for i in indices[2:-1]:
                x = np.maximum(self.linear(f"{prefix}.{i}", x, 0), 0)
            x = self.linear(f"{prefix}.{indices[-1]}", x, 0)
        return np.sqrt(len(x)) * x / np.linalg.norm(x) if sphere else x

    def normalise(self, prefix: str, x: np.ndarray) -> np.ndarray:
        return (x - self.t[f"{prefix}.running_mean"]) / np.sqrt(self.t[f"{prefix}.running_var"] + 1e-5)


def mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(np.log1p(np.exp(x)))
