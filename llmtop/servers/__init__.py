"""What an LLM server is: how to recognise one, its processes, its metric names, its flags."""
