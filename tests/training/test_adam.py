"""Row-wise Adam against torch's own."""

from __future__ import annotations

import torch

from streamgp.training.adam import RowAdam, schedule


def test_a_tensor_of_one_age_is_torchs_adam() -> None:
    start = torch.randn(4, 3, dtype=torch.float64)
    ours, theirs = start.clone(), start.clone().requires_grad_()
    adam, twin = RowAdam({"w": ours}, {"w": 0.5}), torch.optim.Adam([theirs], lr=0.05, eps=1e-12)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        gradient = torch.randn(4, 3, dtype=torch.float64, generator=generator)
        adam.step({"w": gradient}, rate=0.1)
        theirs.grad = gradient
        twin.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-14)


def test_a_new_row_is_a_first_step_whatever_its_neighbours_did() -> None:
    w = torch.zeros(3, 2, dtype=torch.float64)
    adam = RowAdam({"w": w}, {})
    for step in range(50):
        gradient = torch.ones(3, 2, dtype=torch.float64)
        gradient[1:] = 0.0 if step < 49 else torch.tensor([[1e-3, -5.0], [0.0, 0.0]])
        adam.step({"w": gradient}, rate=0.1)
    torch.testing.assert_close(w[1], torch.tensor([-0.1, 0.1]).double(), rtol=1e-6, atol=0)
    assert w[2].abs().max() == 0
    before = w.clone()
    adam.forget("w", torch.tensor([0]))
    adam.step({"w": torch.tensor([[7.0, -7.0], [0.0, 0.0], [0.0, 0.0]]).double()}, rate=0.1)
    torch.testing.assert_close(w[0] - before[0], torch.tensor([-0.1, 0.1]).double(), rtol=1e-6, atol=0)


def test_restored_it_goes_on_bit_for_bit() -> None:
    a, b = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    one, two = RowAdam({"w": a}, {}), RowAdam({"w": b}, {})
    gradients = torch.randn(6, 3, dtype=torch.float64)
    for gradient in gradients[:3]:
        one.step({"w": gradient}, 0.1)
    b.copy_(a)
    two.restore(*one.state())
    for gradient in gradients[3:]:
        one.step({"w": gradient}, 0.1)
        two.step({"w": gradient}, 0.1)
    assert torch.equal(a, b)


def test_scalars_have_an_age_too() -> None:
    w = torch.zeros((), dtype=torch.float64)
    RowAdam({"w": w}, {}).step({"w": torch.tensor(-4.0).double()}, rate=0.1)
    assert abs(w.item() - 0.1) < 1e-9


def test_the_schedule_is_the_papers() -> None:
    assert schedule(0.01, 2000) == 0.01 / (1 + 0.1 * 2000**0.5)
