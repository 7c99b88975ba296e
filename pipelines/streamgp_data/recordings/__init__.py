"""Recordings: files of signals that are sampled at rates of their own, joined onto one clock."""
