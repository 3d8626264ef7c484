"""Write the graph of a policy as a file, one format each, and run the files to check them."""
