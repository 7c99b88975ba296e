"""The models, a file or a folder each; each is an assembly of parts and satisfies base.Model."""
