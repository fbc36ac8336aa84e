"""llmtop: what is this LLM server waiting for, and what should I do about it?"""

__version__ = "0.1.0"
