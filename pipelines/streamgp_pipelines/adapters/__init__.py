"""Outside libraries, wrapped by our contracts: MLflow, plots. They import the pipelines, never the reverse."""
