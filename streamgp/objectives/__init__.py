"""Objectives as plain functions of tensors: what is maximised or minimised, and nothing about how."""
