"""Let a testee read each batch of a corpus on Spark, and compare its answers with the corpus and its labels.

python spark_jobs/conform_corpus.py --out out/corpus --command 'python3 my_testee.py' --ship my_testee.py
spark-submit --master spark://host:7077 spark_jobs/conform_corpus.py --out /shared/corpus --command /opt/testee
"""

import sys

from kfuzz.spark.jobs import conform_main

if __name__ == "__main__":
    sys.exit(conform_main())
