"""Fuzz kfuzz's own decoders on Spark, with one corpus for all executors. docs/fuzzing.md is the guide.

python spark_jobs/fuzz_campaign.py canary --time 60s --out out/shared
spark-submit --master spark://host:7077 spark_jobs/fuzz_campaign.py record-batch --time 1h --out s3://bucket/fuzz
"""

import sys

from kfuzz.spark.jobs import campaign_main

if __name__ == "__main__":
    sys.exit(campaign_main())
