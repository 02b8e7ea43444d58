"""Compare kfuzz with a testee on many inputs, on Spark. docs/mutate.md is the guide.

python spark_jobs/differential.py --testee kafka-clients@4.4.0 --count 10000000
spark-submit --master spark://host:7077 spark_jobs/differential.py --testee kafka-clients@4.4.0 --count 1000000000
"""

import sys

from kfuzz.spark.jobs import differential_main

if __name__ == "__main__":
    sys.exit(differential_main())
