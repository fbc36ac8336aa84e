"""Two threads that never give the GIL away by themselves; each line of input is answered with their account.

Of the JSON's "threads", by name: "tid" and "cpu", the ns of the thread's own clock since the start.
"""

import json
import sys
import threading
import time


def compute() -> None:
    """Keep the interpreter busy."""
    while True:
        sum(range(1000))


def account(rivals: list[threading.Thread], started_ns: int) -> str:
    """What the rivals have done, in the form of account.h."""
    threads = {}
    for rival in rivals:
        assert rival.ident is not None
        cpu = time.clock_gettime_ns(time.pthread_getcpuclockid(rival.ident))
        threads[rival.name] = {"tid": rival.native_id, "cpu": cpu}
    now = time.monotonic_ns()
    return json.dumps({"t": now, "wall": now - started_ns, "threads": threads})


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    rivals = [threading.Thread(target=compute, name=f"rival {number}", daemon=True) for number in range(2)]
    started_ns = time.monotonic_ns()
    for rival in rivals:
        rival.start()
    while sys.stdin.readline():
        print(account(rivals, started_ns), flush=True)
