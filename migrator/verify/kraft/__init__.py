"""The metadata log: of a controller that runs, or as its files hold it; and its canonical rows."""
