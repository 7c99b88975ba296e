"""The systems of five papers: what each says, as algorithms of its own where no default reaches them.

A folder is a paper: `qsgp` (Evans & Nair 2020), `svdgp` (Cheng & Boots 2017), `gp_lstm` (Al-Shedivat et al. 2017),
`finite_rkhs` (Shoham & Avron), `gpcv_admm` (Xu et al. 2019). An option of a model imports what it needs from here once
it is chosen; a default never does. `systems.toml` lists every system, with the option that a user types.
"""
