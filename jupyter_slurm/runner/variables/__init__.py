"""Variables sent with a cell: packing, definitions and names."""
