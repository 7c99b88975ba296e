"""Messages of brokers."""
