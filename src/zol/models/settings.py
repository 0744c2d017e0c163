"""The settings that all ways of pretraining share, and the architecture that they describe."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from tyro.conf import arg

from zol.common.config import Config
from zol.models.architecture import Head, NetworkConfig, ObservedField, Tower
from zol.models.base import CENTRED


class PretrainingConfig(Config):
    """What every model of the family has: the sizes of its networks, learning rates, latents and noise."""

    added: ClassVar[frozenset[str]] = frozenset(
        {
            "actor",
            "actor_averaging",
            "averaging",
            "bc",
            "climb",
            "goal_columns",
            "joined",
            "n_step",
            "prior_share",
            "flow_hidden",
            "flow_layers",
            "flow_steps",
            "flow_learning_rate",
        }
    )
    """settings that runs of earlier versions do not know: stored only if they differ from their default"""
    obs_dim: int = Field(gt=0)
    """columns of an observation"""
    action_dim: int = Field(gt=0)
    """columns of an action"""
    z_dim: int = Field(default=50, gt=1)
    """d: size of a latent"""
    discount: float = Field(default=0.98, gt=0, lt=1)
    """γ"""
    hidden: int = Field(default=256, gt=1)
    """width of F and of the actor"""
    hidden_layers: int = Field(default=1, ge=1)
    """hidden layers of F and of the actor after their towers"""
    embedding_layers: int = Field(default=2, ge=2)
    """layers of each input tower"""
    residual: bool = False
    """residual blocks instead of plain layers in F and actor"""
    joined: bool = False
    """F and actor are one network each on all of their inputs, without towers: half the work"""
    backward_hidden: int = Field(default=256, gt=0)
    """width of B"""
    backward_layers: int = Field(default=2, ge=0)
    """hidden layers of B"""
    backward_norm: bool = True
    """put B on the sphere of radius √d"""
    members: int = Field(default=2, ge=1)
    """P: forward maps in the ensemble"""
    normalise_obs: bool = False
    """normalise observations by running statistics"""
    fourier: int = Field(default=0, ge=0)
    """k: frequencies of sines and cosines of every column that networks see beside it; needs normalise_obs"""
    goal_columns: Annotated[str, arg(metavar="FIRST:END")] = Field(default="", pattern=r"^(\d+:\d+)?$")
    """first:end of the columns that goals and rewards will depend on, such as 0:2: B sees these alone, and
    ``fourier`` is about these alone. Rewards of other columns are lost on such a model. None means all"""
    discrete: bool = False
    """actions are one-hot choices: π_z is greedy in F·z, and no actor is trained"""

    learning_rate: float = Field(default=1e-4, gt=0)
    """of F"""
    backward_learning_rate: float = Field(default=1e-4, gt=0)
    """of B"""
    actor_learning_rate: float = Field(default=1e-4, gt=0)
    """of the actor"""
    target_rate: float = Field(default=0.01, gt=0, le=1)
    """τ: how fast the targets follow"""
    n_step: int = Field(default=1, ge=1)
    """n: steps of data before the bootstrap, for data whose actions last as long; falls with the rates"""
    goal_share: float = Field(default=0.5, ge=0, le=1)
    """share of training latents that are B(s') of random states; the rest are uniform on the sphere"""
    prior_share: float = Field(default=0.0, ge=0, le=1)
    """share of training latents that are prompts of random rewards, ramps over one to three columns of the
    batch (zol.models.prior_latents). The rest are as ``goal_share`` says"""
    averaging: float = Field(default=0.0, ge=0, lt=1)
    """rate at which averaged weights of F, B and actor follow the trained ones: the model that is tested and
    saved has the averaged ones. 0 saves the trained ones"""
    actor_averaging: float = Field(default=0.0, ge=0, lt=1)
    """the same of the actor alone: the model that is tested and saved acts by the average, and has the F and
    B that are trained. 0 saves the trained actor itself"""
    actor_pessimism: float = Field(default=0.0, ge=0)
    """of the actor's Q"""
    action_std: float = Field(default=0.2, gt=0)
    """standard deviation of the noise on training actions"""
    action_noise_clip: float = Field(default=0.3, gt=0)
    """that noise is clipped to ± this"""
    actor: Literal["plain", "flow"] = "plain"
    """flow: an actor with a noise input, held to the data's actions by a flow (zol.models.actors)"""
    bc: float = Field(default=0.0, ge=0)
    """α: weight of behaviour cloning beside Q, which is divided by its size; 0 leaves both out. Published for
    flow actors on OGBench: 0.3 on antmazes, 3 in manipulation"""
    climb: float = Field(default=1.0, ge=0)
    """weight of Q beside cloning, with bc above 0; 0 clones alone, and costs no evaluation of F"""
    flow_hidden: int = Field(default=256, gt=0)
    """width of the flow's vector field"""
    flow_layers: int = Field(default=4, ge=1)
    """hidden layers of the flow's vector field"""
    flow_steps: int = Field(default=10, ge=1)
    """K: Euler steps from noise to the action that the actor is held to"""
    flow_learning_rate: float = Field(default=3e-4, gt=0)
    """of the vector field"""

    @model_validator(mode="after")
    def _fourier_features_need_a_scale(self) -> Self:
        if self.fourier and not self.normalise_obs:
            raise ValueError("fourier counts in standard deviations: set normalise_obs, too")
        return self

    @model_validator(mode="after")
    def _joined_networks_are_plain(self) -> Self:
        if self.joined and self.residual:
            raise ValueError("joined networks have no residual blocks: leave one of joined and residual out")
        return self

    @model_validator(mode="after")
    def _an_actor_has_something_to_learn(self) -> Self:
        if not self.climb and not self.bc:
            raise ValueError("climb=0 and bc=0 leave the actor nothing to learn: set bc")
        return self

    @model_validator(mode="after")
    def _the_actor_is_averaged_once(self) -> Self:
        if self.averaging and self.actor_averaging:
            raise ValueError(
                f"averaging={self.averaging} averages the actor, too: leave actor_averaging="
                f"{self.actor_averaging} out"
            )
        return self

    @model_validator(mode="after")
    def _goals_are_some_of_the_columns(self) -> Self:
        if self.goal_columns:
            first, end = map(int, self.goal_columns.split(":"))
            if not 0 <= first < end <= self.obs_dim or end - first == self.obs_dim:
                raise ValueError(
                    f"goal_columns={self.goal_columns} are not some of the {self.obs_dim} columns: first:end"
                )
        return self

    @model_validator(mode="after")
    def _an_actor_is_held_to_the_data(self) -> Self:
        if self.discrete and (self.actor == "flow" or self.bc):
            raise ValueError(
                "actions are discrete, so the policy is greedy and there is no actor: leave actor and bc out"
            )
        if self.actor == "flow" and not self.bc:
            raise ValueError(
                "actor=flow with bc=0 would learn a flow of the data's actions and never look at it: set bc "
                "(published: 0.3 for antmazes, 3 for manipulation), or take actor=plain"
            )
        return self


# One learning rate on the command line stands for all of them.
RATES = (
    "learning_rate",
    "backward_learning_rate",
    "actor_learning_rate",
    "critic_learning_rate",
    "discriminator_learning_rate",
)
# What the data decide, so that nobody has to say it.
FROM_DATA = ("obs_dim", "action_dim")


def plain_network(config: PretrainingConfig, source: str, **more: Any) -> NetworkConfig:
    """The architecture that the settings describe: one flat observation, F, B and an actor."""
    c = config
    if c.actor == "flow":
        field = Head(hidden=c.flow_hidden, layers=c.flow_layers)
        more |= {"noisy_actor": True, "vector_field": field, "actor_reads_left": False}
    tower = Tower(
        hidden=c.hidden, layers=c.hidden_layers, embedding_layers=c.embedding_layers, residual=c.residual
    ).updated(joined=c.joined)
    observed, goal = _observed(c)
    return NetworkConfig(
        source=source,
        observation=observed,
        action_dim=c.action_dim,
        z_dim=c.z_dim,
        discount=c.discount,
        fourier=c.fourier,
        fourier_reads=goal if c.fourier else (),
        discrete=c.discrete,
        forward=tower.updated(members=c.members),
        actor=None if c.discrete else tower,
        backward=Head(hidden=c.backward_hidden, layers=c.backward_layers, norm=c.backward_norm, reads=goal),
        action_std=c.action_std,
        **more,
    )


GOAL = "goal"  # the field that B reads where it does not read everything


def _observed(c: PretrainingConfig) -> tuple[tuple[ObservedField, ...], tuple[str, ...]]:
    """The pieces of an observation, and the names of those that goals are made of; none means all."""
    if not c.goal_columns:
        return (ObservedField(name="obs", size=c.obs_dim, normalised=c.normalise_obs),), ()
    first, end = map(int, c.goal_columns.split(":"))
    sizes = {"before": first, GOAL: end - first, "after": c.obs_dim - end}
    return tuple(
        ObservedField(name=name, size=size, normalised=c.normalise_obs)
        for name, size in sizes.items()
        if size
    ), (GOAL,)


def settings_of(network: NetworkConfig) -> dict[str, Any]:
    """The settings that an existing network has decided, whoever made it."""
    c = network
    backward = c.backward or c.left
    assert backward is not None
    return (
        {
            "obs_dim": c.obs_dim,
            "action_dim": c.action_dim,
            "z_dim": c.z_dim,
            "hidden": c.forward.hidden,
            "hidden_layers": max(1, c.forward.layers),
            "embedding_layers": c.forward.embedding_layers,
            "residual": c.forward.residual,
            "joined": c.forward.joined,
            "members": c.forward.members,
            "backward_hidden": backward.hidden,
            "backward_layers": backward.layers,
            "backward_norm": backward.norm,
            "normalise_obs": any(field.normalised for field in c.observation),
            "fourier": c.fourier,
            "discrete": c.discrete,
        }
        | _actor_of(network)
        | _goal_of(network)
        | ({} if c.successor_features else {"centred": c.measure == CENTRED})
    )


def _goal_of(network: NetworkConfig) -> dict[str, Any]:
    """The columns that B reads, where they are some of our own."""
    if network.backward is None or network.backward.reads != (GOAL,):
        return {}
    columns = network.columns()[GOAL]
    return {"goal_columns": f"{columns.start}:{columns.stop}"}


def _actor_of(network: NetworkConfig) -> dict[str, Any]:
    """What a network says about its actor; one of earlier versions has a plain one."""
    field = network.vector_field
    if not network.noisy_actor or field is None:
        return {"actor": "plain"}
    return {"actor": "flow", "flow_hidden": field.hidden, "flow_layers": field.layers}
