"""The td_jepa repository: FB, successor features (HILP and relatives) and TD-JEPA on flat observations.

Its networks read the observation through an optional left encoder; in TD-JEPA that encoder is φ, and the
task encoder ψ plays the part of B. Flow-BC variants have a noise-conditioned actor and a vector field.
"""

from pathlib import Path
from typing import Any

from zol.common.errors import CheckpointError
from zol.common.tensors import TensorFile
from zol.models.architecture import Head, NetworkConfig, ObservedField
from zol.models.base import Measure
from zol.models.foreign.assemble import Blueprint, head, is_batch_norm, tower
from zol.models.foreign.section import Section
from zol.models.foreign.spaces import actions, box_size, columns, read_spaces

MODELS = {
    f"{base}{flow}Model": kind
    for base, kind in {
        "FB": "fb",
        "SF": "sf",
        "Hilp": "hilp",
        "Laplacian": "laplacian",
        "BYOL": "byol",
        "ICVF": "icvf",
        "TDJEPA": "td_jepa",
    }.items()
    for flow in ("", "FlowBC")
}
# Entries that all model configs share, and all their sections of architecture.
MODEL = (
    "name",
    "device",
    "archi",
    "obs_normalizer",
    "inference_batch_size",
    "seq_length",
    "actor_std",
    "amp",
)
ARCHI = ("name", "norm_z", "actor", "actor_vf", "rgb_encoder", "augmentator")
COMMON = {
    "normaliser.": "_obs_normalizer._normalizer.",
    "actor.": "_actor.",
    "vector_field.": "_actor_vf.",
    "whitening": "_z_cov",
}
FB = COMMON | {"left.": "_left_encoder.", "forward_map.": "_forward_map.", "backward_map.": "_backward_map."}
SF = COMMON | {
    "left.": "_left_encoder.",
    "forward_map.": "_sf.",
    "backward_map.": "_features.",
    "centre": "features_mean",
}
JEPA = COMMON | {
    "left.": "_phi_mlp_encoder.",
    "forward_map.": "_phi_predictor.",
    "backward_map.": "_psi_mlp_encoder.",
}


def blueprint(config: Section, discount: float, folder: Path, weights: TensorFile) -> Blueprint:
    """The architecture of a td_jepa model config."""
    name = config.choice("name", None, tuple(MODELS))
    archi = config.section("archi")
    _refuse_images(archi)
    normalised = "obs_normalizer" in config and is_batch_norm(config.section("obs_normalizer"))
    family = {"fb": _fb, "td_jepa": _jepa}.get(MODELS[name], _sf)
    obs_dim, action_dim = _sizes(folder, weights, family)
    flow = "actor_vf" in archi
    common: dict[str, Any] = {
        "source": f"td_jepa/{MODELS[name]}{'_flow_bc' if flow else ''}",
        "observation": (ObservedField(name="obs", size=obs_dim, normalised=normalised),),
        "action_dim": action_dim,
        "discount": discount,
        "project": archi.flag("norm_z", True),
        "actor": tower(archi.section("actor"), members=1),
        "noisy_actor": archi.section("actor").name() == "noise_conditioned_actor",
        "vector_field": _vector_field(archi) if flow else None,
        "window": config.integer("seq_length", 1),
        "action_std": config.number("actor_std", 0.2),
    }
    return family(config, archi, common)


def _fb(config: Section, archi: Section, common: dict[str, Any]) -> Blueprint:
    config.only(*MODEL, "actor_encode_obs")
    archi.only(*ARCHI, "L_dim", "z_dim", "f", "b", "left_encoder")
    left = _left(archi)
    return Blueprint(
        NetworkConfig(
            z_dim=archi.integer("z_dim", 100),
            forward=tower(archi.section("f")),
            backward=head(archi.section("b"), norm=True),
            left=left,
            left_dim=archi.integer("L_dim", 100),
            actor_reads_left=left is not None and config.flag("actor_encode_obs", True),
            **common,
        ),
        FB,
    )


def _sf(config: Section, archi: Section, common: dict[str, Any]) -> Blueprint:
    config.only(*MODEL, "actor_encode_obs", "center_features")
    if MODELS[config.name()] not in ("byol", "icvf"):  # whose feature losses have networks of their own
        archi.only(*ARCHI, "L_dim", "z_dim", "successor_features", "features", "left_encoder")
    left = _left(archi)
    centred = config.flag("center_features", False)
    return Blueprint(
        NetworkConfig(
            z_dim=archi.integer("z_dim", 100),
            forward=tower(archi.section("successor_features")),
            backward=head(archi.section("features"), norm=True),
            left=left,
            left_dim=archi.integer("L_dim", 100),
            actor_reads_left=left is not None and config.flag("actor_encode_obs", True),
            successor_features=True,
            centred=centred,
            measure=Measure(offset=1.0 if centred else 0.0),
            **common,
        ),
        SF,
        # what the feature losses of HILP, BYOL and ICVF need; prompts and policies do not
        dropped=("_features2.", "_predictor.", "_t.", *(() if centred else ("features_mean",))),
    )


def _jepa(config: Section, archi: Section, common: dict[str, Any]) -> Blueprint:
    config.only(*MODEL, "actor_use_full_encoder", "symmetric")
    predictors, encoders = ("phi_predictor", "psi_predictor"), ("phi_mlp_encoder", "psi_mlp_encoder")
    archi.only(*ARCHI, "phi_dim", "psi_dim", *predictors, *encoders)
    symmetric = config.flag("symmetric", False)
    phi_dim = archi.integer("phi_dim", 50)
    return Blueprint(
        NetworkConfig(
            z_dim=phi_dim if symmetric else archi.integer("psi_dim", 50),
            forward=tower(archi.section("phi_predictor")),
            backward=None if symmetric else head(archi.section("psi_mlp_encoder"), norm=True),
            left=head(archi.section("phi_mlp_encoder"), norm=True),
            left_dim=phi_dim,
            actor_reads_left=config.flag("actor_use_full_encoder", True),
            successor_features=True,
            **common,
        ),
        JEPA,
        dropped=("_psi_predictor.",),
    )


def _left(archi: Section) -> Head | None:
    section = archi.section("left_encoder") if "left_encoder" in archi else Section({"name": "Identity"}, "")
    return None if section.name().startswith("Identity") else head(section, norm=True)


def _vector_field(archi: Section) -> Head:
    section = archi.section("actor_vf").only("name", "model", "hidden_dim", "hidden_layers")
    return Head(hidden=section.integer("hidden_dim", 1024), layers=section.integer("hidden_layers", 1))


def _refuse_images(archi: Section) -> None:
    if "rgb_encoder" in archi and not archi.section("rgb_encoder").name().startswith("Identity"):
        raise CheckpointError(
            f"{archi.where}.rgb_encoder: this model sees images; only vectors of observations are supported"
        )


def _sizes(folder: Path, weights: TensorFile, family: object) -> tuple[int, int]:
    """Observation and action columns, from the JSON beside the weights or else from the weights."""
    spaces = read_spaces(folder)
    if spaces is not None:
        return box_size(spaces.section("obs_space")), spaces.integer("action_dim")
    encoder = {_fb: "_backward_map", _sf: "_features", _jepa: "_phi_mlp_encoder"}[family]  # type: ignore[index]
    return columns(weights, f"{encoder}.net.0.weight"), actions(weights)
