"""Experts side by side: weights learned online from the errors of what each of them forecast."""
