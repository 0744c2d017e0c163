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
        "one_step_fb": Entry("zol.models.one_step_fb:MODEL", "FB of the data's own behaviour, improved once"),
        "laplacian": Entry("zol.models.laplacian:MODEL", "Laplacian successor features"),
        "successor_features": Entry(
            "zol.models.successor_features:MODEL", "successor features of features by name"
        ),
        "hilp": Entry("zol.models.hilp:MODEL", "HILP: successor features of distances in time"),
        "fb_cpr": Entry(
            "zol.models.fb_cpr:MODEL", "FB-CPR: FB that stays near demonstrations, online in a world"
        ),
        "prior_features": Entry(
            "zol.models.prior_features:MODEL", "successor features of a prior over rewards, by practice"
        ),
        "td_jepa": Entry("zol.models.td_jepa:MODEL", "TD-JEPA: encoders that predict each other's futures"),
    },
)
