"""Algorithms of Al-Shedivat et al. 2017 that no default of the deep kernel models has.

`kiss_cg`, which `streamgp.solvers.kiss_cg` imports once it is chosen, and what it stands on: Toeplitz products, Lanczos
quadrature.
"""
