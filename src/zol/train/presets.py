"""Settings that are known to work, as data: change a number here and nowhere else.

``cpu``     found by experiment: trains on two cores within an hour (docs/training.md has the evidence).
``paper``   the published ExORL settings of the Meta Motivo repository's FB example, per domain. td_jepa
            publishes others for the same domains (docs/training.md lists them); its FB has an encoder of
            observations that ours has not, so they could not be repeated exactly.
"""

from typing import Any, Literal

from zol.common.errors import DataError, unknown_name

Preset = Literal["auto", "cpu", "paper"]

# Fields of TrainConfig and FBConfig, and dynamics_steps. A world's own discount counts where none is named.
CPU: dict[str, Any] = {
    "steps": 8_000,
    "batch_size": 1024,
    "anneal": 0.5,
    "hidden": 256,
    "backward_hidden": 256,
    "z_dim": 50,
    "normalise_obs": True,
    "learning_rate": 1e-3,
    "backward_learning_rate": 1e-3,
    "actor_learning_rate": 1e-3,
    "target_rate": 0.05,
    "actor_pessimism": 0.5,
    "dynamics_steps": 20_000,
}
# world: what it needs beyond CPU
CPU_WORLDS: dict[str, dict[str, Any]] = {
    "donut": {"steps": 4_000, "batch_size": 256, "dynamics_steps": 3_000},
    # The farthest room is 450 steps away, 0.99^450 = 0.01; one step changes little; walls are thin.
    "point_mass_maze": {
        "steps": 10_000,
        "batch_size": 512,
        "z_dim": 100,
        "anneal": 0.8,
        "orthonormality": 10.0,
        "n_step": 25,
        "fourier": 4,
        "discount": 0.995,
    },
}

PAPER: dict[str, Any] = {
    "steps": 3_000_000,
    "batch_size": 1024,
    "eval_every": 100_000,
    "save_every": 20_000,
    "log_every": 1_000,
    "hidden": 1024,
    "hidden_layers": 1,
    "embedding_layers": 2,
    "backward_hidden": 256,
    "backward_layers": 2,
    "learning_rate": 1e-4,
    "backward_learning_rate": 1e-4,
    "actor_learning_rate": 1e-4,
    "target_rate": 0.01,
    "orthonormality": 1.0,
    "actor_pessimism": 0.5,
    "discount": 0.98,
    "dynamics_steps": 100_000,
}
PAPER_WORLDS: dict[str, dict[str, Any]] = {
    "walker": {"z_dim": 100},
    "cheetah": {"z_dim": 50},
    "quadruped": {"z_dim": 50},
    "point_mass_maze": {
        "z_dim": 100,
        "discount": 0.99,
        "backward_learning_rate": 1e-6,
        "actor_learning_rate": 1e-6,
    },
}


def choose(preset: Preset, world: str | None, *, gpu: bool) -> Literal["cpu", "paper"]:
    """``auto``: the published settings where there are some and a GPU to train them on, else ``cpu``."""
    if preset != "auto":
        return preset
    return "paper" if gpu and world in PAPER_WORLDS else "cpu"


def settings(preset: Literal["cpu", "paper"], world: str | None) -> dict[str, Any]:
    """Values by field name, of the loop and of the model."""
    if preset == "cpu":
        return CPU | CPU_WORLDS.get(world or "", {})
    if world not in PAPER_WORLDS:
        if world is None:
            raise DataError("--preset paper differs between domains, and the data do not name their world")
        raise DataError(
            "--preset paper: " + unknown_name("domain with published settings", world, PAPER_WORLDS)
        )
    return PAPER | PAPER_WORLDS[world]
