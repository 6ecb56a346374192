"""The pure state machine: states, transitions, guards, and the driver that goes through them."""
