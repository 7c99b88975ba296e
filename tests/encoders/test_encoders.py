"""Every registered encoder: shapes, dtype, rows alone, weights from the seed."""

from __future__ import annotations

import pytest
import torch

from streamgp.registry import load, names


@pytest.mark.parametrize("name", names("encoders"))
def test_rows_do_not_see_each_other(name: str) -> None:
    module = load("encoders", name)
    encoder = module.build(module.Config(), 6)
    x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    latent = encoder(x)
    assert latent.shape == (5, encoder.width) and latent.dtype == torch.float64
    for row in range(5):
        torch.testing.assert_close(encoder(x[row : row + 1]), latent[row : row + 1], rtol=1e-10, atol=1e-14)
    assert encoder(x[:0]).shape == (0, encoder.width)


@pytest.mark.parametrize("name", names("encoders"))
def test_the_seed_alone_decides_the_weights(name: str) -> None:
    module = load("encoders", name)
    torch.manual_seed(1)
    first = module.build(module.Config(), 6).state_dict()
    torch.manual_seed(2)
    second = module.build(module.Config(), 6).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_mlp_is_its_layers() -> None:
    module = load("encoders", "mlp")
    encoder = module.build(module.Config(hidden=4, layers=1, width=2), 3)
    x = torch.randn(5, 3, dtype=torch.float64)
    first, _, last = encoder.net
    expected = torch.tanh(x @ first.weight.T + first.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(encoder(x), expected)
    assert 0.2 < encoder(torch.randn(400, 3, dtype=torch.float64)).std().item() < 2.0
