"""Magic lines: their parser, and the Python values in them."""
