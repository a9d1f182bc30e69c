"""Hostile archives: many generated cases, and a coverage-guided fuzzer. Not part of a release."""
