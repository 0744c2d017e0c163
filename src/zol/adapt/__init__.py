"""Search over z with all networks frozen. Every method has one signature, so a table is a loop."""

from zol.adapt.controls import perturbed, prompted
from zol.adapt.gpi import GPI, candidate_latents, gpi_policy
from zol.adapt.lola import LoLAConfig, lola_search
from zol.adapt.rehearse import RehearsalConfig, rehearsed
from zol.adapt.rela import ReLAConfig, rela_search
from zol.adapt.result import Adapted
from zol.adapt.zol import AUTHORS, ZOLConfig, zol
from zol.evidence import Evidence

__all__ = [
    "AUTHORS",
    "GPI",
    "Adapted",
    "Evidence",
    "LoLAConfig",
    "ReLAConfig",
    "RehearsalConfig",
    "ZOLConfig",
    "candidate_latents",
    "gpi_policy",
    "lola_search",
    "perturbed",
    "prompted",
    "rehearsed",
    "rela_search",
    "zol",
]
