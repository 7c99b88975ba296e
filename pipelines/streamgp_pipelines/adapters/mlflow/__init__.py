"""Runs, models and the user interface of MLflow."""
