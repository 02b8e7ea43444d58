"""The recipes: what the files of the golden suite are made from.

``making``
    builders of bytes: batches, messages, compressed streams, bombs
``theme``
    what a theme is: the recipes of one vector file
``themes``
    one module per vector file

Imports go from ``themes`` to ``theme`` to ``making``, never back.
"""
