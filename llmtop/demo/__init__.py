"""The embedded LLM server and its load generator.

with DemoServer(Options(model="tiny")) as server:
    server.start_load("--rate=3")
"""

from llmtop.demo.options import Options
from llmtop.demo.process import DemoServer

__all__ = ["DemoServer", "Options"]
