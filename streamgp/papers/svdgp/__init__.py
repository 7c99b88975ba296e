"""Parametrisations and basis functions of Cheng & Boots 2017 that no default of `svdgp` has, and the streaming update
of Bui, Nguyen & Turner 2017.

Each module is imported by `streamgp.models.svdgp` where an option asks for it.
"""
