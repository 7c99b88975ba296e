"""Outside libraries behind our contracts: MLflow, plots. They import the pipelines, never the reverse."""
