"""The distributed driver over ``corpora/``: sessions, generation, verification. The only folder that imports pyspark.

Tasks write segments themselves and hand back manifest rows, by ``mapInArrow`` over a DataFrame of segment ids: that
works on Spark Connect too, and costs half of what sending the bytes through the JVM does.
"""
