"""A proxy between clients and brokers that reads every frame (docs/proxy.md)."""
