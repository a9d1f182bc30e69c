"""All benchmarks, one after the other: `python -m benchmarks`."""

from benchmarks import fleet, idle, intake, shim

shim.main()
intake.main()
idle.main()
fleet.main()
