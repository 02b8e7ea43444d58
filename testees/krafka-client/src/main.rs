//! Drives krafka: its consumer, without a group or in one, and its producers.

use kfuzz_testee::contents::Record as Given;
use kfuzz_testee::driver::{self, drive, Client, Inbox, Open, Produce};
use kfuzz_testee::{record_json, rejected, unsupported};
use krafka::consumer::{AutoOffsetReset, Consumer, ConsumerRecord, GroupProtocol, IsolationLevel};
use krafka::producer::DeliveryHandle;
use krafka::{Compression, Kafka, Record, Result};
use serde_json::{json, Value};
use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::{block_in_place, JoinHandle};

const WAIT: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_millis(1);
const HEARTBEAT: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_millis(100);
const REQUEST: Duration = Duration::from_secs(4);
const DELIVERY: Duration = Duration::from_secs(5);
const LARGEST_REQUEST_BYTES: usize = 64 << 20;

fn main() -> io::Result<()> {
    let hello = json!({
        "produces": ["idempotent", "transactions", "sends", "topics"], "magic": [2],
        "converses": ["reset", "group", "consumer-group", "abort", "timeout"],
    });
    drive(("krafka", env!("LIBRARY_VERSION")), hello, Driver { runtime: Runtime::new()?, consumer: None })
}

struct Driver {
    runtime: Runtime,
    consumer: Option<Reading>,
}

/// The task that polls a consumer, the consumer as soon as there is one, and what ends the task.
struct Reading {
    task: JoinHandle<()>,
    consumer: Arc<OnceLock<Consumer>>,
    stop: oneshot::Sender<()>,
}

impl Client for Driver {
    fn open(&mut self, asked: Open, inbox: Inbox) {
        let (stop, stopped) = oneshot::channel();
        let consumer = Arc::new(OnceLock::new());
        let opened = consumer.clone();
        let task = self.runtime.spawn(async move {
            if let Err(error) = consume(asked, &inbox, &opened, stopped).await {
                inbox.end(rejected(error));
            }
        });
        self.consumer = Some(Reading { task, consumer, stop });
    }

    fn commit(&mut self) -> Value {
        match self.consumer.as_ref().and_then(|reading| reading.consumer.get()) {
            Some(consumer) => self.runtime.block_on(consumer.commit()).map_or_else(rejected, |()| json!({})),
            None => rejected("there is no consumer yet"),
        }
    }

    fn close(&mut self) {
        if let Some(reading) = self.consumer.take() {
            reading.stop.send(()).ok();
            self.runtime.block_on(reading.task).ok();
        }
    }

    fn produce(&mut self, mut asked: Produce) -> std::result::Result<Vec<Value>, Value> {
        let express = |(topic, records): (String, Vec<Given>)| {
            records.into_iter().map(|given| expressed(&topic, given)).collect()
        };
        let sends = std::mem::take(&mut asked.sends).into_iter().map(express);
        let sends = sends.collect::<std::result::Result<_, _>>().map_err(unsupported)?;
        let compression = match asked.compression.as_str() {
            "none" => Compression::None,
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            other => return Err(unsupported(format!("the codec {other}"))),
        };
        self.runtime.block_on(send(asked, sends, compression)).map_err(rejected)
    }
}

async fn consume(
    asked: Open,
    inbox: &Inbox,
    opened: &OnceLock<Consumer>,
    stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let isolation = if asked.read_committed { IsolationLevel::ReadCommitted } else { IsolationLevel::ReadUncommitted };
    let mut builder = Kafka::builder(asked.address);
    if let Some(limit) = asked.request_timeout {
        builder = builder.connect_timeout(limit).request_timeout(limit);
    }
    let kafka = builder.connect().await?;
    let mut builder = match (&asked.group, &asked.protocol) {
        (None, _) => kafka.consumer_without_group(),
        (Some(group), Some(_)) => kafka.consumer(group).group_protocol(GroupProtocol::Consumer),
        (Some(group), None) => kafka.consumer(group).heartbeat_interval(HEARTBEAT),
    };
    builder = builder.auto_offset_reset(match asked.reset.as_deref() {
        Some("earliest") => AutoOffsetReset::Earliest,
        Some(_) => AutoOffsetReset::Latest,
        None => AutoOffsetReset::None,
    });
    let consumer = builder
        .enable_auto_commit(false)
        .isolation_level(isolation)
        .fetch_max_wait(WAIT)
        .idle_poll_backoff(RETRY)
        .build()
        .await?;
    let consumer = opened.get_or_init(|| consumer);
    let read = async {
        if asked.group.is_some() {
            consumer.subscribe([&asked.topic]).await?;
        } else {
            consumer.assign(&asked.topic, vec![0]).await?;
        }
        if asked.group.is_none() && asked.reset.is_none() {
            consumer.seek(&asked.topic, 0, asked.offset).await?;
        }
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

async fn send(asked: Produce, sends: Vec<Vec<Record>>, compression: Compression) -> Result<Vec<Value>> {
    let Produce { address, idempotent, transactional_id, at_once, .. } = asked;
    let limit = asked.request_timeout.unwrap_or(REQUEST);
    let kafka = Kafka::builder(address).connect_timeout(limit).request_timeout(limit).connect().await?;
    let builder = kafka
        .producer()
        .compression(compression)
        .idempotent(idempotent || transactional_id.is_some())
        .retry_backoff(RETRY)
        .delivery_timeout(DELIVERY)
        .max_request_size(LARGEST_REQUEST_BYTES)
        .buffer_memory(LARGEST_REQUEST_BYTES)
        .batch_size(LARGEST_REQUEST_BYTES);
    if let Some(id) = transactional_id {
        let producer = builder.build_transactional(id).await?;
        producer.begin()?;
        let results = send_all(sends, at_once, |record| producer.enqueue(record)).await;
        if is_sent(&results) {
            if asked.abort {
                producer.abort().await?;
            } else {
                producer.commit().await?;
            }
            producer.close().await?;
        }
        return Ok(results);
    }
    let producer = builder.build().await?;
    let results = send_all(sends, at_once, |record| producer.enqueue(record)).await;
    if is_sent(&results) {
        producer.close().await?;
    }
    Ok(results)
}

fn is_sent(results: &[Value]) -> bool {
    results.iter().all(|one| one.get("outcome").is_none())
}

/// The result of each send.
async fn send_all<F>(sends: Vec<Vec<Record>>, at_once: bool, enqueue: impl Fn(Record) -> F) -> Vec<Value>
where
    F: Future<Output = Result<DeliveryHandle>>,
{
    let (mut started, mut results) = (Vec::new(), Vec::new());
    for records in sends {
        let mut queued = Vec::new();
        for record in records {
            queued.push(enqueue(record).await);
        }
        if at_once {
            started.push(queued);
        } else {
            results.push(sent(queued).await);
        }
    }
    for queued in started {
        results.push(sent(queued).await);
    }
    results
}

async fn sent(queued: Vec<Result<DeliveryHandle>>) -> Value {
    let mut offsets = Vec::new();
    for one in queued {
        let acknowledged = match one {
            Ok(handle) => handle.await,
            Err(error) => Err(error),
        };
        match acknowledged {
            Ok(record) => offsets.push(record.offset),
            Err(error) => return rejected(error),
        }
    }
    driver::sent(offsets)
}

/// The record in the library's own type, or what this type cannot express.
fn expressed(topic: &str, given: Given) -> std::result::Result<Record, &'static str> {
    let mut record = Record::new(topic, Vec::new()).partition(0);
    record.key = given.key.map(Into::into);
    record.value = given.value.map(Into::into);
    record.timestamp = given.timestamp;
    for (key, value) in given.headers {
        let key = String::from_utf8(key).map_err(|_| "a header's key must be UTF-8")?;
        record.headers.push((key, value.map(Into::into)));
    }
    Ok(record)
}
