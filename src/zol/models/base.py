"""The model contract: what test time needs of a behavioural foundation model, and no more.

Anything that offers :class:`Model`'s four methods and few facts is supported: it can be prompted, its
density ratio can be read, ZOL can search its latents, and it can be rolled out. Leading dimensions are free
and broadcast, so *tasks × start states* is one call:

    starts [S, D],  z [T, 1, d]  →  act [T, S, A]  →  forward [P, T, S, d]

Five more things are optional: :class:`HasFixedLatents`, :class:`HasRegressors`, :class:`HasCentredFeatures`
and :class:`HasLayout` have a default that suits every model; only a model with :class:`HasSamples` can be
asked for random actions.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from pydantic import Field
from torch import Tensor

from zol.common.config import Config, ConfigError
from zol.common.errors import CheckpointError, DataError
from zol.common.files import write_bytes
from zol.common.reading import read_json
from zol.common.tensors import check_finite
from zol.data import Batch, BatchSpec
from zol.fields import Layout


@dataclass(frozen=True)
class Measure:
    """Which successor measure a model learned; :mod:`zol.measure` is the one place that reads it.

    ``normalised``: M carries the factor 1 − γ already (total mass 1 instead of 1/(1 − γ)).
    ``begins``: the sum Σ_t γ^t counts ``"next"`` states s_{t+1} (Meta's code, our default) or the
    ``"current"`` ones s_t, beginning with s_0 itself (the paper's equation).
    ``offset``: what the ratio is at F·B = 0. It is 1 for models whose features were centred on the data,
    which cannot express a constant, and for FB's centred measure, where F·B is what differs from one.
    """

    normalised: bool = False
    begins: Literal["next", "current"] = "next"
    offset: float = 0.0

    def scale(self, discount: float) -> float:
        """The factor that turns F·B into a ratio of distributions."""
        return 1.0 if self.normalised else 1.0 - discount


CENTRED = Measure(offset=1.0)  # of models that we train ourselves


@runtime_checkable
class Model(Protocol):
    """Four methods and the facts needed to interpret them. Observations are raw, never normalised."""

    @property
    def obs_dim(self) -> int:
        """D, columns of an observation."""

    @property
    def action_dim(self) -> int:
        """A, columns of an action."""

    @property
    def z_dim(self) -> int:
        """d, size of a latent."""

    @property
    def discount(self) -> float:
        """γ of the successor measure."""

    @property
    def measure(self) -> Measure:
        """Which successor measure F and B factorise."""

    def backward(self, obs: Tensor) -> Tensor:
        """B(s): ``[..., D] → [..., d]``."""

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """F(s, a, z) of every ensemble member: ``[P, ..., d]``."""

    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        """The mean action of π_z in [−1, 1], differentiable in z: ``[..., A]``."""

    def project(self, z: Tensor) -> Tensor:
        """Π(z): the nearest latent of the kind seen in training."""


@runtime_checkable
class HasFixedLatents(Protocol):
    """Optional: a model that can prepare its policy for latents that stay the same, as in a rollout."""

    def at(self, z: Tensor) -> Callable[[Tensor], Tensor]:
        """π_z as a function of observations alone, without gradients."""


@runtime_checkable
class HasSamples(Protocol):
    """Optional: a model whose policies are distributions, from which actions can be drawn."""

    def sample(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        """a ~ π_z(s), ``[..., A]``, without gradients."""


@runtime_checkable
class HasRegressors(Protocol):
    """Optional: a model whose rewards are regressed on other features than B (successor features)."""

    def regressors(self, obs: Tensor) -> Tensor:
        """φ(s), ``[..., d]``."""


@runtime_checkable
class HasCentredFeatures(Protocol):
    """Optional: a model that may subtract the mean of its features itself, such as HILP."""

    @property
    def features_centred(self) -> bool:
        """Whether it does; its measure then has the offset 1. A measure with that offset may do without."""


@runtime_checkable
class HasLayout(Protocol):
    """Optional: a model that knows what the columns of its observations mean."""

    layout: Layout


def policy_at(model: Model, z: Tensor) -> Callable[[Tensor], Tensor]:
    """π_z as a function of observations: the model's own prepared form if it has one, else ``act``."""
    return model.at(z) if isinstance(model, HasFixedLatents) else lambda obs: model.act(obs, z)


def sampled_policy(model: Model, z: Tensor, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    """π_z as a function of observations that draws its actions."""
    if not isinstance(model, HasSamples):
        raise DataError(
            f"{type(model).__name__} has no distribution of actions to draw from: act without sampling"
        )
    return lambda obs: model.sample(obs, z, generator)


def regressors_of(model: Model) -> Callable[[Tensor], Tensor]:
    """φ, the features in which the model's rewards are linear; B unless the model has others."""
    return model.regressors if isinstance(model, HasRegressors) else model.backward


def centres_features(model: Model) -> bool:
    """Whether the model's features have had their mean subtracted; no, unless it says so."""
    return isinstance(model, HasCentredFeatures) and model.features_centred


def layout_of(model: Model) -> Layout:
    """What the columns of an observation mean, as far as the model knows."""
    return model.layout if isinstance(model, HasLayout) else Layout.plain(model.obs_dim)


class Learner(Protocol):
    """What :mod:`zol.train` needs to train something: one update, and a state that can be resumed."""

    @property
    def model(self) -> Any:
        """The torch module that is trained; it knows its ``obs_dim`` and ``action_dim``."""

    @property
    def checked(self) -> Model | None:
        """The model as it would be saved now, whose health is logged (zol.train.health), if there is one."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What decides the weights, as JSON values by name: a run is resumed with the same settings only."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the checkpoint says about how its model was trained."""

    @property
    def shown(self) -> Mapping[str, str]:
        """The metrics worth watching, title → name, the most telling ones first."""

    @property
    def batches(self) -> BatchSpec:
        """What its batches hold from now on; it may change while training goes on."""

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """One step on a batch of transitions; returns the numbers worth watching."""

    def scale_learning_rates(self, scale: float) -> None:
        """Use this share of the configured learning rates from now on."""

    @property
    def turning_points(self) -> Sequence[float]:
        """Shares of all steps at which training changes: once past one, a run keeps its number of steps."""

    def note_progress(self, share: float) -> None:
        """Which share of all steps has been taken; said before every step."""

    def state_dict(self) -> dict[str, Tensor]:
        """Everything beyond the model that an exact resume needs: targets and optimisers, as tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""


def model_hash(model: torch.nn.Module) -> str:
    """A short hash of all weights: the identity a latent is tied to."""
    return tensors_hash(model.state_dict())


def tensors_hash(tensors: Mapping[str, Tensor]) -> str:
    """The same of named tensors, such as those of a file."""
    digest = hashlib.blake2b(digest_size=12)
    for name, tensor in sorted(tensors.items()):
        value = tensor.detach().cpu().contiguous()
        digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def identity(model: Model) -> str:
    """Hash of the model's weights; '' for a model that has none to hash."""
    return model_hash(model) if isinstance(model, torch.nn.Module) else ""


class _StoredLatent(Config):
    """What the file of a latent holds."""

    z: list[float] = Field(min_length=1)
    model: str
    task: str
    method: str
    data: str = ""
    config: dict[str, Any] = Field(default_factory=dict)
    estimate: float | None = None
    diagnostics: dict[str, float] = Field(default_factory=dict)


@dataclass(frozen=True)
class Latent:
    """A latent and where it came from, so that it can never steer another model's policy unnoticed."""

    z: Tensor  # [d]
    model: str  # hash of the weights it was made for
    task: str
    method: str
    data: str = ""  # fingerprint of the sample it was computed from
    config: Mapping[str, Any] = field(default_factory=dict)
    estimate: float | None = None  # offline estimate of the mean reward per step, not a measured return
    diagnostics: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        # Not its estimate: which estimator made it, and how good that one is, is known to a Skill.
        return f"Latent({len(self.z)} numbers for '{self.task}' by {self.method}, model {self.model})"

    def require(self, model_identity: str, z_dim: int | None = None) -> Tensor:
        """z, after checking that it belongs to the model with this hash and latents of this size."""
        if self.model != model_identity:
            raise CheckpointError(
                f"this latent ({self.method}, task '{self.task}') was made for model {self.model}, "
                f"not for {model_identity}: prompt or adapt again with the model you want to run"
            )
        if z_dim is not None and tuple(self.z.shape) != (z_dim,):
            raise CheckpointError(
                f"this latent ({self.method}, task '{self.task}') has shape {list(self.z.shape)}; the model "
                f"takes latents of {z_dim} numbers"
            )
        check_finite(self.z, f"the latent of {self.method} for '{self.task}'")
        return self.z

    def save(self, path: str | Path) -> None:
        """Write the latent as one JSON file, whole or not at all; one that is not finite is refused."""
        facts = self.checked("this latent").as_json()
        write_bytes(Path(path), (json.dumps(facts, indent=2, allow_nan=False) + "\n").encode())

    def as_json(self) -> dict[str, Any]:
        """The latent as JSON values; diagnostics that are not finite are left out."""
        finite = {name: value for name, value in self.diagnostics.items() if math.isfinite(value)}
        return asdict(self) | {"z": self.z.tolist(), "config": dict(self.config), "diagnostics": finite}

    def checked(self, what: str) -> "Latent":
        """The same latent, after checking that it is one: a vector of finite numbers."""
        if self.z.ndim != 1 or len(self.z) == 0:
            raise CheckpointError(f"{what} has shape {list(self.z.shape)}; expected one vector [d]")
        check_finite(self.z, what)
        if self.estimate is not None and not math.isfinite(self.estimate):
            raise CheckpointError(f"the estimate of {what} is {self.estimate}; expected a finite number")
        return self

    @staticmethod
    def load(path: str | Path) -> "Latent":
        """Read a latent that :meth:`save` wrote."""
        try:
            found = _StoredLatent(**read_json(Path(path)))
        except ConfigError as error:
            raise CheckpointError(f"{path} is not a latent written by zol: {error}") from error
        facts = {name: getattr(found, name) for name in _StoredLatent.model_fields}
        latent = Latent(**(facts | {"z": torch.tensor(found.z, dtype=torch.float32)}))
        return latent.checked(f"the latent in {path}")
