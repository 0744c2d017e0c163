"""dm_control is the reference of these tests; it must not open a display when it is imported."""

import os

os.environ.setdefault("MUJOCO_GL", "disable")
