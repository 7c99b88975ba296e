"""What training minimises, as plain functions."""
