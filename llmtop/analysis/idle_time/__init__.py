"""Why a GPU of a captured timeline had nothing to do: an account that adds up to all of its idle time."""
