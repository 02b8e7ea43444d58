"""Inputs as trees of parts that can be changed: ``tree`` has the parts and writes them back, ``shrinking`` makes inputs
smaller, ``killing`` finds the fields that kill.
"""
