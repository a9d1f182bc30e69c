"""The transaction: pure plan, judge and recovery, and the thin shell that carries them out."""
