"""Two threads whose functions are known: `compute` burns a core, `wait_for_lock` waits for a lock that stays taken."""

import sys
import threading

lock = threading.Lock()
ready = threading.Semaphore(0)


def compute() -> None:
    """Keep a core busy."""
    ready.release()
    while True:
        sum(range(1000))


def wait_for_lock() -> None:
    """Wait for ever."""
    ready.release()
    with lock:
        pass


if __name__ == "__main__":
    lock.acquire()
    for function in (compute, wait_for_lock):
        threading.Thread(target=function, name=function.__name__, daemon=True).start()
        ready.acquire()
    print("ready", flush=True)
    sys.stdin.readline()
