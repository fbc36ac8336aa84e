"""The process that loads the probes: runs as root, by the Python that runs llmtop, and speaks JSON lines.

It imports the standard library, and of llmtop `tracing.helper` and `tracing.wire` alone: what runs as root is small.
The modules import each other relatively, because in that process their package is called `tracing.probes.helper`.
"""
