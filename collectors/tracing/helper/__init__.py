"""What the helpers of all tracers share. It suits the system's Python, under which bcc's runs.

It imports the standard library and `tracing.wire`, relatively, and nothing else of llmtop.
"""
