"""The 45 HumEnv rewards: array formulas against one state at a time, in plain Python."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from zol.common.errors import DataError
from zol.tasks import humenv
from zol.tasks.humenv import BODIES, Body

RECORDED = Path(__file__).with_name("humenv_rewards.json")
UPRIGHT = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # y points up
TURNED = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
POSTURES = (UPRIGHT, np.eye(3), np.diag([1.0, -1, -1]), TURNED)


def synthetic(n: int, seed: int = 0) -> Body:
    """Made-up states around the postures that the tasks want, so that every term is seen at work."""
    rng = np.random.default_rng(seed)
    xpos, xmat = np.empty((n, 24, 3)), np.empty((n, 24, 3, 3))
    velocity, gyro, ctrl = np.empty((n, 3)), np.empty((n, 3)), np.empty((n, 69))
    for i in range(n):
        posture = POSTURES[rng.integers(4)]
        spread = rng.choice([0.02, 0.2, 0.6])
        for b in range(24):
            xmat[i, b] = rotation(spread * rng.standard_normal(3)) @ posture
        xpos[i] = rng.choice([0.05, 0.3]) * rng.standard_normal((24, 3))
        level = rng.choice([0.1, 0.2, 0.45, 0.6, 0.9, 1.5, 2.05])
        xpos[i, :, 2] = np.abs(xpos[i, :, 2]) + level * rng.choice([0.3, 1, 1, 1], size=24)
        velocity[i] = rng.choice([0, 0.1, 2, 5]) * rng.standard_normal(3)
        gyro[i] = rng.choice([0.1, 2, 6]) * rng.standard_normal(3)
        ctrl[i] = rng.choice([0, 0.1, 1]) * rng.uniform(-1.2, 1.2, 69)
    return Body(*(torch.from_numpy(x) for x in (xpos, xmat, velocity, gyro, ctrl)))


def rotation(v: np.ndarray) -> np.ndarray:
    angle = np.linalg.norm(v)
    x, y, z = v / angle
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + math.sin(angle) * K + (1 - math.cos(angle)) * K @ K


# --- the slow account ---------------------------------------------------------------------------------


def tol(x, low, high, margin, value=0.0, shape="linear"):
    if low <= x <= high:
        return 1.0
    d = (low - x if x < low else x - high) / margin
    if shape == "gaussian":
        return math.exp(-0.5 * (d * math.sqrt(-2 * math.log(value))) ** 2)
    scaled = d * (1 - value) if shape == "linear" else d * math.sqrt(1 - value)
    if abs(scaled) >= 1:
        return 0.0
    return 1 - scaled if shape == "linear" else 1 - scaled**2


class Slow:
    """One state, with dictionaries and loops."""

    def __init__(self, body: Body, i: int) -> None:
        self.pos = {b: body.xpos[i, k].tolist() for k, b in enumerate(BODIES)}
        self.mat = {b: body.xmat[i, k].tolist() for k, b in enumerate(BODIES)}
        self.C, self.G = body.velocity[i].tolist(), body.gyro[i].tolist()
        a = body.ctrl[i].tolist()
        self.ctl = (4 + sum(tol(x, 0, 0, 1, 0.0, "quadratic") for x in a) / len(a)) / 5
        self.up = self.mat["Chest"][2][1]
        self.U = tol(self.up, 0.9, math.inf, 1.9)

    def h(self, b):
        return self.pos[b][2]

    def yaw(self, b):
        return math.atan2(self.mat[b][1][0], self.mat[b][0][0])

    def still(self, k):
        return sum(tol(c, 0, 0, 0.5, 0.1, "gaussian") for c in self.C[:k]) / k

    def stand(self):
        return tol(self.h("Head"), 1.4, math.inf, 1.4, 0.01) * self.U

    def going(self, angle, speed):
        norm = math.hypot(self.C[0], self.C[1])
        fast = (5 * tol(norm, 0.9 * speed, 1.1 * speed, speed / 2, 0.5, "gaussian") + 1) / 6
        if norm < 1e-8:
            return fast
        to = math.radians(angle - 90) + self.yaw("Chest")
        cosine = (math.cos(to) * self.C[0] + math.sin(to) * self.C[1]) / (norm + 1e-6)
        return fast * (1 + cosine) / 2

    def reward(self, name: str) -> float:
        kind = name.split("-")[0]
        return getattr(self, f"_{kind}")(name)

    def _move(self, name):
        low = "-low-" in name
        angle, speed = map(float, name.removeprefix("move-ego-").removeprefix("low-").rsplit("-", 1))
        base = tol(self.h("Pelvis"), 0.3, 0.6, 0.3, 0.01) * self.U if low else self.stand()
        return self.ctl * base * (self.still(2) if speed == 0 else self.going(angle, speed))

    def _jump(self, name):
        return tol(self.h("Head"), 2, 2.1, 2, 0.01) * self.U * tol(self.C[2], 5, math.inf, 5)

    def _headstand(self, name):
        high = math.prod(
            tol(self.h(b), 0.95, math.inf, 0.475, 0.01) for b in ("Pelvis", "L_Ankle", "R_Ankle")
        )
        steady = sum(tol(g, -1, 1, 4, 0.1) for g in self.G) / 3
        upside = tol(self.mat["Pelvis"][2][1], -1, -0.9, 0.9)
        return (
            high * self.ctl * upside * self.still(3) * steady * tol(self.h("Head"), 0.3, math.inf, 0.1, 0.01)
        )

    def _rotate(self, name):
        axis = "xyz".index(name[7])
        sign = -1 if "--5" in name else 1
        low, high = (0.9, math.inf) if axis == 1 else (-0.1, 0.1)
        spin = tol(sign * self.G[axis], 5, 10, 2.5) * tol(self.h("Pelvis"), 0.8, math.inf, 0.8, 0.01)
        return spin * self.ctl * tol(self.mat["Pelvis"][2][axis], low, high, 0.9)

    def _raisearms(self, name):
        _, left, right = name.split("-")
        ranges = {"l": (0, 0.8, 0.2), "m": (1.4, 1.6, 0.1), "h": (1.8, math.inf, 0.2)}
        hands = math.prod(
            (4 * tol(self.h(b), *ranges[level]) + 1) / 5 for b, level in (("L_Hand", left), ("R_Hand", right))
        )
        return self.ctl * self.stand() * self.still(3) * hands

    def _sit(self, knees):
        down = tol(self.h("Head"), 0.58, 0.78, 0.1, 0.01) * tol(self.h("Pelvis"), 0, 0.15, 0.7)
        legs = math.prod(tol(self.h(b), *knees) for b in ("L_Knee", "R_Knee"))
        return self.ctl * down * legs * tol(self.up, 0.85, math.inf, 1.9) * self.still(3)

    def _crouch(self, name):
        return self._sit((0.2, 1, 0.1))

    def _sitonground(self, name):
        return self._sit((0, 0.1, 0.7))

    def _lieonground(self, name):
        side = 1 if name.endswith("up") else -1
        low = ("Pelvis", "Head", "L_Knee", "R_Knee", "L_Ankle", "R_Ankle")
        flat = ("Head", "Torso", "Chest", "Pelvis", "L_Knee", "R_Knee", "L_Ankle", "R_Ankle")
        down = math.prod(tol(self.h(b), 0, 0.2, 0.7) for b in low) * tol(self.up, 0, 0.2, 1)
        faces = math.prod(tol(side * self.mat[b][2][2], 0.95, math.inf, 1.9) for b in flat)
        return self.ctl * self.still(3) * down * faces

    def _split(self, name):
        wanted = float(name.split("-")[1])
        apart = math.dist(self.pos["L_Ankle"], self.pos["R_Ankle"])
        legs = tol(apart, wanted, math.inf, 0.5) * tol(self.h("Pelvis"), 0, 0.2, 0.5)
        return tol(self.h("Head"), 0.5, math.inf, 0.3) * legs * self.still(3) * self.ctl

    def _crawl(self, name):
        _, height, speed, side = name.split("-")
        H, sign = float(height), 1 if side == "u" else -1
        spine = ("Spine", "Torso", "Chest", "Pelvis")
        legs = ("L_Knee", "R_Knee", "L_Hip", "R_Hip", "L_Ankle", "R_Ankle")
        faces = math.prod(tol(sign * self.mat[b][2][2], 0.5, math.inf, 0.5) for b in (*spine, "Head", *legs))
        level = math.prod(tol(self.h(b), H, H + 0.2, 0.1, 0.01) for b in spine)
        level *= tol(self.h("Head"), 0.3, 1, 0.1, 0.01)
        steady = sum(tol(abs(g), 0, 2.5, 2) for g in self.G) / 3
        line = math.prod(tol(self.yaw(b) - self.yaw("Chest"), -0.1, 0.1, 0.5) for b in spine)
        posture = faces * (1 + level) / 2 * (1 + steady) / 2 * (1 + line) / 2
        return posture * (self.still(2) if speed == "0" else self.going(0, 2))


def test_the_standard_list():
    assert len(humenv.REWARDS) == 45
    assert len(BODIES) == 24
    assert sum(field.size for field in humenv.LAYOUT.fields) == 358


def test_formulas_equal_the_slow_account_on_1000_states():
    body = synthetic(1000)
    fast = humenv.rewards(body)
    states = [Slow(body, i) for i in range(1000)]
    rows = [[state.reward(name) for name in humenv.REWARDS] for state in states]
    slow = torch.tensor(rows, dtype=torch.float64).T
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    at_work = (fast > 1e-6).double().mean(1)
    assert float(at_work.min()) > 0.02, "every task is tried where it pays"


def test_recorded_numbers():
    """Mean reward of every task over the synthetic states; checked once against the original package."""
    recorded = json.loads(RECORDED.read_text())
    means = humenv.rewards(synthetic(1000)).mean(1)
    assert recorded.keys() == humenv.REWARDS.keys()
    np.testing.assert_allclose(means.numpy(), list(recorded.values()), rtol=0, atol=1e-12)


def test_leading_dimensions_are_free_and_one_task_can_be_asked_for():
    body = synthetic(12)
    fields = (body.xpos, body.xmat, body.velocity, body.gyro, body.ctrl)
    grid = Body(*(field.reshape(3, 4, *field.shape[1:]) for field in fields))
    assert torch.equal(humenv.rewards(grid).reshape(45, 12), humenv.rewards(body))
    assert humenv.rewards(body, ["jump-2"]).shape == (1, 12)
    with pytest.raises(DataError, match="did you mean 'headstand'"):
        humenv.rewards(body, ["headstnd"])


def test_the_original_package_agrees_where_it_is_installed():
    mujoco = pytest.importorskip("mujoco")
    from zol.common.errors import WorldError
    from zol.worlds.humenv import load_robot, robot_file

    try:
        model = load_robot(robot_file())
    except WorldError as missing:
        pytest.skip(str(missing))
    original = pytest.importorskip("humenv.env")
    body, data = synthetic(1000), mujoco.MjData(model)
    tasks = [original.make_from_name(name) for name in humenv.REWARDS]
    velocity, gyro = model.sensor("Chest_subtreelinvel").adr[0], model.sensor("Pelvis_gyro").adr[0]
    expected = np.empty((45, 1000))
    for i in range(1000):
        data.xpos[1:25], data.xmat[1:25] = body.xpos[i], body.xmat[i].reshape(24, 9)
        data.sensordata[velocity : velocity + 3], data.sensordata[gyro : gyro + 3] = (
            body.velocity[i],
            body.gyro[i],
        )
        data.ctrl[:] = body.ctrl[i]
        expected[:, i] = [task.compute(model, data) for task in tasks]
    np.testing.assert_allclose(humenv.rewards(body).numpy(), expected, rtol=0, atol=1e-9)
