"""Findings: a finding is one thing that is wrong or odd in the bytes. Each has a code.

``model`` defines findings and codes; ``records`` and ``messages`` list the codes for record batches and for messages.
"""

from kfuzz.findings.model import PROFILES, Code, Finding, Profile, Severity

__all__ = ["PROFILES", "Code", "Finding", "Profile", "Severity"]
