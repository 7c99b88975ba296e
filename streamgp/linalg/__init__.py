"""Dense linear algebra in float64: factorisations that say why they fail, and that can grow."""
