"""The metadata log, from running controllers or from files, and its canonical rows."""
