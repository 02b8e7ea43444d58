//! kafka-protocol as a testee: record batches, and every message that the library has.

#[cfg(since_0_13)]
mod messages;
#[cfg_attr(not(since_0_15), path = "older.rs")]
mod records;

use kfuzz_testee::contents::{self, CODECS};
use kfuzz_testee::{bytes, text, unsupported, BadRequest, Request};
use serde_json::{json, Value};
use std::io;

const VERSION: &str = env!("LIBRARY_VERSION");
const MAGIC: &[i8] = if cfg!(since_0_16) { &[2] } else { &[0, 1, 2] };

fn main() -> io::Result<()> {
    let handshake = json!({
        "protocol": "kfuzz-testee/1", "name": "kafka-protocol", "version": VERSION, "language": "rust",
        "operations": ["decode-records", "encode-records", "decode-message", "encode-message"],
        "roles": ["consumer"], "magic": MAGIC, "codecs": CODECS, "checks_crc": true, "control": "shown",
        // The library decodes whole batches. Its caller must cut off an incomplete one.
        "tails": "refused", "messages": messages::versions(), "outcomes": ["panic"],
    });
    kfuzz_testee::serve(handshake, ("kafka-protocol", VERSION), answer)
}

fn answer(request: &Request) -> Result<Value, BadRequest> {
    match text(request, "operation")? {
        "decode-records" if request.get("role").is_none_or(|role| role == "consumer") => {
            Ok(records::read(bytes(request, "hex")?.into()))
        }
        "encode-records" => Ok(records::write(&contents::batches(request)?)),
        "decode-message" => messages::read(request),
        "encode-message" => messages::write(request),
        other => Ok(unsupported(format!("operation {other}, or its role"))),
    }
}

/// Older versions have maps in messages, which build.rs does not know.
#[cfg(not(since_0_13))]
mod messages {
    use crate::{json, unsupported, BadRequest, Request, Value};

    pub fn versions() -> Value {
        json!({})
    }

    pub fn read(_: &Request) -> Result<Value, BadRequest> {
        Ok(unsupported("messages of this version"))
    }

    pub use read as write;
}
