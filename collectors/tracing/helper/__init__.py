"""What the helpers of all tracers share.

It imports the standard library and `tracing.wire`, relatively, and nothing else of llmtop.
"""
