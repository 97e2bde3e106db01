"""What is done to a home as a whole: scrub it, copy it."""
