"""The judge: compares answers with vectors and with expected outcomes, and runs testees over all cases.

kfuzz's own testee, and the verdict that it answers with, are here too.
"""
