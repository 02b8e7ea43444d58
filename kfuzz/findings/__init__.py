"""Findings: one thing that is wrong or odd with the bytes, and what each finding code means.

``model`` says what a finding is; ``records`` and ``messages`` hold the codes of each.
"""

from kfuzz.findings.model import PROFILES, Code, Finding, Profile, Severity

__all__ = ["PROFILES", "Code", "Finding", "Profile", "Severity"]
