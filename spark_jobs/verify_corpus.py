"""Read a corpus of log segments on Spark and compare it with its plan and manifest.

python spark_jobs/verify_corpus.py --out out/corpus
spark-submit --master spark://host:7077 spark_jobs/verify_corpus.py --out /shared/corpus
"""

import sys

from kfuzz.spark.jobs import verify_main

if __name__ == "__main__":
    sys.exit(verify_main())
