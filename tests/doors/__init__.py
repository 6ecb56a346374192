"""Every door of a controller, everybody who may stand before it, and every call: who gets in, and who does not."""
