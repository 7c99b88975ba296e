"""Maps from a flattened, standardised window to the latent space in which a kernel measures distance.

An encoder's module has a frozen `Config` and `build(config, layout) -> Encoder` (see `_base`).
"""
