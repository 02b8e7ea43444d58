"""The judge: what an answer is worth, what was expected, and a whole run of testees over cases.

kfuzz's own testee and the verdict it answers with live here too.
"""
