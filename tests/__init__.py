"""Tests, in the same rooms as what they test."""
