"""Next commands: what is to be run to learn more, complete and as shells take them."""
