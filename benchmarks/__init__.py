"""Tailrace side by side with its peers: one file per question, `python -m benchmarks.run` asks them."""
