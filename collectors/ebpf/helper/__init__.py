"""The process that loads the probes: run by the system's own Python as root, speaks JSON lines.

It imports the standard library and bcc, nothing else of llmtop: bcc is a system package, of the system's
interpreter, and what runs as root is small. The modules import each other relatively, because under that
interpreter the package is called `helper`.
"""
