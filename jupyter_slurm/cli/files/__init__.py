"""Commands for the files of clusters: listings and transfers."""
