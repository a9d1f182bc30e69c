"""The demonstration: a real host upgraded, broken and rolled back, and what was seen of it."""
