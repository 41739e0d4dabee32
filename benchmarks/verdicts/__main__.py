"""`python benchmarks/verdicts`: the truth table of the printed verdicts."""

from runner import main

main()
