"""A proxy between clients and brokers that reads every frame (docs/proxy.md)."""

from kfuzz.relay.proxy import Proxy, Settings

__all__ = ["Proxy", "Settings"]
