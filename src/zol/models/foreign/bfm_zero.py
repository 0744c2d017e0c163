"""BFM-Zero (FB, FB-CPR and its auxiliary critic): dictionary observations on a humanoid robot.

Every network names the entries it reads. Here they become fields of one flat observation, in the order
of the stored space: ``model.layout`` says which columns are what, :func:`zol.models.foreign.flatten`
makes such a tensor from a dictionary.
"""

from pathlib import Path

from zol.common.errors import CheckpointError
from zol.common.tensors import TensorFile
from zol.models.architecture import DEPTH, Head, NetworkConfig, ObservedField, Tower
from zol.models.foreign.assemble import Blueprint, head, is_batch_norm, tower
from zol.models.foreign.section import Section
from zol.models.foreign.spaces import actions, box_size, read_spaces

MODELS = {"FBModel": "fb", "FBcprModel": "fb_cpr", "FBcprAuxModel": "fb_cpr_aux"}
WHOLE = "obs"  # the one field of models without dictionary observations


def recognises(config: Section) -> bool:
    """Its FB model shares a name with td_jepa's; the normaliser's tells them apart."""
    if config.name() not in MODELS or "obs_normalizer" not in config:
        return False
    return config.section("obs_normalizer").name() == "ObsNormalizerConfig"


def blueprint(config: Section, discount: float, folder: Path, weights: TensorFile) -> Blueprint:
    """The architecture of a BFM-Zero model config."""
    kind = MODELS[config.choice("name", None, tuple(MODELS))]
    config.only(
        "name",
        "device",
        "archi",
        "obs_normalizer",
        "inference_batch_size",
        "seq_length",
        "actor_std",
        "amp",
        "norm_aux_reward",
    )
    archi = config.section("archi").only(
        "name", "z_dim", "norm_z", "f", "b", "actor", "critic", "discriminator", "aux_critic"
    )
    normalised = _normalisers(config.section("obs_normalizer"))
    observation, action_dim = _spaces(folder, weights, normalised)
    known = {field.name for field in observation}
    cpr, aux = kind != "fb", kind == "fb_cpr_aux"
    names = {"forward_map.": "_forward_map.", "backward_map.": "_backward_map.", "actor.": "_actor."}
    names |= {
        "critic_map.": "_critic.",
        "aux_critic_map.": "_aux_critic.",
        "discriminator.": "_discriminator.",
    }
    single = len(observation) == 1
    names |= {"normaliser." if single else f"normaliser.{n}.": theirs for n, theirs in normalised.items()}
    return Blueprint(
        NetworkConfig(
            source=f"bfm_zero/{kind}",
            observation=observation,
            action_dim=action_dim,
            z_dim=archi.integer("z_dim", 100),
            discount=discount,
            project=archi.flag("norm_z", True),
            forward=_tower(archi.section("f"), known, weights, "_forward_map"),
            backward=_head(archi.section("b"), known, norm=True),
            actor=_tower(archi.section("actor"), known, weights, "_actor"),
            critic=_tower(archi.section("critic"), known, weights, "_critic") if cpr else None,
            # The published code shapes the auxiliary critic like the critic, whatever its own section says.
            aux_critic=_tower(archi.section("critic"), known, weights, "_aux_critic") if aux else None,
            discriminator=_head(archi.section("discriminator"), known, hidden=1024) if cpr else None,
            window=config.integer("seq_length", 1),
            action_std=config.number("actor_std", 0.2),
        ),
        names,
        dropped=("_aux_reward_normalizer.",),
    )


def _reads(section: Section, known: set[str]) -> tuple[str, ...]:
    if section.name().endswith("FilterArchi"):
        raise CheckpointError(f"{section.where}: index filters ({section.name()}) are not supported")
    if "input_filter" not in section or section.section("input_filter").name() == "IdentityInputFilterConfig":
        return ()
    keys = section.section("input_filter").only("name", "key").values.get("key")
    wanted = [keys] if isinstance(keys, str) else keys
    if (
        not isinstance(wanted, list)
        or not wanted
        or not all(isinstance(k, str) and k in known for k in wanted)
    ):
        raise CheckpointError(
            f"{section.where}.input_filter.key is {str(keys)[:80]}; "
            f"this model observes {', '.join(sorted(known))}"
        )
    return tuple(wanted)


def _tower(section: Section, known: set[str], weights: TensorFile, prefix: str) -> Tower:
    """The published residual maps are deeper than ``embedding_layers`` says, so their keys are counted."""
    depth = _depth(weights, f"{prefix}.embed_z.") if section.values.get("model") == "residual" else None
    members = 1 if prefix == "_actor" else 2
    return tower(section, _reads(section, known), members=members, embedding_layers=depth)


def _depth(weights: TensorFile, prefix: str) -> int:
    indices = {name.removeprefix(prefix).split(".")[0] for name in weights.shapes if name.startswith(prefix)}
    depth = 1 + max((int(i) for i in indices if i.isascii() and i.isdigit() and len(i) < 4), default=1)
    if depth > DEPTH:
        raise CheckpointError(f"{weights.path}: '{prefix}{depth - 1}' is beyond the {DEPTH} layers supported")
    return max(depth, 2)


def _head(section: Section, known: set[str], *, hidden: int = 256, norm: bool = False) -> Head:
    return head(section, _reads(section, known), hidden=hidden, norm=norm)


def _normalisers(section: Section) -> dict[str, str]:
    """Normalised field → prefix of its statistics in the file."""
    entries = section.only("name", "normalizers", "allow_mismatching_keys").section("normalizers")
    if entries.name():  # one normaliser for a plain vector
        return {WHOLE: "_obs_normalizer._normalizers._normalizer."} if is_batch_norm(entries) else {}
    for name in entries.values:
        if not name.isidentifier() or len(name) > 64:
            raise CheckpointError(
                f"{entries.where} has a key {name[:80]!r}, which cannot be the name of a field"
            )
    return {
        name: f"_obs_normalizer._normalizers.{name}._normalizer."
        for name in entries.values
        if is_batch_norm(entries.section(name))
    }


def _spaces(
    folder: Path, weights: TensorFile, normalised: dict[str, str]
) -> tuple[tuple[ObservedField, ...], int]:
    """The pieces of the observation and the number of actions."""
    file = read_spaces(folder)
    if file is None:  # only a pickle tells; the normalisers know the sizes as well
        sizes = {name: weights.shapes.get(f"{prefix}running_mean", ()) for name, prefix in normalised.items()}
        if not sizes or any(len(shape) != 1 for shape in sizes.values()):
            raise CheckpointError(f"{folder} has no init_kwargs.json, which says what the model observes")
        known = tuple(ObservedField(name=n, size=s[0], normalised=True) for n, s in sorted(sizes.items()))
        return known, actions(weights)
    space = file.section("obs_space")
    if space.choice("type", None, ("Box", "Dict")) == "Box":
        whole = ObservedField(name=WHOLE, size=box_size(space), normalised=WHOLE in normalised)
        return (whole,), file.integer("action_dim")
    boxes = space.section("spaces")
    for name in boxes.values:
        if not name.isidentifier() or len(name) > 64 or len(boxes.values) > 64:
            raise CheckpointError(
                f"{boxes.where} has a key {name[:80]!r}, which cannot be the name of a field"
            )
    fields = tuple(
        ObservedField(name=name, size=box_size(boxes.section(name)), normalised=name in normalised)
        for name in boxes.values
    )
    return fields, file.integer("action_dim")
