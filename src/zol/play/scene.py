"""The drawing: two bodies side by side, each on a floor that passes below it, and a frozen pose as ghost."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from zol.play.figure import Figure
from zol.play.stage import Array, Stage
from zol.play.tally import Moment

PLAIN_COLOUR, SECOND_COLOUR, GHOST_COLOUR = (47, 111, 222), (235, 120, 36), (150, 155, 165)
FLOOR, LINE, WALL = (226, 230, 236), (160, 168, 180), (126, 139, 158)
LINES = 9  # across each floor
TRAIL = 120  # past positions of a point
TRAILS = 5.0  # times per second that the path behind a point is drawn again


class Scene:
    """Everything that is drawn for one visitor; ``client`` is a viser client handle."""

    def __init__(self, client: Any, stage: Stage, on_push: Callable[[tuple[float, ...], int | None], None]):
        """``on_push(velocity, which)`` is called when a body is clicked."""
        self._client, self._scene, self.stage, self._on_push = client, client.scene, stage, on_push
        self._shown, self._ghost, self._trailed = 0, False, 0.0
        self._trails = [deque[Array](maxlen=TRAIL), deque[Array](maxlen=TRAIL)]
        self._width = (2.1 if stage.seen_from_above else 1.5) * stage.size  # of a floor
        self._apart = 1.08 * self._width  # between the middles of the two floors
        self._lines: list[list[Any]] = [[], []]
        self._lanes = [self._scene.add_frame(f"/lane{k}", show_axes=False) for k in range(2)]
        self._floors()
        self._figures = [
            Figure(self._scene, "plain", stage, PLAIN_COLOUR, on_click=partial(self._clicked, 0)),
            Figure(self._scene, "second", stage, SECOND_COLOUR, on_click=partial(self._clicked, 1)),
            Figure(self._scene, "ghost", stage, GHOST_COLOUR, opacity=0.45),
        ]
        self._labels = [
            self._scene.add_label(f"/lane{k}/label", text, position=self._above, anchor="bottom-center")
            for k, text in enumerate(("plain", "adapted"))
        ]
        self._trail = self._scene.add_point_cloud(
            "/trail", np.zeros((1, 3)), np.zeros((1, 3), dtype=np.uint8), point_size=stage.size * 0.018,
            point_shape="circle", visible=stage.seen_from_above,
        )  # fmt: skip
        self._rewards: Any = None
        self.look()

    @property
    def _above(self) -> tuple[float, float, float]:
        """Where the name of a body stands, on its own floor."""
        size, height = self.stage.size, self.stage.height
        return (0.0, 1.05 * size, 0.0) if self.stage.seen_from_above else (0.0, 0.0, 2.1 * height)

    @property
    def strength(self) -> float:
        """The speed of a push, in m/s: larger bodies are pushed harder."""
        return 1.6 * self.stage.size

    def look(self) -> None:
        """Put the camera where everything is seen."""
        camera = self._client.camera
        middle = np.array([self._apart / 2 if self._shown == 2 else 0.0, 0.0, self.stage.height])
        far = self._width * (1.35 if self._shown == 2 else 1.0)
        away = (0.0, -0.55, 1.0) if self.stage.seen_from_above else (0.15, -1.2, 0.3)
        camera.up_direction = (0.0, 0.0, 1.0)
        camera.position = middle + far * np.array(away)
        camera.look_at = middle  # afterwards: moving the camera moves what it looks at

    def _floors(self) -> None:
        size, width, (far_x, far_y) = self.stage.size, self._width, self.stage.follows
        for lane in range(2):
            for k, part in enumerate(self.stage.around):
                shade = tuple(int(c * part.shade) for c in ((246, 246, 250) if part.shade > 0.9 else WALL))
                self._scene.add_mesh_simple(
                    f"/lane{lane}/around{k}", part.vertices, part.faces, color=shade, flat_shading=True
                )
            if self.stage.around and not far_x and not self._is_walled:
                continue
            self._scene.add_box(
                f"/lane{lane}/floor", color=FLOOR, dimensions=(width, width, 0.01 * size),
                position=(0, 0, -0.006 * size), cast_shadow=False,
            )  # fmt: skip
            for axis, far in enumerate((far_x, far_y)):
                if far_x or far_y:
                    self._lines[lane].append(self._stripes(lane, axis, width) if far or axis == 0 else None)

    @property
    def _is_walled(self) -> bool:
        return any(part.shade < 0.9 for part in self.stage.around)

    def _stripes(self, lane: int, axis: int, width: float) -> Any:
        """Thin lines across the floor, one mesh that is moved as the body travels."""
        thin, flat = 0.012 * self.stage.size, 0.002 * self.stage.size
        half = [thin, width / 2] if axis == 0 else [width / 2, thin]
        corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * half
        vertices = np.zeros((LINES, 4, 3))
        vertices[..., :2], vertices[..., 2] = corners, flat
        vertices[..., axis] += (np.arange(LINES) * width / LINES - width / 2)[:, None]
        faces = np.array([[0, 1, 2], [0, 2, 3]]) + 4 * np.arange(LINES)[:, None, None]
        return self._scene.add_mesh_simple(
            f"/lane{lane}/lines{axis}", vertices.reshape(-1, 3), faces.reshape(-1, 3), color=LINE,
            side="double",
        )  # fmt: skip

    def _clicked(self, which: int, event: Any) -> None:
        """Push the body away from where it was hit, and along the ray."""
        ray, origin = np.array(event.ray_direction), np.array(event.ray_origin)
        middle = np.array([self._apart * which, 0.0, self.stage.height])
        hit = origin + ray * float((middle - origin) @ ray)
        sideways = (middle - hit) / self.stage.size
        velocity = self.strength * np.clip(ray + 2 * sideways, -1.5, 1.5)
        self._on_push((float(velocity[0]), float(velocity[1]), 0.0), which)

    def draw(self, moment: Moment, ghost: Tensor | None) -> None:
        """One picture: positions relative to each body's own floor."""
        physics = moment.physics if ghost is None else _with(moment.physics, ghost)
        where, turned = self.stage.poses(physics)
        roots = where[:, 0].copy()
        centre = roots * np.array([*self.stage.follows, False])
        lanes = np.array([[0.0, 0, 0], [self._apart, 0, 0], [0.0, 0, 0]])[: len(physics)]
        where = where + (lanes - centre)[:, None]
        with self._client.atomic():
            self._appear(moment.shown, ghost is not None)
            for k, figure in enumerate(self._figures[: len(where)]):
                if k != 1 or moment.shown == 2:
                    figure.place(where[k], turned[k])
            for lane in range(moment.shown):
                for axis, lines in enumerate(self._lines[lane]):
                    if lines is not None:
                        lines.position = self._passing(float(centre[lane, axis]), axis)
            if self.stage.seen_from_above:
                self._draw_trails(where, moment.shown)
        self._client.flush()  # viser would collect messages for a sixtieth of a second

    def _appear(self, shown: int, ghost: bool) -> None:
        if (shown, ghost) == (self._shown, self._ghost):
            return
        again = shown != self._shown
        self._shown, self._ghost = shown, ghost
        for figure, visible in zip(self._figures, (True, shown == 2, ghost), strict=True):
            figure.show(visible)
        self._lanes[1].position = (self._apart, 0, 0)
        self._lanes[1].visible = shown == 2
        if again:
            self._trails[1].clear()
            self.look()

    def _passing(self, travelled: float, axis: int) -> tuple[float, ...]:
        """How far the lines are moved after the body has travelled so far: by less than their distance."""
        moved = [0.0, 0.0, 0.0]
        moved[axis] = -travelled % (self._width / LINES)
        return tuple(moved)

    def _draw_trails(self, where: Array, shown: int) -> None:
        for k in range(shown):
            self._trails[k].append(where[k, 0] - [0, 0, 0.004 * self.stage.size])
        now = time.perf_counter()
        if now - self._trailed < 1 / TRAILS:
            return
        self._trailed = now
        points = np.concatenate([np.array(trail) for trail in self._trails if trail])
        colours = np.concatenate(
            [
                np.tile(np.array(colour, dtype=np.uint8), (len(trail), 1))
                for trail, colour in zip(self._trails, (PLAIN_COLOUR, SECOND_COLOUR), strict=True)
                if trail
            ]
        )
        self._trail.points, self._trail.colors = points.astype(np.float16), colours

    def restart(self) -> None:
        """Forget the paths drawn so far."""
        for trail in self._trails:
            trail.clear()

    def name(self, first: str, second: str) -> None:
        """What stands above the bodies."""
        self._labels[0].text, self._labels[1].text = first, second

    def paint(self, positions: Array, rewards: Array) -> None:
        """Where rewards are, in a world that is seen from above: sampled states, from grey to gold."""
        if not self.stage.seen_from_above:
            return
        low, high = float(rewards.min()), float(rewards.max())
        share = ((rewards - low) / (high - low) if high > low else np.zeros_like(rewards))[:, None]
        colours = (1 - share) * np.array([205, 210, 218]) + share * np.array([245, 176, 20])
        points = np.concatenate([positions, np.full((len(positions), 1), 0.004 * self.stage.size)], axis=1)
        if self._rewards is not None:
            self._rewards[0].colors = self._rewards[1].colors = colours.astype(np.uint8)
            return
        self._rewards = [
            self._scene.add_point_cloud(
                f"/lane{lane}/rewards", points, colours.astype(np.uint8),
                point_size=0.012 * self.stage.size, point_shape="circle",
            )
            for lane in range(2)
        ]  # fmt: skip


def _with(physics: Tensor, ghost: Tensor) -> Tensor:
    joined: Tensor = physics.new_empty(3, physics.shape[1])
    joined[:2], joined[2] = physics, ghost
    return joined
