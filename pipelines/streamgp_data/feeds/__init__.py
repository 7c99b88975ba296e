"""Brokers, a file each: `SCHEMES`, the schemes of their URLs, and `build(address)`, the Feed."""
