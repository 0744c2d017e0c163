"""One batched world for every control domain: n environments are stepped in one C call over all cores.

Stepping reproduces dm_control to the last bit. dm_control ends a control step by updating what depends on
positions and velocities, but not accelerations; ``Batch.step(stage=VEL)`` on a persistent batch does the
same. A fresh state is first evaluated with actuation switched off, because dm_control does so on reset.
"""

import copy

import mujoco
import mujoco.batch
import numpy as np
import torch
from torch import Tensor

from zol.common.errors import DataError, WorldError
from zol.fields import States
from zol.worlds.base import Painter, World
from zol.worlds.dmc.domain import Array, Batch, Domain
from zol.worlds.dmc.strip import stop_clock, strip_unused

ROWS_AT_ONCE = 1024  # how many states ``observe`` evaluates in one call
# Columns of the warning counters that mean "this simulation blew up"; MuJoCo then restarts it silently.
UNSTABLE = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC")]


class ControlWorld(World):
    """Walker, cheetah, quadruped or maze, as many at once as asked for. Tensors are float64 on the CPU."""

    episode_length = 1000

    def __init__(self, domain: Domain, threads: int = 0) -> None:
        """A world without environments yet; ``threads=0`` uses every core; settable until a reset."""
        self.domain = domain
        self.name = domain.name
        self.layout = domain.layout
        self.tasks = domain.tasks
        self.discount = domain.discount
        self.action_dim = int(domain.model.nu)
        self.threads: int = threads
        low, high = domain.model.actuator_ctrlrange.T
        # Written so that a range of [−1, 1] leaves every action untouched, to the last bit.
        self._middle, self._half = (high + low) / 2, (high - low) / 2
        self._model = strip_unused(domain.model, domain.reads)
        self._unactuated = copy.copy(self._model)
        self._unactuated.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
        self._columns = slice(1, 1 + domain.physics_dim)  # MuJoCo's rows start (time, qpos, qvel, act, …)
        self._batch: Batch | None = None
        self._scratch: Batch | None = None

    @property
    def physics(self) -> Tensor:
        """Simulator states (qpos, qvel, act) of the running environments, ``[n, P]``; a copy."""
        return torch.from_numpy(self._running().state[:, self._columns].copy())

    def reset(self, n: int, generator: torch.Generator) -> States:
        """``n`` environments in fresh start states.

        The result depends on the drawn states alone: ``set_physics(states.physics)`` starts the same
        episodes again, bit for bit.
        """
        if n < 1:
            raise DataError(f"reset needs at least one environment, got n={n}")
        return self.set_physics(torch.from_numpy(self.domain.starts(self.domain.model, n, generator)))

    def set_physics(self, physics: Tensor) -> States:
        """Put as many environments as there are rows into these states, as dm_control's reset would.

        A state of the quadruped does not determine its accelerometer and toe sensors (27 of 78 columns):
        in a running episode they are one physics step old and include the last action. Here, as after any
        dm_control reset, they are those of the unactuated body, until the next step.
        """
        rows = self._check_physics(physics)
        batch = self._batch
        if batch is None or batch.nsim != len(rows):
            batch = self._batch = self._new_batch(self._model, len(rows), persistent=True)
            self._ctrl: Array = batch.bind("ctrl")  # a live view, looked up once
        batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
        batch.state[:, self._columns] = rows
        batch.set_models(self._unactuated)
        batch.forward(stage=mujoco.mjtStage.mjSTAGE_ACC)
        batch.set_models(None)
        return self._states(None)

    def step(self, action: Tensor) -> States:
        """Apply actions ``[n, A]``, clipped to [−1, 1]; the states carry the clipped ones."""
        batch = self._running()
        # NumPy between two calls of physics: its small operations cost a third of torch's.
        wanted: Array = action.detach().to("cpu", torch.float64).numpy()
        if wanted.shape != (batch.nsim, self.action_dim) or not np.isfinite(wanted).all():
            raise DataError(
                f"{self.name} expects finite actions of shape ({batch.nsim}, {self.action_dim}), got shape "
                f"{wanted.shape} with {int((~np.isfinite(wanted)).sum())} numbers that are not finite"
            )
        applied: Array = np.minimum(np.maximum(wanted, -1.0), 1.0)
        self._advance(batch, applied)
        if batch.warning[:, :, 1].any():  # entry 1 counts; most kinds are harmless
            self._refuse_unstable(batch)
        return self._states(torch.from_numpy(applied))

    def _advance(self, batch: Batch, action: Array) -> None:
        """Move all environments by one control step under actions ``[n, A]`` in [−1, 1]."""
        np.multiply(self._half, action, out=self._ctrl)
        np.add(self._middle, self._ctrl, out=self._ctrl)
        batch.step(nstep=self.domain.substeps, stage=mujoco.mjtStage.mjSTAGE_VEL)

    def observe(self, physics: Tensor) -> Tensor:
        """Observations ``[n, D]`` of states ``[n, P]``: those that ``set_physics`` would give.

        Exact for every column but the quadruped's accelerometer and toe sensors; see ``set_physics``.
        """
        rows = self._check_physics(physics)
        if self._scratch is None or self._scratch.nsim < min(len(rows), ROWS_AT_ONCE):
            size = min(len(rows), ROWS_AT_ONCE)
            self._scratch = self._new_batch(self._unactuated, size, persistent=False)
        scratch = self._scratch
        seen = np.empty((len(rows), self.layout.obs_dim))
        for start in range(0, len(rows), scratch.nsim):
            part = rows[start : start + scratch.nsim]
            ids = np.arange(len(part))
            scratch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
            scratch.state[: len(part), self._columns] = part
            scratch.forward(ids, stage=self.domain.stage)
            seen[start : start + len(part)] = self.domain.observe(scratch)[: len(part)]
        return torch.from_numpy(seen)

    @property
    def control_timestep(self) -> float:
        """Seconds between two actions."""
        return self.domain.control_timestep

    def painter(self, width: int = 320, height: int = 320) -> Painter:
        """Draws pictures of simulator states; OpenGL is not touched before this is called."""
        from zol.worlds.dmc.render import Renderer

        return Renderer(self, width, height)

    def _refuse_unstable(self, batch: Batch) -> None:
        unstable = batch.warning[:, UNSTABLE, 1].any(axis=1)
        if unstable.any():
            raise WorldError(
                f"environment {int(unstable.argmax())} of {self.name} became unstable (NaN or a huge "
                "acceleration): look at the state it was started from"
            )

    def _states(self, action: Tensor | None) -> States:
        obs = torch.from_numpy(self.domain.observe(self._running()))
        return States(obs, self.layout, action=action, physics=self.physics)

    def _running(self) -> Batch:
        if self._batch is None:
            raise WorldError(f"{self.name} holds no environments yet: call reset(n, generator) first")
        return self._batch

    def _new_batch(self, model: object, n: int, persistent: bool) -> Batch:
        stop_clock()
        batch = mujoco.batch.Batch(model, n, self.threads, persistent)
        for name in self.domain.reads:
            batch.bind(name)  # before the first call: a field is filled by the calls that follow
        return batch

    def _check_physics(self, physics: Tensor) -> Array:
        rows: Array = physics.detach().to("cpu", torch.float64).numpy()
        if rows.ndim != 2 or rows.shape[1] != self.domain.physics_dim or len(rows) == 0:
            raise DataError(
                f"{self.name} expects simulator states of shape (n, {self.domain.physics_dim}), "
                f"got {tuple(rows.shape)}: rows of qpos, qvel and activations"
            )
        if not np.isfinite(rows).all():
            bad = int((~np.isfinite(rows)).any(axis=1).sum())
            raise DataError(f"{bad} of these {len(rows)} {self.name} states have NaN or inf in them")
        return rows
