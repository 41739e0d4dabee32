"""`python -m benchmarks.blame`: what the views of a recording name first, against what was injected."""

import sys
from pathlib import Path

# Labs and injections are those of the verdicts, which are scripts.
sys.path.insert(0, str(Path(__file__).parents[1] / "verdicts"))

from benchmarks.blame.blame import main

main()
