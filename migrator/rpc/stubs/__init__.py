"""Made from protos/ by each build (protos/build_stubs.py)."""
