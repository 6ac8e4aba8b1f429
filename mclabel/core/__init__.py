"""What everything rests on: records, settings, configurations, components, errors, statistics."""
