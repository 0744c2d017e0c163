"""Meta Motivo (FB and FB-CPR): flat observations, ``config.json`` + ``model.safetensors``.

The published hub models are FB-CPR on HumEnv: 358 observations, 69 actions, d = 256; size S has plain
networks of width 1024, size M residual ones of width 2048. Their config does not state the discount,
which was 0.98; agent folders written by the training script do (``train.discount``).
"""

from zol.models.architecture import NetworkConfig, ObservedField
from zol.models.foreign.assemble import Blueprint, head, tower
from zol.models.foreign.section import Section

HUMENV = (358, 69)  # observations and actions of the published models
NAMES = {
    "normaliser.": "_obs_normalizer.",
    "forward_map.": "_forward_map.",
    "backward_map.": "_backward_map.",
    "actor.": "_actor.",
    "critic_map.": "_critic.",
    "discriminator.": "_discriminator.",
}


def published_discount(config: Section) -> float | None:
    """The discount of the hub models, which their own config leaves out."""
    sizes = (config.integer("obs_dim"), config.integer("action_dim"))
    published = sizes == HUMENV and "critic" in config.section("archi")
    return 0.98 if published else None


def blueprint(config: Section, discount: float) -> Blueprint:
    """The architecture of a Meta Motivo model config."""
    config.only(
        "obs_dim",
        "action_dim",
        "device",
        "archi",
        "inference_batch_size",
        "seq_length",
        "actor_std",
        "norm_obs",
    )
    archi = config.section("archi").only("z_dim", "norm_z", "f", "b", "actor", "critic", "discriminator")
    cpr = "critic" in archi and "discriminator" in archi
    obs_dim = config.integer("obs_dim")
    return Blueprint(
        NetworkConfig(
            source=f"metamotivo/{'fb_cpr' if cpr else 'fb'}",
            observation=(ObservedField(name="obs", size=obs_dim, normalised=config.flag("norm_obs", True)),),
            action_dim=config.integer("action_dim"),
            z_dim=archi.integer("z_dim", 100),
            discount=discount,
            project=archi.flag("norm_z", True),
            forward=tower(archi.section("f")),
            backward=head(archi.section("b"), norm=True),
            actor=tower(archi.section("actor"), members=1),
            critic=tower(archi.section("critic")) if cpr else None,
            discriminator=head(archi.section("discriminator"), hidden=1024) if cpr else None,
            window=config.integer("seq_length", 1),
            action_std=config.number("actor_std", 0.2),
        ),
        NAMES,
    )
