"""Client library of all front ends: the job handle, live output, tables and their rendering."""
