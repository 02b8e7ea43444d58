"""The recipes that make the files of the golden suite.

``making``
    builders of bytes: batches, messages, compressed streams, bombs
``theme``
    the class ``Theme``: the recipes of one vector file
``themes``
    one module per vector file

``themes`` imports ``theme``, and ``theme`` imports ``making``; never the reverse.
"""
