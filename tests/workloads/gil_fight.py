"""Two threads that never give the GIL away by themselves."""

import sys
import threading


def compute(stop: threading.Event) -> None:
    """Keep the interpreter busy."""
    while not stop.is_set():
        sum(range(1000))


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    stop = threading.Event()
    rivals = [threading.Thread(target=compute, args=(stop,)) for _ in range(2)]
    for rival in rivals:
        rival.start()
    sys.stdin.readline()
    stop.set()
