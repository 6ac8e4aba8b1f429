"""Files of a run: schema, commit rule, journals, catalog, compaction."""
