"""The ant expert: a policy that walks into a commanded direction, which maze data are made with.

It sees what OGBench's experts see, the observation without the place and a unit direction, in a frame of
its own:

* the world is turned about its vertical axis until the command points along x, because the ground looks alike
from
  every side;
* the body's legs are counted from another one, so that it heads within 45 degrees of the command, because the
body
  looks alike from four sides.

What has to be learned is then one walk, straight ahead, instead of a walk for every pair of heading and
command.
"""

from importlib.resources import as_file, files
from pathlib import Path

import torch
from torch import Tensor, nn

from zol.common.errors import CheckpointError, DataError
from zol.common.tensors import assign, read_metadata, read_tensors, write_tensors
from zol.models.layers import Normaliser, layer_norm, linear

SEEN = 27  # columns of the ant's observation without its place
ACTIONS = 8
BUNDLED = (
    "ant_expert.safetensors"  # trained by ``zol data ant-expert``; docs/ogbench.md says how well it walks
)


# Motors are listed (hip, ankle) of leg 4, 1, 2, 3; joints of leg 1, 2, 3, 4. Legs 2 and 3 bend their ankles
# towards
# negative angles, which is turned round here, so that all legs are described alike.
BEND = (1.0, -1.0, -1.0, 1.0)


class AntExpert(nn.Module):
    """Actions ``[n, 8]`` in [−1, 1] for observations ``[n, 29]`` and unit directions ``[n, 2]``."""

    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.hidden = hidden
        self.normaliser = Normaliser(SEEN)
        self.actor = network(SEEN, hidden, ACTIONS)

    def forward(self, obs: Tensor, direction: Tensor) -> Tensor:
        """The expert's action, without noise."""
        seen, quarters = own_view(obs, direction)
        return motors(self.act(self.scaled(seen)), quarters)

    def act(self, seen: Tensor) -> Tensor:
        """Actions for scaled views ``[n, 27]``, in the order of the view's legs."""
        return torch.tanh(self.actor(seen))

    def scaled(self, seen: Tensor) -> Tensor:
        """Views ``[n, 27]`` as the networks are given them: in units of their spread, bounded."""
        bounded: Tensor = self.normaliser(seen).clamp(-5, 5)
        return bounded

    def save(self, path: Path, **facts: str) -> None:
        """Write the weights to a safetensors file, with facts about them."""
        write_tensors(path, dict(self.state_dict()), {"hidden": str(self.hidden), **facts})


def load_expert(path: str | Path | None = None) -> AntExpert:
    """The expert that comes with zol, or one that was trained elsewhere."""
    if path is None:
        with as_file(files("zol.collect") / BUNDLED) as bundled:
            if not bundled.is_file():
                raise DataError(
                    "this installation has no ant expert: train one, zol data ant-expert --out runs/ant, "
                    "and give its expert.safetensors as --expert"
                )
            return _read(bundled)
    return _read(Path(path))


def _read(path: Path) -> AntExpert:
    hidden = read_metadata(path, ("hidden",))["hidden"]
    if not hidden.isdecimal() or not 1 <= int(hidden) <= 4096:
        raise CheckpointError(f"{path} names a width of {hidden!r}: it is no ant expert")
    expert = AntExpert(int(hidden))
    assign(expert, read_tensors(path), path)
    return expert.requires_grad_(False).eval()


def own_view(obs: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """Observations ``[n, 29]`` in the frame of directions ``[n, 2]``, without the place.

    Returns views ``[n, 27]`` and by how many quarter turns the legs are counted on, ``[n]``.
    """
    c, s = direction.unbind(-1)
    q = nn.functional.normalize(obs[:, 3:7], dim=-1)
    angle = torch.atan2(s, c)
    q = _times(_about_z(-angle), q)
    w, x, y, z = q.unbind(-1)
    heading = torch.atan2(2 * (w * z + x * y), 1 - 2 * (y.square() + z.square()))
    quarters = torch.round(heading / (torch.pi / 2)).long() % 4
    q = _times(q, _about_z(-quarters * (torch.pi / 2)))
    q = torch.where(q[:, :1] < 0, -q, q)  # q and −q are one orientation
    vx, vy, vz = obs[:, 15:18].unbind(-1)
    velocity = torch.stack([c * vx + s * vy, c * vy - s * vx, vz], -1)
    spin_x, spin_y, spin_z = obs[:, 18:21].unbind(-1)
    turn_c, turn_s = (
        torch.stack([f(k * torch.pi / 2) for k in torch.arange(4)]) for f in (torch.cos, torch.sin)
    )
    kc, ks = turn_c.to(obs)[quarters], turn_s.to(obs)[quarters]
    spin = torch.stack([kc * spin_x - ks * spin_y, ks * spin_x + kc * spin_y, spin_z], -1)
    joints, speeds = _legs(obs[:, 7:15], quarters), _legs(obs[:, 21:29], quarters)
    return torch.cat([obs[:, 2:3], q, joints, velocity, spin, speeds], -1), quarters


def motors(action: Tensor, quarters: Tensor) -> Tensor:
    """Actions ``[n, 8]`` by the view's legs as the motors of the body take them."""
    legs = action.unflatten(-1, (4, 2))
    own = legs.gather(1, _places(quarters, back=True)) * _bend(action)
    return own[:, [3, 0, 1, 2]].flatten(-2)


def by_legs(action: Tensor, quarters: Tensor) -> Tensor:
    """The inverse of :func:`motors`."""
    legs = action.unflatten(-1, (4, 2))[:, [1, 2, 3, 0]] * _bend(action)
    return legs.gather(1, _places(quarters, back=False)).flatten(-2)


def _legs(joints: Tensor, quarters: Tensor) -> Tensor:
    legs = joints.unflatten(-1, (4, 2)) * _bend(joints)
    return legs.gather(1, _places(quarters, back=False)).flatten(-2)


def _places(quarters: Tensor, *, back: bool) -> Tensor:
    """Which leg stands at each place, ``[n, 4, 2]``: leg i of the body is leg i + quarters of the view."""
    legs = torch.arange(4, device=quarters.device)
    chosen = (legs + (quarters if back else -quarters).unsqueeze(-1)) % 4
    return chosen.unsqueeze(-1).expand(-1, -1, 2)


def _bend(like: Tensor) -> Tensor:
    sign = torch.tensor(BEND, dtype=like.dtype, device=like.device)
    return torch.stack([torch.ones_like(sign), sign], -1)


def _about_z(angle: Tensor) -> Tensor:
    zero = torch.zeros_like(angle)
    return torch.stack([torch.cos(angle / 2), zero, zero, torch.sin(angle / 2)], -1)


def _times(a: Tensor, b: Tensor) -> Tensor:
    """The rotation b, then a."""
    (w0, x0, y0, z0), (w1, x1, y1, z1) = a.unbind(-1), b.unbind(-1)
    return torch.stack(
        [
            w0 * w1 - x0 * x1 - y0 * y1 - z0 * z1,
            w0 * x1 + x0 * w1 + y0 * z1 - z0 * y1,
            w0 * y1 - x0 * z1 + y0 * w1 + z0 * x1,
            w0 * z1 + x0 * y1 - y0 * x1 + z0 * w1,
        ],
        -1,
    )


def upright(obs: Tensor) -> Tensor:
    """Whether ants ``[n, 29]`` are on their feet: not upside down, neither sunk nor thrown up, ``[n]``."""
    height, q = obs[:, 2], nn.functional.normalize(obs[:, 3:7], dim=-1)
    up = 1 - 2 * (q[:, 1].square() + q[:, 2].square())
    return (up > 0) & (height > 0.2) & (height < 1.0)


def unit_directions(n: int, generator: torch.Generator) -> Tensor:
    """Random unit vectors ``[n, 2]``."""
    angle = 2 * torch.pi * torch.rand(n, generator=generator)
    return torch.stack([angle.cos(), angle.sin()], -1)


def network(n_in: int, hidden: int, n_out: int, members: int = 1) -> nn.Sequential:
    """Two hidden layers, the first one normalised."""
    return nn.Sequential(
        linear(n_in, hidden, members),
        layer_norm(hidden, members),
        nn.Tanh(),
        linear(hidden, hidden, members),
        nn.ReLU(),
        linear(hidden, n_out, members),
    )
