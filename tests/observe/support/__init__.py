"""Statuses to look at."""
