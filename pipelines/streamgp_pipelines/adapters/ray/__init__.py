"""Ray: the buckets of a fleet in actors, on this machine or on a cluster."""
