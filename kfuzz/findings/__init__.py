"""Findings: one thing that is wrong or odd with the bytes, and what each finding code means. May import ``kfuzz.wire``.

``model`` says what a finding is; ``records`` and ``messages`` hold the codes of each.
"""

from kfuzz.findings.model import PROFILES, ROLES, Code, Finding, Profile, Role, Severity

__all__ = ["PROFILES", "ROLES", "Code", "Finding", "Profile", "Role", "Severity"]
