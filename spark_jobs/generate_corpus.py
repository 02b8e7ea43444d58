"""Generate a corpus of log segments on Spark. docs/corpora.md is the guide.

python spark_jobs/generate_corpus.py --workload spark_jobs/workloads/demo.toml --out out/corpus
spark-submit --master spark://host:7077 spark_jobs/generate_corpus.py --workload … --out /shared/corpus
"""

import sys

from kfuzz.spark.jobs import generate_main

if __name__ == "__main__":
    sys.exit(generate_main())
