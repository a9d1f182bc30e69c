"""Orders from the cluster: MachineOperations, from the watch to the published verdict.

Data flows one way: `watching` fills the `board` from the API; the `desk` compares it with what
records and histories say and decides (`agenda`, pure) what to publish, begin or remove; the
`carrier` carries one order out. The verdict itself is the judge's and is only read here, so the
API being away never changes one.
"""
