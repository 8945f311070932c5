"""Input and output on a terminal: prompts, raw arguments and hints."""
