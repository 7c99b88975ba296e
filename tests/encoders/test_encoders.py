"""Every registered encoder: shapes, dtype, rows alone, weights from the seed, dropout, latents of order 1."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from streamgp.encoders import BoundedEncoder, Dropout, Encoder, Layout
from streamgp.errors import UsageError
from streamgp.registry import load, names
from tests.words import naming

RECURRENT = ("gru", "lstm", "lstm_peephole", "rnn")
BOTH, PAST, NOW = Layout(lags=3, past=2, horizon=2, future=1), Layout(lags=5, past=1), Layout(0, 0, 1, 4)
CASES = [(n, at) for n in names("encoders") for at in (BOTH, PAST, NOW) if at.lags or n not in RECURRENT]
EVERY = pytest.mark.parametrize(("name", "layout"), CASES, ids=str)
TRAINED = pytest.mark.parametrize("name", [name for name in names("encoders") if name != "identity"])


def build(name: str, layout: Layout, **options: Any) -> Encoder:
    module = load("encoders", name)
    made: Encoder = module.build(module.Config(**options), layout)
    return made


def windows(layout: Layout, rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, layout.width, dtype=torch.float64, generator=Generator().manual_seed(seed))


@EVERY
@pytest.mark.parametrize("bounded", [False, True])
def test_rows_do_not_see_each_other(name: str, layout: Layout, bounded: bool) -> None:
    encoder = BoundedEncoder(build(name, layout)) if bounded else build(name, layout)
    z = windows(layout, 5)
    latent = encoder(z)
    assert latent.shape == (5, encoder.width) and latent.dtype == torch.float64
    for row in range(5):
        torch.testing.assert_close(encoder(z[row : row + 1]), latent[row : row + 1], rtol=1e-10, atol=1e-14)
    assert encoder(z[:0]).shape == (0, encoder.width) and torch.equal(encoder(z), latent)
    assert not bounded or latent.abs().max() < 1


@EVERY
def test_the_seed_alone_decides_the_weights(name: str, layout: Layout) -> None:
    torch.manual_seed(1)
    first = build(name, layout).state_dict()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = build(name, layout).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert torch.equal(before, torch.get_rng_state()), "the global generator was drawn from"
    if name != "identity":
        other = build(name, layout, seed=1).state_dict()
        assert any(not torch.equal(first[key], other[key]) for key in first)


@EVERY
def test_dropout_at_rate_0_changes_nothing(name: str, layout: Layout) -> None:
    z, encoder, generator = windows(layout, 5), build(name, layout), Generator().manual_seed(0)
    before = generator.get_state()
    assert torch.equal(encoder(z, Dropout(generator)), encoder(z))
    assert torch.equal(before, generator.get_state())


def rates(name: str) -> list[dict[str, float]]:
    both = [{"dropout": 0.4}, {"recurrent_dropout": 0.4}, {"dropout": 0.4, "recurrent_dropout": 0.2}]
    return both if name in RECURRENT else both[:1]


@TRAINED
def test_dropout_is_drawn_from_its_generator(name: str) -> None:
    z = windows(BOTH, 6)[:1].expand(6, -1)
    for options in rates(name):
        encoder = build(name, BOTH, layers=2, **options)
        assert torch.equal(encoder(z), build(name, BOTH, layers=2)(z)), "nothing is dropped unasked"
        before = torch.get_rng_state()
        first, again = (encoder(z, Dropout(Generator().manual_seed(7))) for _ in range(2))
        assert torch.equal(first, again) and torch.equal(before, torch.get_rng_state())
        assert len(first.unique(dim=0)) >= 4, "each row has its own mask (where all inputs are dropped, little is left)"
        shared = encoder(z, Dropout(Generator().manual_seed(7), shared=True))
        torch.testing.assert_close(shared, shared[:1].expand(6, -1), rtol=1e-12, atol=1e-14)
        assert not torch.allclose(shared, encoder(z))
        first.sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


@TRAINED
def test_bounded_latents_are_the_tanh_of_the_others(name: str) -> None:
    z, inner = windows(BOTH, 6), build(name, BOTH, dropout=0.3)
    encoder = BoundedEncoder(inner)
    assert encoder.width == inner.width
    torch.testing.assert_close(encoder(z), inner(z).tanh(), rtol=0, atol=0)
    dropped = encoder(z, Dropout(Generator().manual_seed(3)))
    torch.testing.assert_close(dropped, inner(z, Dropout(Generator().manual_seed(3))).tanh(), rtol=0, atol=0)


@pytest.mark.sampled
@TRAINED
@pytest.mark.parametrize("layout", [BOTH, Layout(10, 2), Layout(48, 1), Layout(24, 3, 24, 2)], ids=str)
def test_latents_begin_small_or_of_order_1(name: str, layout: Layout) -> None:
    """For windows of independent lags; the median over columns and seeds. Recurrent ones begin almost linear."""
    z = windows(layout, 300)
    with torch.no_grad():
        spread = torch.cat([build(name, layout, seed=seed)(z).std(0) for seed in range(6)])
    low, high = (0.01, 0.5) if name in RECURRENT else (0.3, 1.5)
    assert low < spread.median() < high


@EVERY
@pytest.mark.parametrize("bounded", [False, True])
def test_weighed_it_is_what_it_was_of_multiples_of_the_channels(name: str, layout: Layout, bounded: bool) -> None:
    encoder = BoundedEncoder(build(name, layout)) if bounded else build(name, layout)
    z = windows(layout, 5)
    past, future = torch.rand(layout.past).double() + 0.5, torch.rand(layout.future).double() + 0.5
    before = encoder(z * torch.cat((past.repeat(layout.lags), future.repeat(layout.horizon))))
    unweighed = encoder(z)
    encoder.weigh(past, future)
    wanted = unweighed if name == "identity" else before
    torch.testing.assert_close(encoder(z), wanted, rtol=1e-10, atol=1e-12)


@EVERY
def test_the_output_is_the_linear_map_that_latents_come_out_of(name: str, layout: Layout) -> None:
    encoder, z = build(name, layout), windows(layout, 5)
    assert not encoder.training or name in ("identity", "mlp"), "float64 for everyone who does not ask for training"
    if encoder.output is None:
        assert name == "identity"
        return
    before = encoder(z)
    with torch.no_grad():
        encoder.output.weight *= 2.0
        encoder.output.bias.copy_(2.0 * encoder.output.bias + 1.0)
    torch.testing.assert_close(encoder(z), 2 * before + 1)


@TRAINED
@pytest.mark.parametrize("width", [1, 3])
def test_settled_latents_have_mean_0_and_the_spread_asked_for(name: str, width: int) -> None:
    inner = build(name, BOTH, width=width, seed=2)
    assert inner.output is not None
    with torch.no_grad():
        inner.output.bias.add_(5.0)
    encoder, z = BoundedEncoder(inner), 3 * windows(BOTH, 200)
    encoder.settle(z, 0.35)
    latent = inner(z).detach()
    torch.testing.assert_close(latent.mean(0), torch.zeros(width, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(latent.std(0), torch.full((width,), 0.35, dtype=torch.float64))
    torch.testing.assert_close(encoder(z).detach(), latent.tanh())


@pytest.mark.parametrize("rows", [1, 5])
def test_latents_that_do_not_spread_keep_their_scale(rows: int) -> None:
    """The first row of a stream, and rows of a sensor that stands still: no division by their spread."""
    encoder = build("mlp", PAST, width=4)
    assert encoder.output is not None
    z, before = torch.ones(rows, PAST.width, dtype=torch.float64), encoder.output.weight.detach().clone()
    encoder.settle(z, 0.35)
    torch.testing.assert_close(encoder.output.weight.detach(), before, rtol=0, atol=0)
    torch.testing.assert_close(encoder(z).detach(), torch.zeros(rows, 4, dtype=torch.float64))


def test_the_identity_has_nothing_to_settle() -> None:
    encoder, z = BoundedEncoder(build("identity", PAST)), windows(PAST, 20)
    before = encoder(z)
    encoder.settle(z, 0.35)
    assert torch.equal(encoder(z), before)


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("layout", [NOW, Layout(lags=3, past=0, horizon=3, future=1)], ids=str)
def test_a_recurrent_encoder_needs_a_past(name: str, layout: Layout) -> None:
    with pytest.raises(UsageError, match=naming(name)) as caught:
        build(name, layout)
    assert "--lags" in caught.value.hint and "mlp" in caught.value.hint


def test_mlp_is_its_layers() -> None:
    encoder = build("mlp", Layout(3, 1), hidden=4, layers=1, width=2)
    x = windows(Layout(3, 1), 5)
    first, _, last = encoder.net
    expected = torch.tanh(x @ first.weight.T + first.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(encoder(x), expected)


def test_the_mlp_drops_inputs_and_hidden_units_on_average_to_nothing() -> None:
    """A linear probe: with weights so small that tanh is the identity, the mean over masks is the undropped map."""
    layout = Layout(4, 1)
    encoder = build("mlp", layout, hidden=8, layers=1, width=1, dropout=0.3)
    with torch.no_grad():
        for layer in (encoder.net[0], encoder.net[2]):
            layer.weight.fill_(1e-3)
        row = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
        many, once = encoder(row.expand(40_000, -1), Dropout(Generator().manual_seed(0))), encoder(row)
    assert abs(float(many.mean() / once) - 1) < 5 * float(many.std() / many.mean()) / 200
    assert (many == 0).any(), "a row whose inputs are all dropped"
