"""Jobs as objects of the user: lists, arrays, waiting, failures and reports."""
