"""Real servers on loopback, for tests and benchmarks: one module each, with a context manager that runs it."""
