"""DataSources and the distributed plan over corpora/; the only folder that imports pyspark."""
