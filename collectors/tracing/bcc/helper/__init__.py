"""The process that loads the probes: run by the system's own Python as root, speaks JSON lines.

It imports the standard library and bcc, and of llmtop `tracing.helper` and `tracing.wire` alone: bcc is a system
package, of the system's interpreter, and what runs as root is small. The modules import each other relatively, because
under that interpreter their package is called `tracing.bcc.helper`.
"""
