"""The models, one a file; each is an assembly of parts and satisfies base.Model."""
