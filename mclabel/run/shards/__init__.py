"""Files of a run: schemas, the commit of blocks, journals, and the catalog."""
