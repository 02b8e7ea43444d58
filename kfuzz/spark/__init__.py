"""The distributed driver over ``corpora/``: sessions, generation, verification, and log directories as DataFrames.

The only folder that imports pyspark.

Tasks write the segments themselves and return only manifest rows, with ``mapInArrow`` over a DataFrame of segment ids.
This also works on Spark Connect, and costs half as much as sending the bytes through the JVM.
"""
