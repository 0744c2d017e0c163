"""Joint angles that bring the arm's flange to wanted poses: damped least squares, for all arms at once.

    q ← q + Jᵀ (J Jᵀ + λI)⁻¹ e,        no joint by more than 45° at a time, at most 20 times

e is the error of position and orientation. Kinematics and Jacobians are MuJoCo's, in one call for all arms
that have not arrived yet; the linear systems are one stacked solve.
"""

import mujoco
import mujoco.batch
import numpy as np

from zol.worlds.dmc.domain import Array, Batch, Model
from zol.worlds.ogbench import rotations

ROUNDS = 20
CLOSE = 1e-4  # metres, and radians
DAMPING = 1e-12
LARGEST_TURN = np.radians(45)


class ArmInverse:
    """Solves for the joints of as many arms as asked for."""

    def __init__(self, model: Model, site: str, threads: int = 0) -> None:
        """``model`` is the arm alone; ``site`` is what is brought to a pose."""
        self._model, self._threads = model, threads
        self._model.opt.disableflags |= (
            mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
        )
        self._site, self._body = int(model.site(site).id), int(model.site(site).bodyid[0])
        self._batch: Batch | None = None

    def solve(self, position: Array, orientation: Array, begin: Array) -> Array:
        """Joints ``[n, 6]`` for poses ``[n, 3]``, ``[n, 4]``, searched from ``begin [n, 6]``."""
        batch = self._prepared(len(begin))
        q: Array = np.array(begin, dtype=np.float64)
        open_ids = np.arange(len(q))
        for _ in range(ROUNDS):
            batch.qpos[open_ids] = q[open_ids]
            batch.forward(open_ids, stage=mujoco.mjtStage.mjSTAGE_POS)
            place = batch.site_xpos[open_ids, self._site]
            turned = rotations.from_matrix(batch.site_xmat[open_ids, self._site].reshape(-1, 9))
            off = position[open_ids] - place
            twist = rotations.velocity(rotations.between(orientation[open_ids], turned))
            far = (np.linalg.norm(off, axis=-1) > CLOSE) | (np.linalg.norm(twist, axis=-1) > CLOSE)
            if not far.any():
                break
            open_ids, error = open_ids[far], np.concatenate([off, twist], axis=-1)[far]
            linear, angular = batch.jac(self._body, place[far], open_ids)
            jacobian = np.ascontiguousarray(np.concatenate([linear, angular], axis=1))
            across = jacobian.swapaxes(-1, -2)
            force = np.linalg.solve(jacobian @ across + DAMPING * np.eye(6), error[..., None])
            update = (across @ force)[..., 0]
            most = np.abs(update).max(axis=-1, keepdims=True)
            q[open_ids] += np.where(
                most > LARGEST_TURN, update * (LARGEST_TURN / np.maximum(most, 1e-300)), update
            )
        return q

    def _prepared(self, n: int) -> Batch:
        if self._batch is None or self._batch.nsim < n:
            self._batch = mujoco.batch.Batch(self._model, n, self._threads, False)
            self._batch.bind("site_xpos")
            self._batch.bind("site_xmat")
        return self._batch
