"""Does a change give what the token budget said that it would? Two snapshots, before it and after it.

    llmtop snapshot --json --attach PID --wait 25 --seconds 15 > before.json     # under a steady load
    ...the server is started anew with the change, under the same load...
    llmtop snapshot --json --attach PID --wait 25 --seconds 15 > after.json
    python benchmarks/predictions.py before.json after.json "CUDA graphs"
    python benchmarks/predictions.py before.json after.json batch     by the line through the batches that were seen

The third argument is the beginning of the change as the first snapshot names it. Printed: the step before, what was
foretold of it, and the step after; the exit code is 1 where the step after lies more than a fifth beyond the bounds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ALLOWED = 0.2


def foretold(before: dict[str, Any], after: dict[str, Any], change: str) -> tuple[float, float]:
    """Between what the step was to be, in seconds."""
    if change == "batch":
        line = before["batches"]["line"]
        at_s = line["level_s"] + line["per_request_s"] * after["token_budget"]["batch"]
        return at_s, at_s
    budget = before["token_budget"]
    gains = [one for one in budget["gains"] if one["change"].startswith(change)]
    if not gains:
        sys.exit(f"nothing was said of {change!r}; there are: {', '.join(one['change'] for one in budget['gains'])}")
    return budget["step_s"] - gains[0]["at_most_s"], budget["step_s"] - gains[0]["at_least_s"]


def main() -> int:
    """Print the row of the table."""
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    before, after = (json.loads(Path(path).read_text()) for path in sys.argv[1:3])
    low_s, high_s = foretold(before, after, sys.argv[3])
    then_s = after["token_budget"]["step_s"]
    told = (before["token_budget"]["step_s"], low_s, high_s, then_s)
    was, low, high, then = (f"{1e3 * seconds:.2f}" for seconds in told)
    print(f"| {sys.argv[3]} | {was} ms | {low} to {high} ms | {then} ms |")
    return int(not (1 - ALLOWED) * low_s <= then_s <= (1 + ALLOWED) * high_s)


if __name__ == "__main__":
    sys.exit(main())
