//! Kit for drivers in Rust: programs that drive one whole client, for testees/python/kfuzz_serving.py.
//!
//! testees/README.md describes the lines that a driver reads and writes. The client's program implements [`Client`]. Nothing here does a step of the library: a consumer hands out its
//! records through an [`Inbox`], and polling only takes them from there.

use crate::contents::{self, Record};
use crate::{panicked, text, watch_panics, BadRequest, Request};
use serde_json::{json, Value};
use std::io::{self, Write};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::time::Duration;

/// A library that repeats its records without an end must not fill the memory.
const ROOM_RECORDS: usize = 1000;

/// Where a consumer hands out its records, as [`crate::record_json`] makes them.
pub struct Inbox(SyncSender<Value>);

impl Inbox {
    /// Hands out a record, and blocks while there is no room. False if the consumer is to be closed.
    pub fn put(&self, record: Value) -> bool {
        self.0.send(record).is_ok()
    }

    /// Hands out how the consumer ended, such as [`crate::rejected`] makes it. There is nothing after it.
    pub fn end(&self, outcome: Value) {
        self.0.send(outcome).ok();
    }
}

/// A consumer to open: partition 0 of a topic, from an offset on.
pub struct Open {
    pub address: String,
    pub topic: String,
    pub read_committed: bool,
    pub offset: i64,
    /// The time limit of a request; None for the library's own.
    pub request_timeout: Option<Duration>,
    /// "earliest" or "latest" if the library is to reset its offset, and not to seek.
    pub reset: Option<String>,
    /// The group of which the consumer is a member. It subscribes to the topic then.
    pub group: Option<String>,
    /// "consumer" for a group of KIP-848.
    pub protocol: Option<String>,
}

/// Records to send to partition 0: the topic and the records of each send. Their offsets are 0.
pub struct Produce {
    pub address: String,
    pub compression: String,
    pub idempotent: bool,
    pub transactional_id: Option<String>,
    pub sends: Vec<(String, Vec<Record>)>,
    /// Whether no send waits for the one before.
    pub at_once: bool,
    /// Whether the transaction is to be aborted.
    pub abort: bool,
    /// The time limit of a request; None for the driver's own.
    pub request_timeout: Option<Duration>,
}

pub trait Client {
    /// Starts a consumer, and does not wait for it.
    fn open(&mut self, asked: Open, inbox: Inbox);

    /// Commits the offsets of what was handed out: `{}` or an outcome. Only a member of a group is asked.
    fn commit(&mut self) -> Value {
        crate::unsupported("groups")
    }

    /// Closes the consumer, as its users do. Its inbox takes nothing more.
    fn close(&mut self);

    /// Sends the records. For each send, [`crate::driver::sent`] when all are acknowledged, or an outcome. An outcome for
    /// all is one value.
    fn produce(&mut self, asked: Produce) -> Result<Vec<Value>, Value>;
}

/// The answer to a send whose records have the offsets that the library reports.
pub fn sent(offsets: impl IntoIterator<Item = i64>) -> Value {
    let offsets: Vec<_> = offsets.into_iter().map(|offset| offset.to_string()).collect();
    json!({"offsets": offsets})
}

/// Answers lines until the input ends. `library` is the crate's name and version, which name its folder of sources.
/// `hello` has other fields of the handshake.
pub fn drive(library: (&str, &str), mut hello: Value, mut client: impl Client) -> io::Result<()> {
    watch_panics(library);
    hello["version"] = library.1.into();
    say(hello)?;
    let mut given = Given { records: None, end: None };
    for line in io::stdin().lines() {
        let line = line?;
        let answer = serde_json::from_str::<Request>(&line).map_err(|error| BadRequest(error.to_string()));
        say(answer
            .and_then(|request| done(&request, &mut client, &mut given))
            .unwrap_or_else(|BadRequest(why)| json!({"outcome": "fault", "error": format!("BadRequest: {why}")})))?;
    }
    Ok(())
}

fn done(request: &Request, client: &mut impl Client, given: &mut Given) -> Result<Value, BadRequest> {
    match text(request, "do")? {
        "open" => {
            let (inbox, records) = sync_channel(ROOM_RECORDS);
            *given = Given { records: Some(records), end: None };
            client.open(opened(request)?, Inbox(inbox));
            Ok(json!({}))
        }
        "poll" => {
            let timeout_ms = request.get("timeout_ms").and_then(Value::as_f64).unwrap_or(0.0);
            Ok(given.take(Duration::from_secs_f64(timeout_ms / 1e3)))
        }
        "commit" => Ok(client.commit()),
        "close" => {
            given.records = None;
            client.close();
            Ok(json!({}))
        }
        "produce" => {
            let mut sent = match client.produce(produced(request)?) {
                Ok(sent) => sent,
                Err(outcome) => return Ok(outcome),
            };
            Ok(if request.contains_key("sends") { json!({"sends": sent}) } else { sent.remove(0) })
        }
        other => Err(BadRequest(format!("do {other}"))),
    }
}

/// What the consumer has handed out.
struct Given {
    records: Option<Receiver<Value>>,
    end: Option<Value>,
}

impl Given {
    /// All that is there; if there is nothing, wait for it.
    fn take(&mut self, timeout: Duration) -> Value {
        let mut taken = Vec::new();
        if let (Some(records), None) = (&self.records, &self.end) {
            let first = records.recv_timeout(timeout).ok();
            for one in first.into_iter().chain(records.try_iter()) {
                if one.get("outcome").is_some() {
                    self.end = Some(one);
                } else {
                    taken.push(one);
                }
            }
        }
        // A task that panics hands out nothing more, and says so to nobody.
        let ended = if taken.is_empty() { panicked().or(self.end.take()) } else { None };
        ended.unwrap_or_else(|| json!({"records": taken}))
    }
}

fn opened(request: &Request) -> Result<Open, BadRequest> {
    Ok(Open {
        address: text(request, "address")?.into(),
        topic: text(request, "topic")?.into(),
        read_committed: text(request, "isolation")? == "read_committed",
        offset: text(request, "offset")?.parse().map_err(|_| BadRequest("offset must be a number".into()))?,
        request_timeout: request_timeout(request),
        reset: optional(request, "reset"),
        group: optional(request, "group"),
        protocol: optional(request, "protocol"),
    })
}

fn request_timeout(request: &Request) -> Option<Duration> {
    request.get("request_timeout_ms").and_then(Value::as_u64).map(Duration::from_millis)
}

fn optional(request: &Request, name: &str) -> Option<String> {
    request.get(name).and_then(Value::as_str).map(String::from)
}

fn produced(request: &Request) -> Result<Produce, BadRequest> {
    let mut records = contents::records(request)?;
    let counts = request.get("sends").and_then(Value::as_array).cloned().unwrap_or_else(|| vec![json!(records.len())]);
    let topics = request.get("topics").and_then(Value::as_array);
    let mut sends = Vec::new();
    for (number, count) in counts.into_iter().enumerate() {
        let topic = topics.and_then(|topics| topics.get(number)?.as_str());
        let topic = topic.map_or_else(|| text(request, "topic"), Ok)?;
        let count = count.as_u64().filter(|count| *count <= records.len() as u64);
        let count = count.ok_or_else(|| BadRequest("sends must be numbers of records".into()))?;
        sends.push((topic.into(), records.drain(..count as usize).collect()));
    }
    Ok(Produce {
        address: text(request, "address")?.into(),
        compression: text(request, "compression")?.into(),
        idempotent: request.get("idempotent").and_then(Value::as_bool).unwrap_or(false),
        transactional_id: optional(request, "transactional_id"),
        at_once: request.get("at_once").and_then(Value::as_bool).unwrap_or(false),
        abort: request.get("abort").and_then(Value::as_bool).unwrap_or(false),
        request_timeout: request_timeout(request),
        sends,
    })
}

fn say(message: Value) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{message}")?;
    output.flush()
}
