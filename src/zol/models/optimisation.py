"""Optimisers whose state is plain tensors, slow target networks, and passes without gradients for weights."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from zol.common import parallel
from zol.common.errors import CheckpointError
from zol.common.tensors import assign


class Adam:
    """torch's fused Adam, with a state of named tensors that fits into a safetensors file."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self.parameters = list(parameters)
        self.learning_rate = learning_rate
        self.optimiser = torch.optim.Adam(self.parameters, lr=learning_rate, fused=True)

    def step_and_clear(self) -> None:
        """Apply the gradients (with several processes, their sum) and drop them."""
        parallel.add_gradients(self.parameters)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def scale_learning_rate(self, scale: float) -> None:
        """Use this share of the learning rate from now on."""
        for group in self.optimiser.param_groups:
            group["lr"] = scale * self.learning_rate

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and step counts, ``{index}.{name}``."""
        return {
            f"{index}.{name}": value
            for index, parameter in enumerate(self.parameters)
            for name, value in self.optimiser.state[parameter].items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        for index, parameter in enumerate(self.parameters):
            prefix = f"{index}."
            for key, value in state.items():
                if key.startswith(prefix) and value.shape not in (parameter.shape, ()):
                    raise CheckpointError(
                        f"the training state has '{key}' {list(value.shape)} for a parameter "
                        f"{list(parameter.shape)} of Adam: it belongs to another model"
                    )
            self.optimiser.state[parameter] = {
                key.removeprefix(prefix): value.to(parameter.device, copy=True)
                for key, value in state.items()
                if key.startswith(prefix)
            }


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Gradients flow through the module to its inputs, and none are computed for its weights."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


@torch.no_grad()
def move_towards(target: nn.Module, source: nn.Module, rate: float) -> None:
    """target ← (1 − τ)·target + τ·source, in one call for all weights."""
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), rate)


def named_state(parts: Mapping[str, nn.Module | Adam]) -> dict[str, Tensor]:
    """The states of several parts in one flat dictionary, ``{part}.{name}``."""
    return {f"{part}.{name}": t for part, owner in parts.items() for name, t in owner.state_dict().items()}


def restore_state(parts: Mapping[str, nn.Module | Adam], state: Mapping[str, Tensor]) -> None:
    """The inverse of :func:`named_state`."""
    for part, owner in parts.items():
        own = {k.removeprefix(f"{part}."): v for k, v in state.items() if k.startswith(f"{part}.")}
        if not own and owner.state_dict():
            raise CheckpointError(f"the training state has nothing for '{part}'")
        if isinstance(owner, Adam):
            owner.load_state_dict(own)
        else:
            assign(owner, own, f"the training state of '{part}'")


def restore_generator(generator: torch.Generator, state: Mapping[str, Tensor], source: Path) -> None:
    """Set a generator to the state stored under ``generator``."""
    try:
        generator.set_state(state["generator"])
    except (KeyError, RuntimeError, TypeError) as error:
        raise CheckpointError(f"{source} holds no state of a random generator ('generator')") from error
