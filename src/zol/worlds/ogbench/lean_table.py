"""Step a table with a robot arm on a leaner model: the same motion to the last bit, in less time.

The leaner model has no geoms that are only there to be seen, and does not look for contacts between parts
that :mod:`zol.worlds.ogbench.apart` proves to be apart. MuJoCo records where every physics step began. An
environment that was ever where the proof does not hold, or whose warnings rose, is stepped again from where
it was, on the full model.

MuJoCo sweeps for pairs that may touch along an axis that depends on where all geoms are, in single precision.
Contacts do not depend on that axis, except for one that is shallower than the rounding, 1e-7 m, and faces
along it to 1e-5 rad: such a contact may be seen a physics step later on either model.
"""

from typing import Any

import mujoco
import mujoco.batch
import numpy as np
from numpy.typing import NDArray

from zol.worlds.dmc.domain import Array, Batch, Model
from zol.worlds.dmc.strip import without_midphase
from zol.worlds.ogbench.apart import Buttons, Fingers, NotStudied

Spec = Any  # mujoco ships no type information
# What bodies, joints and servos are. Some masses in the package come from geoms that are left out.
COPIED = ("body_", "dof_", "jnt_", "actuator_", "tendon_", "eq_", "qpos", "site_")
# But for where their geoms, bounding boxes and lights are listed, and what broadphase makes of their geoms.
OWN = ("geom", "bvh", "matid", "plugin", "contype", "conaffinity", "margin")


class LeanTable:
    """Steps the environments of a batch, whose model is the full one."""

    def __init__(self, spec: Spec, full: Model) -> None:
        """``spec`` is that of the full model; parts of it are deleted."""
        self.guards: tuple[Fingers | Buttons, ...] = (Fingers(full), Buttons(full))
        self.model = lean_model(spec, full, [pair for guard in self.guards for pair in guard.pairs])
        self._batch: Batch | None = None
        self._warned: NDArray[np.int64]  # counts of warnings of every environment of that batch

    def step(self, batch: Batch, substeps: int) -> None:
        """Advance all environments of ``batch`` by some physics steps."""
        lean = self._batch_like(batch)
        again = ~self.apart(batch.qpos[:, None])
        if not again.all():
            ids = np.flatnonzero(~again)
            lean.state[ids] = batch.state[ids]
            seen = lean.rollout(substeps, record=["qpos"], ids=ids)["qpos"]
            again[ids] = ~self.apart(seen[:, :-1])  # from the last one, no step was made yet
            warned = lean.warning[:, :, 1].copy()
            again |= (warned != self._warned).any(1)  # what warns here is to warn there
            self._warned = warned
            batch.state[~again] = lean.state[~again]
        if again.any():
            batch.step(np.flatnonzero(again), nstep=substeps, stage=mujoco.mjtStage.mjSTAGE_NONE)

    def apart(self, qpos: Array) -> NDArray[np.bool_]:
        """For which environments the leaner model is exact, given all their ``[n, times, nq]``."""
        good: NDArray[np.bool_] = np.all([guard.apart(qpos) for guard in self.guards], axis=(0, 2))
        return good

    def agrees(self, full: Model) -> bool:
        """Whether a few steps from the model's first state are those of the full model."""
        ends = []
        for model in (self.model, full):
            batch = mujoco.batch.Batch(model, 1, 1)
            batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
            batch.step(nstep=10, stage=mujoco.mjtStage.mjSTAGE_NONE)
            ends.append(batch.state.copy())
        return np.array_equal(*ends)

    def _batch_like(self, batch: Batch) -> Batch:
        if self._batch is None or (self._batch.nsim, self._batch.nthread) != (batch.nsim, batch.nthread):
            self._batch = mujoco.batch.Batch(self.model, batch.nsim, batch.nthread)
            self._warned = self._batch.warning[:, :, 1].copy()
        return self._batch


def lean_table(spec: Spec, full: Model) -> LeanTable | None:
    """What steps this table faster; None where the gripper or MuJoCo is not the one that was studied."""
    try:
        lean = LeanTable(spec, full)
    except NotStudied:
        return None
    return lean if lean.agrees(full) else None


def lean_model(spec: Spec, full: Model, pairs: list[tuple[str, str]]) -> Model:
    """The full model without what is only seen, and without contacts between ``pairs`` of bodies."""
    for geom in list(spec.geoms):
        if not geom.contype and not geom.conaffinity:
            spec.delete(geom)
    for part in (*spec.lights, *spec.cameras):
        spec.delete(part)
    for one, other in pairs:
        spec.add_exclude(bodyname1=one, bodyname2=other)
    model = without_midphase(spec.compile())
    model.opt.disableflags = full.opt.disableflags
    model.stat.meaninertia = full.stat.meaninertia
    for name in dir(full):
        if name.startswith(COPIED) and not any(word in name for word in OWN):
            getattr(model, name)[:] = getattr(full, name)
    # Whether a geom sits in its body's frame, or in that of its inertia.
    model.geom_sameframe[:] = full.geom_sameframe[(full.geom_contype | full.geom_conaffinity) > 0]
    return model
