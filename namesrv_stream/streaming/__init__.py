"""The Spark job: hosts the fold, writes its changes to Delta. The only package that imports pyspark."""
