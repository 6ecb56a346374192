"""Spark: the session, the two data sources, and the comparison."""
