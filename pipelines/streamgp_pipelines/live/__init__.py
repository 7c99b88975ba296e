"""Messages of brokers into a table, each once."""
