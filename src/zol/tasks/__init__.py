"""What is wanted: rewards as vectorised functions of named states."""

from zol.tasks.task import Field, Layout, Reward, States, Task
from zol.tasks.tolerance import tolerance

__all__ = ["Field", "Layout", "Reward", "States", "Task", "tolerance"]
