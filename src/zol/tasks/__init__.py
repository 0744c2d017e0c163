"""What is wanted: rewards as vectorised functions of named states."""

from zol.tasks.task import Reward, Task, earnings
from zol.tasks.tolerance import tolerance

__all__ = ["Reward", "Task", "earnings", "tolerance"]
