"""All benchmarks, one after the other: `python -m benchmarks`."""

from benchmarks import intake, shim

shim.main()
intake.main()
