"""Parametrisations and basis functions of Cheng & Boots 2017 that no default of `svdgp` has.

Each module is imported by `streamgp.models.svdgp` where an option asks for it.
"""
