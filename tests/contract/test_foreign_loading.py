"""Checkpoints of other projects: every map equals a slow evaluation of the raw tensors."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import foreign_files as files
import numpy as np
import pytest
import torch
from foreign_files import FIELDS, KWARGS, SIGHT, A, D, O, Slow
from safetensors.torch import save_file

import zol.checkpoint
from zol import measure, prompt
from zol.checkpoint.folder import named_columns
from zol.common.errors import CheckpointError, DataError
from zol.common.reading import JSON_LIMIT
from zol.models.base import Measure, Model, model_hash, tensors_hash
from zol.models.foreign import flatten, is_foreign, load_foreign
from zol.models.network import Network

N = 5


def inputs(o=O, d=D, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((N, d))
    z *= np.sqrt(d) / np.linalg.norm(z, axis=1, keepdims=True)
    return rng.standard_normal((N, o)), z, rng.uniform(-1, 1, (N, A))


def tensors(*arrays):
    return [torch.tensor(array, dtype=torch.float32) for array in arrays]


def close(ours: torch.Tensor, slow) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), np.array(slow), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "options",
    [{}, {"residual": True, "depth": 3}, {"norm_obs": False, "depth": 4}, {"cpr": False}],
    ids=["simple", "residual", "deep", "fb"],
)
def test_metamotivo(tmp_path, options):
    config, stored = files.metamotivo(**options)
    model = load_foreign(files.write(tmp_path, config, stored), discount=0.98)
    slow, (obs, z, a) = Slow(stored), inputs()
    seen = obs if options.get("norm_obs") is False else slow.normalise("_obs_normalizer", obs)
    to, tz, ta = tensors(obs, z, a)
    rows = range(N)
    close(model(to, tz, ta).movedim(0, 1), [slow.forward("_forward_map", seen[i], z[i], a[i]) for i in rows])
    close(model.backward(to), [slow.head("_backward_map.net", seen[i], True) for i in rows])
    close(model.act(to, tz), [slow.actor(seen[i], z[i]) for i in rows])
    if options.get("cpr", True):
        close(model.critic(to, tz, ta).T, [slow.forward("_critic", seen[i], z[i], a[i])[:, 0] for i in rows])
        logits = [slow.head("_discriminator.trunk", np.concatenate([z[i], seen[i]]), False)[0] for i in rows]
        close(model.discriminate(to, tz), logits)
        close(model.discriminator.reward(torch.tensor(seen).float(), tz), logits)
    else:
        with pytest.raises(DataError, match="no critic"):
            model.critic(to, tz, ta)
    assert isinstance(model, Model)
    assert model.config.window == 8
    assert not any(p.requires_grad for p in model.parameters())


def test_metamotivo_agent_folder_drops_targets_and_knows_the_discount(tmp_path):
    config, stored = files.metamotivo()
    stored |= files.targets(stored, "_backward_map", "_forward_map", "_critic")
    files.write(tmp_path / "model", config, stored)
    agent = {"model": config, "train": {"discount": 0.97}, "cudagraphs": False, "compile": False}
    (tmp_path / "config.json").write_text(json.dumps(agent))
    (tmp_path / "optimizers.pth").write_bytes(b"never read")
    for folder in (tmp_path, tmp_path / "model"):
        model = load_foreign(folder)
        assert model.discount == 0.97
        assert not any("target" in name for name in model.state_dict())


def test_hub_model_of_humenv_has_its_published_discount_and_layout(tmp_path):
    config, _ = files.metamotivo()
    from zol.models.foreign import metamotivo
    from zol.models.foreign.section import Section

    section = Section(config | {"obs_dim": 358, "action_dim": 69}, "config.json")
    assert metamotivo.published_discount(section) == 0.98
    with torch.device("meta"):
        model = Network(metamotivo.blueprint(section, 0.98).config)
    # models know no tasks: the checkpoint, which does, names the columns
    assert model.layout.names == ["obs"]
    assert "root_height" in named_columns(model).layout.names


@pytest.mark.parametrize(("flow", "left"), [(False, True), (False, False), (True, True)])
def test_td_jepa_fb(tmp_path, flow, left):
    config, stored = files.td_jepa_fb(flow=flow, left=left)
    model = load_foreign(files.write(tmp_path, config, stored, KWARGS), discount=0.99)
    slow, (obs, z, a) = Slow(stored), inputs()
    x = [slow.head("_left_encoder.net", s, True) if left else s for s in obs]
    to, tz, ta = tensors(obs, z, a)
    rows = range(N)
    close(model(to, tz, ta).movedim(0, 1), [slow.forward("_forward_map", x[i], z[i], a[i]) for i in rows])
    close(model.backward(to), [slow.head("_backward_map.net", s, True) for s in obs])
    if not flow:
        close(model.act(to, tz), [slow.actor(x[i], z[i]) for i in rows])
        with pytest.raises(DataError, match="no noise input"):
            model.act(to, tz, ta)
        return
    close(model.act(to, tz, ta), [slow.actor(obs[i], z[i], a[i]) for i in rows])
    close(model.act(to, tz), [slow.actor(obs[i], z[i], np.zeros(A)) for i in rows])
    time = torch.rand(N, 1)
    close(model.vector_field(to, ta, time), [vector_field(slow, obs[i], a[i], float(time[i])) for i in rows])


def vector_field(slow, s, x, t):
    h = np.concatenate([s, x, [t]])
    for i in slow.indices("_actor_vf.net")[:-1]:
        h = slow.linear(f"_actor_vf.net.{i}", h, 0)
        h = torch.nn.functional.gelu(torch.tensor(h)).numpy()
    return slow.linear("_actor_vf.net.8", h, 0)


@pytest.mark.parametrize("centred", [True, False])
def test_td_jepa_hilp(tmp_path, centred):
    config, stored = files.td_jepa_hilp(centred=centred)
    model = load_foreign(files.write(tmp_path, config, stored, KWARGS), discount=0.98)
    slow, (obs, z, a) = Slow(stored), inputs()
    seen = slow.normalise("_obs_normalizer._normalizer", obs)
    to, tz, ta = tensors(obs, z, a)
    rows = range(N)
    x = [slow.head("_left_encoder.net", s, True) for s in seen]
    mean = slow.t["features_mean"] if centred else np.zeros(D)
    phi = np.array([slow.head("_features.net", s, False) for s in seen]) - mean
    covariance = slow.t["_z_cov"] - np.outer(mean, mean)
    close(model.regressors(to), phi)
    close(model.backward(to), phi @ np.linalg.pinv(covariance, rtol=1e-6, hermitian=True))
    close(model(to, tz, ta).movedim(0, 1), [slow.forward("_sf", x[i], z[i], a[i]) for i in rows])
    close(model.act(to, tz), [slow.actor(x[i], z[i]) for i in rows])
    assert model.measure.offset == (1.0 if centred else 0.0)
    toward = phi[1:] - phi[:1]
    expected = np.sqrt(D) * toward / np.linalg.norm(toward, axis=1, keepdims=True)
    close(prompt.towards(model, to[:1], to[1:]), expected)


@pytest.mark.parametrize("symmetric", [False, True])
def test_td_jepa_jepa(tmp_path, symmetric):
    config, stored = files.td_jepa_jepa(symmetric=symmetric)
    model = load_foreign(files.write(tmp_path, config, stored, KWARGS), discount=0.98)
    slow, (obs, z, a) = Slow(stored), inputs(d=model.z_dim)
    to, tz, ta = tensors(obs, z, a)
    rows = range(N)
    phi = [slow.head("_phi_mlp_encoder.net", s, True) for s in obs]
    psi = phi if symmetric else [slow.head("_psi_mlp_encoder.net", s, True) for s in obs]
    close(model.regressors(to), psi)
    close(model(to, tz, ta).movedim(0, 1), [slow.forward("_phi_predictor", phi[i], z[i], a[i]) for i in rows])
    close(model.act(to, tz), [slow.actor(phi[i], z[i]) for i in rows])


def test_least_squares_is_the_prompt_of_successor_features(tmp_path):
    config, stored = files.td_jepa_hilp()
    model = load_foreign(files.write(tmp_path, config, stored, KWARGS), discount=0.98)
    generator = torch.Generator().manual_seed(0)
    obs, r = torch.randn(500, O, generator=generator), torch.rand(500, generator=generator)
    phi = model.regressors(obs).double().numpy()
    z, *_ = np.linalg.lstsq(phi, r.double().numpy())
    expected = np.sqrt(D) * z / np.linalg.norm(z)
    close(prompt.reward(model, obs, r, "least_squares"), expected)
    close(prompt.reward(model, obs, r, "ridge", ridge=1e-9), expected)
    model.whiten_on(obs)  # then E[B r] is least squares by itself
    close(prompt.reward(model, obs, r), expected)


def test_whitened_features_give_the_ratio_exactly_on_their_span(tmp_path):
    """E_ρ[w φ] = (1 − γ) μ, so E_ρ[w r] = J for every r = φᵀθ; the centred ratio has mean one."""
    config, stored = files.td_jepa_hilp()
    model = load_foreign(files.write(tmp_path, config, stored, KWARGS), discount=0.9)
    obs = torch.randn(400, O, generator=torch.Generator().manual_seed(1))
    model.centre += model.regressors(obs).mean(0)
    model.whiten_on(obs)
    mu = torch.randn(3, D, generator=torch.Generator().manual_seed(2))
    w = measure.raw_ratio(model, mu, model.backward(obs))
    close(w.mean(-1), np.ones(3))
    close((w.unsqueeze(-1) * model.regressors(obs)).mean(1), 0.1 * mu.numpy())


def test_bfm_zero(tmp_path):
    config, stored = files.bfm_zero()
    files.write(tmp_path / "checkpoint" / "model", config, stored, files.BFM_KWARGS)
    agent = {"name": "FBcprAuxAgent", "train": {"name": "x", "discount": 0.98}}
    (tmp_path / "checkpoint" / "config.json").write_text(json.dumps(agent))
    model = load_foreign(tmp_path)
    assert model.config.forward.embedding_layers == 4  # the config says 2
    assert model.config.actor is not None
    assert model.config.actor.embedding_layers == 2
    rng = np.random.default_rng(3)
    obs = {name: rng.standard_normal((N, size)) for name, size in FIELDS.items()}
    _, z, a = inputs()
    slow = Slow(stored)
    seen = {k: slow.normalise(f"_obs_normalizer._normalizers.{k}._normalizer", v) for k, v in obs.items()}
    view = {part: np.concatenate([seen[k] for k in keys], axis=1) for part, keys in SIGHT.items()}
    flat = flatten({k: torch.tensor(v).float() for k, v in obs.items()}, model.layout)
    tz, ta = tensors(z, a)
    rows = range(N)
    f = view["f"]
    close(model(flat, tz, ta).movedim(0, 1), [slow.forward("_forward_map", f[i], z[i], a[i]) for i in rows])
    close(model.backward(flat), [slow.head("_backward_map.net", s, True) for s in view["b"]])
    close(model.act(flat, tz), [slow.actor(view["actor"][i], z[i]) for i in rows])
    close(model.critic(flat, tz, ta).T, [slow.forward("_critic", f[i], z[i], a[i])[:, 0] for i in rows])
    aux = [slow.forward("_aux_critic", f[i], z[i], a[i])[:, 0] for i in rows]
    close(model.aux_critic(flat, tz, ta).T, aux)
    pairs = np.concatenate([z, view["b"]], axis=1)
    close(model.discriminate(flat, tz), [slow.head("_discriminator.trunk", x, False)[0] for x in pairs])
    with pytest.raises(DataError, match="lacks history_actor"):
        flatten({"last_action": flat[:, :A]}, model.layout)


@pytest.mark.parametrize("make", [files.td_jepa_fb, files.td_jepa_hilp, files.td_jepa_jepa, files.bfm_zero])
def test_a_pickled_space_is_never_opened(tmp_path, make):
    """Where only init_kwargs.pkl tells the sizes, they are read off the weights."""

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    config, stored = make()
    folder = files.write(tmp_path / "m", config, stored)
    (folder / "init_kwargs.pkl").write_bytes(pickle.dumps(Bomb()))
    model = load_foreign(folder, discount=0.98)
    assert model.action_dim == A
    assert not (tmp_path / "exploded").exists()


def test_pickles_are_refused(tmp_path):
    (tmp_path / "latest.pt").write_bytes(b"x")
    for opener in (load_foreign, zol.checkpoint.load):
        with pytest.raises(CheckpointError, match="is a pickle"):
            opener(tmp_path / "latest.pt")
    with pytest.raises(CheckpointError, match=r"latest\.pt.*never opened"):
        load_foreign(tmp_path)


def test_missing_extra_and_misshapen_tensors_are_named(tmp_path):
    config, stored = files.metamotivo()

    def refused(changed):
        files.write(tmp_path, config, changed)
        with pytest.raises(CheckpointError) as caught:
            load_foreign(tmp_path, discount=0.98)
        return str(caught.value)

    without = {k: v for k, v in stored.items() if k != "_forward_map.Fs.2.weight"}
    assert "'_forward_map.Fs.2.weight' is missing" in refused(without)
    assert "'_actor.policy.9.bias'" in refused(stored | {"_actor.policy.9.bias": np.zeros(3, np.float32)})
    wrong = refused(stored | {"_critic.Fs.4.bias": np.zeros((2, 1, 2), np.float32)})
    assert "'_critic.Fs.4.bias' has shape [2, 1, 2], the config says [2, 1, 1]" in wrong
    nan = np.full_like(stored["_actor.policy.0.bias"], np.nan)
    assert "NaN" in refused(stored | {"_actor.policy.0.bias": nan})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"obs_dim": 10**12}, "obs_dim|size"),
        ({"obs_dim": "seven"}, "obs_dim is 'seven'; expected a whole number"),
        ({"archi": []}, "archi"),
        ({"norm_obs": 2}, "expected true or false"),
        ({"seq_length": float("inf")}, "seq_length"),
    ],
)
def test_bad_configs_name_the_field(tmp_path, change, complaint):
    config, stored = files.metamotivo()
    files.write(tmp_path, config | change, stored)
    with pytest.raises(CheckpointError, match=complaint):
        load_foreign(tmp_path, discount=0.98)


def test_unusual_files(tmp_path):
    config, stored = files.td_jepa_fb()
    folder = files.write(tmp_path / "a", config, stored, KWARGS)
    assert "Infinity" in (folder / "init_kwargs.json").read_text()
    with pytest.raises(CheckpointError, match="pass discount="):
        load_foreign(folder)
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="not valid JSON"):
        load_foreign(folder)
    (folder / "config.json").write_text(" " * (JSON_LIMIT + 1))
    with pytest.raises(CheckpointError, match="at most"):
        load_foreign(folder)
    images = config | {"archi": config["archi"] | {"rgb_encoder": {"name": "drq"}}}
    with pytest.raises(CheckpointError, match="sees images"):
        load_foreign(files.write(tmp_path / "b", images, stored, KWARGS), discount=0.9)
    with pytest.raises(CheckpointError, match="one of"):
        load_foreign(files.write(tmp_path / "c", config | {"name": "TD3Model"}, stored, KWARGS), discount=0.9)


def test_load_recognises_foreign_folders_by_content(tmp_path):
    config, stored = files.metamotivo()
    agent = {"model": config, "train": {"discount": 0.97}}
    files.write(tmp_path / "model", config, stored)
    (tmp_path / "config.json").write_text(json.dumps(agent))
    assert is_foreign(tmp_path)
    assert not is_foreign(tmp_path / "nowhere")
    checkpoint = zol.checkpoint.load(tmp_path)
    assert checkpoint.model.discount == 0.97
    assert checkpoint.facts["model"] == "metamotivo/fb_cpr"
    assert zol.checkpoint.load(tmp_path, discount=0.5).model.discount == 0.5


@pytest.mark.parametrize("make", [files.metamotivo, files.td_jepa_hilp, files.td_jepa_jepa, files.bfm_zero])
def test_an_adopted_model_survives_our_own_format(tmp_path, make):
    config, stored = make()
    kwargs = files.BFM_KWARGS if make is files.bfm_zero else files.KWARGS
    model = load_foreign(files.write(tmp_path / "theirs", config, stored, kwargs), discount=0.9)
    obs = torch.randn(6, model.obs_dim)
    sample = {"obs": obs, "starts": obs[:2], "same": obs}  # views of one another are written as copies
    checkpoint = zol.checkpoint.load(zol.checkpoint.save(model, tmp_path / "ours", prompt=sample))
    again = checkpoint.model
    assert all(torch.equal(checkpoint.prompt[name], sample[name]) for name in sample)
    assert again.config == model.config
    assert model_hash(again) == model_hash(model)
    assert again.measure == model.measure
    assert again.layout.names == model.layout.names
    with pytest.raises(CheckpointError, match="records its own discount"):
        zol.checkpoint.load(tmp_path / "ours", discount=0.5)


@pytest.mark.parametrize("asked", ["", "@main", "@" + "c0ffee00" * 5])
def test_a_checkpoint_from_the_hub_says_which_commit_it_is(tmp_path, monkeypatch, asked):
    hub = pytest.importorskip("huggingface_hub")
    commit = "c0ffee00" * 5
    files.write(tmp_path / commit, *files.metamotivo())
    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: str(tmp_path / commit))
    address = f"hf://facebook/metamotivo-S-1{asked}"
    found = zol.checkpoint.load(address, discount=0.98)
    assert (found.facts["origin"], found.facts["revision"]) == (address, commit)
    assert found.facts["pinned"] is (asked == f"@{commit}")
    facts = {name: value for name, value in found.facts.items() if name not in zol.checkpoint.OWN_FACTS}
    again = zol.checkpoint.load(zol.checkpoint.save(found.model, tmp_path / "ours", facts=facts))
    assert all(again.facts[name] == found.facts[name] for name in ("origin", "revision", "pinned"))
    card = (tmp_path / "ours" / "README.md").read_text()
    assert f"hf://facebook/metamotivo-S-1 at {commit}" in card
    assert ("without naming a commit" in card) == ("not pinned" in card) == (asked != f"@{commit}")


def test_a_hub_library_that_does_not_tell_the_commit(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    files.write(tmp_path, *files.metamotivo())
    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    for asked, revision in (("", "unknown"), ("@v1", "v1")):
        facts = zol.checkpoint.load(f"hf://facebook/metamotivo-S-1{asked}", discount=0.98).facts
        assert (facts["revision"], facts["pinned"]) == (revision, False)


def test_hub_downloads_configs_and_safetensors_only(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    config, stored = files.metamotivo()
    files.write(tmp_path, config, stored)
    asked: dict[str, Any] = {}

    def snapshot_download(repo_id, *, revision=None, allow_patterns=None):
        asked.update(repo=repo_id, revision=revision, patterns=allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    assert load_foreign("hf://facebook/metamotivo-S-1@main", discount=0.98).action_dim == A
    assert asked["repo"] == "facebook/metamotivo-S-1"
    assert asked["revision"] == "main"
    assert all(pattern.endswith((".json", ".safetensors")) for pattern in asked["patterns"])
    with pytest.raises(CheckpointError, match="hf://organisation/name"):
        load_foreign("hf://nonsense")

    def broken(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(hub, "snapshot_download", broken)
    with pytest.raises(CheckpointError, match="no route to host"):
        load_foreign("hf://facebook/metamotivo-S-1")


def test_an_image_normaliser_is_no_identity(tmp_path):
    config, stored = files.td_jepa_fb()
    config["obs_normalizer"] = {"name": "RGBNormalizerConfig"}
    with pytest.raises(
        CheckpointError, match=r"obs_normalizer\.name is 'RGBNormalizerConfig'; expected one of"
    ):
        load_foreign(files.write(tmp_path, config, stored, KWARGS), discount=0.9)
    config, stored = files.bfm_zero()
    config["obs_normalizer"]["normalizers"]["state"] = {"name": "RGBNormalizerConfig"}
    with pytest.raises(CheckpointError, match=r"normalizers\.state\.name is 'RGBNormalizerConfig'"):
        load_foreign(files.write(tmp_path / "b", config, stored, files.BFM_KWARGS), discount=0.9)


SECTIONS: dict[str, tuple[Callable[[], files.Stored], list[tuple[str, ...]]]] = {
    "metamotivo": (files.metamotivo, [(), ("archi",), ("archi", "f"), ("archi", "b"), ("archi", "actor")]),
    "td_jepa_fb": (files.td_jepa_fb, [(), ("archi",), ("archi", "left_encoder"), ("obs_normalizer",)]),
    "flow": (lambda: files.td_jepa_fb(flow=True), [("archi", "actor_vf")]),
    "hilp": (files.td_jepa_hilp, [(), ("archi",), ("archi", "features"), ("obs_normalizer",)]),
    "jepa": (files.td_jepa_jepa, [(), ("archi",), ("archi", "phi_predictor")]),
    "bfm_zero": (
        files.bfm_zero,
        [(), ("archi",), ("archi", "critic"), ("archi", "f", "input_filter"), ("obs_normalizer",)],
    ),
}


@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name, (_, paths) in SECTIONS.items() for path in paths], ids=str
)
def test_a_setting_that_nobody_reads_is_named(tmp_path, name, path):
    """It would be a part of the model that is silently left out."""
    config, stored = SECTIONS[name][0]()
    config = json.loads(json.dumps(config))
    section = config
    for key in path:
        section = section[key]
    section["spectral_norm"] = True
    kwargs = files.BFM_KWARGS if name == "bfm_zero" else KWARGS
    with pytest.raises(CheckpointError, match="no setting called 'spectral_norm'") as caught:
        load_foreign(files.write(tmp_path, config, stored, kwargs), discount=0.9)
    assert ".".join(("config.json", *path)) in str(caught.value)


@pytest.mark.parametrize("discount", [None, 0.9])
def test_load_says_the_true_reason(tmp_path, discount):
    """Whatever is wrong with a foreign folder, it is not that it "records its own discount"."""

    def reason(folder):
        with pytest.raises(CheckpointError) as caught:
            zol.checkpoint.load(folder, discount=discount)
        return str(caught.value)

    config, stored = files.metamotivo()
    folder = files.write(tmp_path / "no weights", config, stored)
    (folder / "model.safetensors").unlink()
    assert "holds no config.json with a model.safetensors beside it" in reason(folder)
    folder = files.write(tmp_path / "broken", config, stored)
    (folder / "config.json").write_text("{" + (folder / "config.json").read_text())
    assert "is not valid JSON" in reason(folder)
    folder = files.write(tmp_path / "agent" / "model", config, stored).parent
    (folder / "config.json").write_text(json.dumps({"model": {}, "train": {"discount": 0.9}}))
    (folder / "model" / "config.json").write_text("{}")
    assert "neither the 'schema' of a zol checkpoint nor the 'archi'" in reason(folder)
    folder = files.write(tmp_path / "other", {"obs_dim": 3}, stored)
    assert "neither the 'schema' of a zol checkpoint nor the 'archi'" in reason(folder)
    nowhere = reason(tmp_path / "nowhere")
    assert "is not a checkpoint folder" in nowhere


def test_folders_of_the_first_format_still_open(tmp_path):
    """Adopted models were called "composite", and their normalisers had the plural's name."""
    for make, kwargs in ((files.td_jepa_hilp, KWARGS), (files.bfm_zero, files.BFM_KWARGS)):
        config, stored = make()
        model = load_foreign(files.write(tmp_path / make.__name__, config, stored, kwargs), discount=0.9)
        old = {}
        single = model.config.single
        for name, value in model.state_dict().items():
            theirs = "normalisers.obs." if single else "normalisers."
            old[name.replace("normaliser.", theirs, 1) if name.startswith("normaliser.") else name] = value
        assert any(name.startswith("normalisers.") for name in old)
        network = model.config.model_dump(mode="json")
        network["parts"] = network.pop("observation")
        own = {"schema": 1, "kind": "composite", "sizes": [], "versions": {}, "weights": tensors_hash(old)}
        for name in ("measure", "discrete", "fourier"):  # which it did not have
            network.pop(name)
        folder = tmp_path / f"old {make.__name__}"
        folder.mkdir()
        save_file({n: v.contiguous() for n, v in old.items()}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(own | {"config": network}))
        again = zol.checkpoint.load(folder)
        assert again.model.config == model.config
        assert again.facts["model"] == model.config.source
        assert model_hash(again.model) == model_hash(model)
        measure = {"normalised": True, "begins": "current", "offset": 0.5}
        (folder / "config.json").write_text(json.dumps(own | {"config": network, "measure": measure}))
        assert zol.checkpoint.load(folder).model.measure == Measure(True, "current", 0.5)
        (folder / "config.json").write_text(json.dumps(own | {"config": network, "kind": "composit"}))
        with pytest.raises(CheckpointError, match="did you mean 'composite'"):
            zol.checkpoint.load(folder)
