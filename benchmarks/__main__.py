"""All benchmarks, one after the other: `python -m benchmarks`."""

from benchmarks import shim

shim.main()
