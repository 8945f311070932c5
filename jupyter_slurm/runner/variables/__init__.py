"""Variables that travel with a cell: packing, definitions and names."""
