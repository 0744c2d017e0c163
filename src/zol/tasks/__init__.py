"""What is wanted: rewards as vectorised functions of named states."""

from zol.tasks.task import Condition, Reward, Starts, Task, earnings
from zol.tasks.tolerance import tolerance

__all__ = ["Condition", "Reward", "Starts", "Task", "earnings", "tolerance"]
