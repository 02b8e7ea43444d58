//! Drives rskafka: its `StreamConsumer`, and `PartitionClient::produce`.
//!
//! The library reads magic 2 only. It always asks for committed records, has no groups, and produces without ids.

use futures::future::join_all;
use futures::StreamExt;
use kfuzz_testee::contents::Record as Given;
use kfuzz_testee::driver::{self, drive, Inbox, Open, Produce};
use kfuzz_testee::{record_json, rejected, unsupported};
use rskafka::chrono::{DateTime, LocalResult, TimeZone, Utc};
use rskafka::client::consumer::{StartOffset, StreamConsumerBuilder};
use rskafka::client::error::Error;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};
use rskafka::BackoffConfig;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::{block_in_place, JoinHandle};

const WAIT_MS: i32 = 5;
const RETRY: Duration = Duration::from_millis(1);

fn main() -> io::Result<()> {
    let hello = json!({
        "produces": ["sends", "topics"], "converses": ["reset"], "magic": [2], "headers": "map",
        "timestamps": {
            "low": DateTime::<Utc>::MIN_UTC.timestamp_millis().to_string(),
            "high": DateTime::<Utc>::MAX_UTC.timestamp_millis().to_string(),
            "resolution_ms": 1,
        },
    });
    drive(("rskafka", env!("LIBRARY_VERSION")), hello, Driver { runtime: Runtime::new()?, consumer: None })
}

struct Driver {
    runtime: Runtime,
    consumer: Option<JoinHandle<()>>,
}

impl driver::Client for Driver {
    fn open(&mut self, asked: Open, inbox: Inbox) {
        self.consumer = Some(self.runtime.spawn(async move {
            if let Err(error) = consume(asked, &inbox).await {
                inbox.end(rejected(error));
            }
        }));
    }

    fn close(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            consumer.abort();
            self.runtime.block_on(consumer).ok();
        }
    }

    fn produce(&mut self, asked: Produce) -> Result<Vec<Value>, Value> {
        let mut sends = Vec::new();
        for (topic, records) in asked.sends {
            let records: Result<Vec<_>, _> = records.into_iter().map(expressed).collect();
            sends.push((topic, records.map_err(unsupported)?));
        }
        let compression = match asked.compression.as_str() {
            "none" => Compression::NoCompression,
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            other => return Err(unsupported(format!("the codec {other}"))),
        };
        self.runtime.block_on(async {
            let client = client_of(asked.address).await.map_err(rejected)?;
            let mut partitions = HashMap::new();
            for (topic, _) in &sends {
                partitions.insert(topic.clone(), partition_of(&client, topic).await.map_err(rejected));
            }
            let send = |(topic, records): (String, _)| {
                let partition = &partitions[&topic];
                async move {
                    match partition {
                        Ok(partition) => partition
                            .produce(records, compression)
                            .await
                            .map_or_else(rejected, driver::sent),
                        Err(outcome) => outcome.clone(),
                    }
                }
            };
            let started = sends.into_iter().map(send);
            if asked.at_once {
                return Ok(join_all(started).await);
            }
            let mut results = Vec::new();
            for one in started {
                results.push(one.await);
            }
            Ok(results)
        })
    }
}

async fn client_of(address: String) -> Result<Client, Error> {
    let backoff = BackoffConfig { init_backoff: RETRY, max_backoff: RETRY, ..BackoffConfig::default() };
    ClientBuilder::new(address.split(',').map(String::from).collect()).backoff_config(backoff).build().await
}

async fn partition_of(client: &Client, topic: &str) -> Result<PartitionClient, Error> {
    client.partition_client(topic, 0, UnknownTopicHandling::Error).await
}

async fn consume(asked: Open, inbox: &Inbox) -> Result<(), Error> {
    let partition = Arc::new(partition_of(&client_of(asked.address).await?, &asked.topic).await?);
    let start = match asked.reset.as_deref() {
        Some("earliest") => StartOffset::Earliest,
        Some(_) => StartOffset::Latest,
        None => StartOffset::At(asked.offset),
    };
    let mut stream = StreamConsumerBuilder::new(partition, start).with_max_wait_ms(WAIT_MS).build();
    while let Some(next) = stream.next().await {
        let (record, _) = next?;
        if !block_in_place(|| inbox.put(shown(record))) {
            break;
        }
    }
    Ok(())
}

fn shown(RecordAndOffset { record, offset }: RecordAndOffset) -> Value {
    let headers = record.headers.iter().map(|(key, value)| (key.as_str(), Some(value.as_slice())));
    let timestamp = record.timestamp.timestamp_millis();
    record_json(offset, timestamp, record.key.as_deref(), record.value.as_deref(), headers)
}

/// The record in the library's own type, or what this type cannot express.
fn expressed(given: Given) -> Result<Record, &'static str> {
    let timestamp = given.timestamp.ok_or("a record has a timestamp")?;
    let LocalResult::Single(timestamp) = Utc.timestamp_millis_opt(timestamp) else {
        return Err("the timestamp is out of range");
    };
    let count = given.headers.len();
    let mut headers = std::collections::BTreeMap::new();
    for (key, value) in given.headers {
        let key = String::from_utf8(key).map_err(|_| "a header's key must be UTF-8")?;
        headers.insert(key, value.ok_or("a header's value cannot be null")?);
    }
    if headers.len() < count {
        return Err("a header cannot be repeated");
    }
    Ok(Record { key: given.key, value: given.value, headers, timestamp })
}
