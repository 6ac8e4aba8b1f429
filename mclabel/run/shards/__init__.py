"""What a run writes: schema, commit rule, journals, catalog, compaction."""
