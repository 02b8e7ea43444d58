//! Drives krafka: its consumer without a group, and its producers.

use kfuzz_testee::contents::Record as Given;
use kfuzz_testee::driver::{drive, Client, Inbox, Open, Produce};
use kfuzz_testee::{record_json, rejected, unsupported};
use krafka::consumer::{ConsumerRecord, IsolationLevel};
use krafka::{Compression, Kafka, Record, Result};
use serde_json::{json, Value};
use std::io;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::{block_in_place, JoinHandle};

const WAIT: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_millis(1);
const POLL: Duration = Duration::from_millis(100);
const REQUEST: Duration = Duration::from_secs(4);
const DELIVERY: Duration = Duration::from_secs(5);
const LARGEST_REQUEST_BYTES: usize = 64 << 20;

fn main() -> io::Result<()> {
    let hello = json!({"produces": ["idempotent", "transactions"], "magic": [2]});
    drive(("krafka", env!("LIBRARY_VERSION")), hello, Driver { runtime: Runtime::new()?, consumer: None })
}

struct Driver {
    runtime: Runtime,
    consumer: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Client for Driver {
    fn open(&mut self, asked: Open, inbox: Inbox) {
        let (stop, stopped) = oneshot::channel();
        let consumer = self.runtime.spawn(async move {
            if let Err(error) = consume(asked, &inbox, stopped).await {
                inbox.end(rejected(error));
            }
        });
        self.consumer = Some((stop, consumer));
    }

    fn close(&mut self) {
        if let Some((stop, consumer)) = self.consumer.take() {
            stop.send(()).ok();
            self.runtime.block_on(consumer).ok();
        }
    }

    fn produce(&mut self, asked: Produce) -> Value {
        let count = asked.records.len();
        let records = asked.records.into_iter().map(|given| expressed(&asked.topic, given)).collect();
        let records: Vec<Record> = match records {
            Ok(records) => records,
            Err(reason) => return unsupported(reason),
        };
        let compression = match asked.compression.as_str() {
            "none" => Compression::None,
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            other => return unsupported(format!("the codec {other}")),
        };
        let sent = send(asked.address, records, compression, asked.idempotent, asked.transactional_id);
        self.runtime.block_on(sent).map_or_else(rejected, |()| json!({"sent": count}))
    }
}

async fn consume(asked: Open, inbox: &Inbox, stopped: oneshot::Receiver<()>) -> Result<()> {
    let isolation = if asked.read_committed { IsolationLevel::ReadCommitted } else { IsolationLevel::ReadUncommitted };
    let kafka = Kafka::builder(asked.address).connect().await?;
    let consumer = kafka
        .consumer_without_group()
        .enable_auto_commit(false)
        .isolation_level(isolation)
        .fetch_max_wait(WAIT)
        .idle_poll_backoff(RETRY)
        .build()
        .await?;
    let read = async {
        consumer.assign(&asked.topic, vec![0]).await?;
        consumer.seek(&asked.topic, 0, asked.offset).await?;
        loop {
            for record in consumer.poll(POLL).await? {
                if !block_in_place(|| inbox.put(shown(&record))) {
                    return Ok(());
                }
            }
        }
    };
    let end = tokio::select! { end = read => end, _ = stopped => Ok(()) };
    consumer.close().await?;
    end
}

fn shown(record: &ConsumerRecord) -> Value {
    let headers = record.headers.iter().map(|(key, value)| (key.as_str(), value.as_deref()));
    record_json(record.offset, record.timestamp, record.key.as_deref(), record.value.as_deref(), headers)
}

async fn send(
    address: String,
    records: Vec<Record>,
    compression: Compression,
    idempotent: bool,
    transactional_id: Option<String>,
) -> Result<()> {
    let kafka = Kafka::builder(address).request_timeout(REQUEST).connect().await?;
    let builder = kafka
        .producer()
        .compression(compression)
        .idempotent(idempotent || transactional_id.is_some())
        .retry_backoff(RETRY)
        .delivery_timeout(DELIVERY)
        .max_request_size(LARGEST_REQUEST_BYTES)
        .buffer_memory(LARGEST_REQUEST_BYTES)
        .batch_size(LARGEST_REQUEST_BYTES);
    let mut sent = Vec::new();
    if let Some(id) = transactional_id {
        let producer = builder.build_transactional(id).await?;
        producer.begin()?;
        for record in records {
            sent.push(producer.enqueue(record).await?);
        }
        for one in sent {
            one.await?;
        }
        producer.commit().await?;
        return producer.close().await;
    }
    let producer = builder.build().await?;
    for record in records {
        sent.push(producer.enqueue(record).await?);
    }
    for one in sent {
        one.await?;
    }
    producer.close().await
}

/// The record in the library's own type, or what this type cannot express.
fn expressed(topic: &str, given: Given) -> std::result::Result<Record, &'static str> {
    let mut headers = Vec::new();
    for (key, value) in given.headers {
        let key = String::from_utf8(key).map_err(|_| "a header's key must be UTF-8")?;
        headers.push((key, value.map(Into::into)));
    }
    let record = Record::new(topic, Vec::new()).partition(0);
    Ok(Record { key: given.key.map(Into::into), value: given.value.map(Into::into), timestamp: given.timestamp, headers, ..record })
}
