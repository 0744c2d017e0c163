"""What a skill would earn, offline, by every estimator side by side, and which of them to believe."""

from collections.abc import Mapping
from dataclasses import dataclass

from zol import report
from zol.value import ValueEstimate
from zol.value.accuracy import advice, bounds, told

# title → diagnostic, as far as an estimator tells it
COLUMNS = {"ESS": "ess", "mass": "mean_ratio", "neg.": "negative_share", "flow": "flow_residual"}


@dataclass(frozen=True)
class Appraisal:
    """Offline estimates of one skill on its own task, in reward per step; no environment was touched."""

    task: str
    method: str
    domain: str  # name of the world; '' if there is none
    estimates: Mapping[str, ValueEstimate]  # by estimator; single numbers
    left_out: Mapping[str, str]  # what the others would need
    steps: int | None = None  # of an episode
    supported: float | None = None  # what the best behaviour within the data's support earns, by OptiDICE

    @property
    def advice(self) -> str:
        """Which of the estimates to believe, and why."""
        return advice(self.estimates, self.domain)

    def cells(self) -> report.Cells:
        """One row per estimator: estimate, where the truth is likely, return, diagnostics, seconds."""
        columns = ["by", "per step", "likely", "return", *COLUMNS, "s"]
        rows = []
        for name, found in self.estimates.items():
            mean = float(found.mean)
            total = "–" if self.steps is None else report.number(mean * self.steps)
            shown = [found.diagnostics.get(key) for key in COLUMNS.values()]
            rows.append(
                [
                    name,
                    f"{mean:.3f}",
                    "–" if found.likely is None else "{:.2f} to {:.2f}".format(*found.likely.tolist()),
                    total,
                    *("–" if value is None else f"{float(value.mean()):.2f}" for value in shown),
                    f"{found.seconds:.1f}",
                ]
            )
        return columns, rows

    @property
    def notes(self) -> list[str]:
        """What is said below the table."""
        notes = [self.advice]
        for name in self.estimates:
            known = bounds(name) if self.domain else None
            notes.append(_sentence(told(name, self.domain) + ("" if known is None else f"; {known}")))
        if self.supported is not None:
            notes.append(
                f"The best behaviour that the data support earns {self.supported:.3f} per step by OptiDICE, "
                "whose accuracy was not measured."
            )
        notes += [f"{name} needs {what}." for name, what in self.left_out.items()]
        return notes

    @property
    def title(self) -> str:
        """What was estimated."""
        return f"{self.task} by {self.method}: offline estimates"

    def __str__(self) -> str:
        return "\n".join([self.title, report.markdown(self.cells()), *self.notes])

    __repr__ = __str__


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
