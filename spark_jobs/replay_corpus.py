"""Send a corpus, or any Kafka log directory, to a broker on Spark. docs/replay.md is the guide.

python spark_jobs/replay_corpus.py --log out/corpus --bootstrap 127.0.0.1:9092 --create
spark-submit --master spark://host:7077 spark_jobs/replay_corpus.py --log /shared/corpus --bootstrap …
"""

import sys

from kfuzz.spark.jobs import replay_main

if __name__ == "__main__":
    sys.exit(replay_main())
