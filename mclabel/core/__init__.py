"""Foundations of all packages: records, settings, configurations, components, errors,
statistics.
"""
