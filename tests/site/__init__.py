"""Tests of the site that `make docs` builds from docs/."""
