"""What pretraining learns: F, B and a policy for every latent z; one file per way of pretraining."""

from typing import TYPE_CHECKING

from zol.common.registry import Entry, Registry

if TYPE_CHECKING:
    from zol.models.pretraining import Pretraining

MODELS: "Registry[Pretraining]" = Registry(
    "model",
    "zol.models",
    {
        "fb": Entry("zol.models.fb:MODEL", "forward–backward representations"),
        "laplacian": Entry("zol.models.laplacian:MODEL", "Laplacian successor features"),
    },
)
