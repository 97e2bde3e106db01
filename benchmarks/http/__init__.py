"""A home over HTTP, and what stands beside it: a handler that does nothing, the library itself, RabbitMQ's own API."""
