"""Placeholder until the commands land."""


def run(argv: list[str]) -> int:
    """Run one command."""
    return 2 if argv else 0
