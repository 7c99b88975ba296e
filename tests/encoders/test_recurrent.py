"""The recurrent encoders against cells written out in NumPy, and their dropout against masks written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from streamgp.encoders import Dropout, Layout, Recurrent, gru, lstm, lstm_peephole, rnn
from tests.needs import needs

LAYOUT = Layout(lags=6, past=2, horizon=2, future=1)
MODULES: dict[str, Any] = {"rnn": rnn, "gru": gru, "lstm": lstm, "lstm_peephole": lstm_peephole}
NAMES = pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
Array = np.ndarray[Any, np.dtype[np.float64]]


def build(name: str, layout: Layout = LAYOUT, **options: Any) -> Recurrent:
    """With biases that are not 0."""
    made: Recurrent = MODULES[name].build(MODULES[name].Config(**options), layout)
    generator = Generator().manual_seed(5)
    with torch.no_grad():
        for key, value in made.named_parameters():
            if "bias" in key or "peepholes" in key:
                value.add_(torch.randn(value.shape, dtype=value.dtype, generator=generator) * 0.3)
    return made


def windows(rows: int, layout: Layout = LAYOUT, seed: int = 0) -> Tensor:
    return torch.randn(rows, layout.width, dtype=torch.float64, generator=Generator().manual_seed(seed))


def sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def elman(a: list[Array], b: list[Array], state: list[Array]) -> list[Array]:
    return [np.tanh(a[0] + b[0])]


def gated(a: list[Array], b: list[Array], state: list[Array]) -> list[Array]:
    reset, keep = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
    return [(1 - keep) * np.tanh(a[2] + reset * b[2]) + keep * state[0]]


def memory(a: list[Array], b: list[Array], state: list[Array], see: Array | None = None) -> list[Array]:
    i, f, g, o = (x + y for x, y in zip(a, b, strict=True))
    see = np.zeros((3, len(i))) if see is None else see
    c = sigmoid(f + see[1] * state[1]) * state[1] + sigmoid(i + see[0] * state[1]) * np.tanh(g)
    return [sigmoid(o + see[2] * c) * np.tanh(c), c]


CELLS: dict[str, tuple[int, int, Callable[..., list[Array]]]] = {
    "rnn": (1, 1, elman),
    "gru": (3, 1, gated),
    "lstm": (4, 2, memory),
    "lstm_peephole": (4, 2, memory),
}
CELLS_OF_MEMORY = ("lstm", "lstm_peephole")


def oracle(name: str, encoder: Recurrent, z: Array, masks: dict[str, Array] | None = None) -> Array:
    """One row at a time, one lag at a time, one gate at a time; masks: "x0", "h0", "x1", ..., "out" -> (N, units)."""
    weights = {key: value.detach().numpy() for key, value in encoder.named_parameters()}
    gates, states, plain = CELLS[name]
    out = []
    for row in range(len(z)):
        mask = {key: value[row] for key, value in (masks or {}).items()}
        sequence = [z[row, lag * LAYOUT.past : (lag + 1) * LAYOUT.past] for lag in range(LAYOUT.lags)]
        for number in range(len(encoder.layers)):
            w, u, b, c = (
                np.split(weights[f"layers.{number}.{part}_l0"], gates)
                for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            see = weights.get(f"peepholes.{number}")
            cell = plain if see is None else partial(plain, see=see)
            state = [np.zeros(encoder.hidden)] * states
            seen = []
            for x in sequence:
                x, h = x * mask.get(f"x{number}", 1.0), state[0] * mask.get(f"h{number}", 1.0)
                driven = [w[k] @ x + b[k] for k in range(gates)]
                state = cell(driven, [u[k] @ h + c[k] for k in range(gates)], state)
                seen.append(state[0])
            sequence = seen
        last = np.concatenate((sequence[-1], z[row, LAYOUT.lags * LAYOUT.past :])) * mask.get("out", 1.0)
        out.append(weights["projection.weight"] @ last + weights["projection.bias"])
    return np.stack(out)


@pytest.mark.parametrize("name", [*MODULES])
@pytest.mark.parametrize("layers", [1, 2])
def test_it_is_the_cell_written_out(name: str, layers: int) -> None:
    encoder, z = build(name, hidden=5, layers=layers, width=3), windows(4)
    np.testing.assert_allclose(encoder(z).detach().numpy(), oracle(name, encoder, z.numpy()), rtol=0, atol=1e-12)


def test_peepholes_begin_as_the_cell_without_them_and_learn() -> None:
    plain, seeing = (MODULES[name].build(MODULES[name].Config(hidden=5, layers=2), LAYOUT) for name in CELLS_OF_MEMORY)
    z = windows(4)
    torch.testing.assert_close(seeing(z), plain(z), rtol=0, atol=1e-12)
    gradients = torch.autograd.grad(seeing(z).sum(), list(seeing.peepholes))
    assert all(bool((gradient != 0).all()) for gradient in gradients)


@NAMES
def test_lag_by_lag_is_the_layer_of_pytorch_values_and_gradients(name: str) -> None:
    encoder, x = build(name, hidden=5), windows(4)[:, :12].unflatten(1, (6, 2))
    (layer,) = encoder.stack()
    probe = torch.randn(4, 6, 5, dtype=torch.float64, generator=Generator().manual_seed(1))
    found = []
    for h in (layer(x)[0], encoder.unrolled(layer, x, torch.ones(1, 5, dtype=torch.float64))):
        found.append([h, *torch.autograd.grad((h * probe).sum(), list(layer.parameters()))])
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [*MODULES])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("rate", "back"), [(0.4, 0.0), (0.0, 0.3), (0.4, 0.3)])
def test_one_mask_a_row_for_all_lags(name: str, shared: bool, rate: float, back: float) -> None:
    """The masks drawn in their order, given to the oracle, which uses each at every lag."""
    encoder, z = build(name, hidden=5, layers=2, width=3, dropout=rate, recurrent_dropout=back), windows(4)
    drop = Dropout(Generator().manual_seed(2), shared)
    masks: dict[str, Array] = {}
    for number, width in enumerate((2, 5)):
        if rate:
            masks[f"x{number}"] = drop.mask(z, width, rate).expand(4, -1).numpy()
        if back:
            masks[f"h{number}"] = drop.mask(z, 5, back).expand(4, -1).numpy()
    if rate:
        masks["out"] = drop.mask(z, 5 + 2, rate).expand(4, -1).numpy()
    latent = encoder(z, Dropout(Generator().manual_seed(2), shared)).detach().numpy()
    np.testing.assert_allclose(latent, oracle(name, encoder, z.numpy(), masks), rtol=0, atol=1e-12)


def test_a_dropped_channel_is_dropped_at_every_lag() -> None:
    """Inputs of ones through an adding network: h_L is L/(1 − rate) where the channel is kept, else 0."""
    layout = Layout(lags=6, past=1)
    encoder = rnn.build(rnn.Config(hidden=1, width=1, dropout=0.5), layout)
    small = 1e-6  # where tanh is the identity
    with torch.no_grad():
        for key, value in encoder.named_parameters():
            value.fill_({"layers.0.weight_ih_l0": small, "layers.0.weight_hh_l0": 1.0}.get(key, 0.0))
        encoder.projection.weight.fill_(1 / small)
        latent = encoder(torch.ones(400, 6, dtype=torch.float64), Dropout(Generator().manual_seed(0)))
    kept = 6 / 0.5 / 0.5  # by the input's mask, then by the projection's
    assert sorted(latent.round(decimals=6).unique().tolist()) == [0.0, kept]
    assert abs(float((latent > 0).double().mean()) - 0.25) < 0.08


@NAMES
def test_many_masks_average_to_no_mask_where_the_map_is_linear(name: str) -> None:
    """Only the future enters linearly: with the hidden state cut off, the mean over masks is the undropped latent."""
    encoder = build(name, hidden=4, width=1, dropout=0.3, recurrent_dropout=0.2)
    with torch.no_grad():
        encoder.projection.weight[:, :4] = 0.0
        z = windows(1)
        many = encoder(z.expand(20_000, -1), Dropout(Generator().manual_seed(0)))
        error = float((many.mean() - encoder(z)).abs())
    assert error < 5 * float(many.std()) / 20_000**0.5


def test_masks_are_kept_units_scaled_up() -> None:
    for shared, rows in ((False, 5000), (True, 1)):
        mask = Dropout(Generator().manual_seed(0), shared).mask(torch.zeros(5000, 1, dtype=torch.float64), 4, 0.2)
        assert mask.shape == (rows, 4) and set(mask.unique().tolist()) <= {0.0, 1.25} and mask.dtype == torch.float64
    assert abs(float(Dropout(Generator().manual_seed(0)).mask(mask.expand(5000, 4), 4, 0.2).mean()) - 1) < 0.02


@NAMES
def test_initial_weights(name: str) -> None:
    """Uniform, in bounds of 1/√hidden for what a layer sees and 1/√fan_in for the projection."""
    encoder = MODULES[name].build(MODULES[name].Config(hidden=64, layers=2, width=8), Layout(4, 100))
    for key, value in encoder.state_dict().items():
        if "bias" in key:
            assert name == "lstm" or value.eq(0).all()
            continue
        bound = 64**-0.5  # the projection too: it sees 64 units, and no future
        assert value.abs().max() <= bound
        assert float(value.std()) * 3**0.5 / bound == pytest.approx(1, abs=0.1), "of a uniform distribution"


def test_the_forget_gate_starts_at_1_and_the_others_at_0() -> None:
    for layer in lstm.build(lstm.Config(hidden=16, layers=2), LAYOUT).stack():
        total = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().unflatten(0, (4, 16))
        assert total[1].eq(1).all() and total[[0, 2, 3]].eq(0).all()


@NAMES
def test_training_computes_in_float32_for_float64_weights(name: str) -> None:
    encoder, z = build(name, hidden=16, layers=2), windows(64)
    assert not encoder.training, "float64 for everyone who does not ask for training"
    latent = encoder(z)
    wanted = torch.autograd.grad(latent.square().sum(), list(encoder.parameters()))
    encoder.train()
    cheap = encoder(z)
    assert cheap.dtype == torch.float64 and not torch.equal(cheap, latent)
    torch.testing.assert_close(cheap, latent, rtol=0, atol=1e-5)
    for ours, theirs in zip(torch.autograd.grad(cheap.square().sum(), list(encoder.parameters())), wanted, strict=True):
        assert ours.dtype == torch.float64
        assert float((ours - theirs).norm()) <= 1e-4 * float(theirs.norm())


@NAMES
def test_training_in_float64_where_it_is_asked_for(name: str) -> None:
    encoder, z = build(name, precision="float64"), windows(8)
    latent = encoder(z)
    assert torch.equal(encoder.train()(z), latent)


@NAMES
def test_the_oldest_lag_is_read_first(name: str) -> None:
    """The newest rows matter more to an untrained network than the oldest."""
    layout = Layout(lags=30, past=1)
    encoder = build(name, layout)
    z = windows(50, layout).requires_grad_()
    (slope,) = torch.autograd.grad(encoder(z).sum(), z)
    reach = slope.square().mean(0).sqrt()
    assert reach[-5:].mean() > 3 * reach[:5].mean()


@needs("gpu")
@NAMES
@pytest.mark.parametrize("back", [0.0, 0.3])
def test_cuda_computes_what_the_cpu_does(name: str, back: float) -> None:
    encoder, z = build(name, layers=2, dropout=0.2, recurrent_dropout=back), windows(8)
    here = encoder(z, Dropout(Generator().manual_seed(1)))
    there = encoder.to("cuda")
    for parameter in there.parameters():
        parameter.data = parameter.data.clone()  # apart in memory, as optimisers that swap iterates leave them
    latent = there(z.cuda(), Dropout(Generator().manual_seed(1)))
    torch.testing.assert_close(latent.cpu(), here, rtol=1e-9, atol=1e-11)
    latent.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in there.parameters())
