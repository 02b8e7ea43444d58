//! The protocol kfuzz-testee/1 for testees in Rust: reads requests, answers in order, and catches panics.
//!
//! A testee gives its handshake and a function that answers one request. See testees/README.md.

pub mod contents;
pub mod driver;

use serde_json::{json, Map, Value};
use sha2::{Digest, Sha256};
use std::backtrace::Backtrace;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::sync::{Mutex, OnceLock};
use std::{env, panic};

const LARGEST_HEX_VALUE_BYTES: usize = 64 * 1024;
const INPUT_BUFFER_BYTES: usize = 1 << 20;

/// The request itself is wrong. The answer is a fault that blames the referee, not the library.
#[derive(Debug)]
pub struct BadRequest(pub String);

pub type Request = Map<String, Value>;

/// How the folder of the library's sources ends: `/name-1.2.3/`.
static FOLDER: OnceLock<String> = OnceLock::new();

/// Message and place of the last panic, in any thread. A panic hook cannot hand them to `catch_unwind`.
static PANIC: Mutex<Option<(String, Option<String>)>> = Mutex::new(None);

/// Answers requests until the input ends. `library` is the crate's name and version, which name its folder of sources.
pub fn serve(
    handshake: Value,
    library: (&str, &str),
    answer: impl Fn(&Request) -> Result<Value, BadRequest>,
) -> io::Result<()> {
    watch_panics(library);
    let mut input = BufReader::with_capacity(INPUT_BUFFER_BYTES, io::stdin());
    let mut output = BufWriter::new(io::stdout());
    writeln!(output, "{handshake}")?;
    output.flush()?;
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        writeln!(output, "{}", answer_line(&line, &answer))?;
        line.clear();
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
    output.flush()
}

fn answer_line(line: &[u8], answer: &impl Fn(&Request) -> Result<Value, BadRequest>) -> Value {
    let parsed = serde_json::from_slice::<Request>(line).map_err(|e| e.to_string());
    let (id, made) = match parsed {
        // The library's state is gone after a panic: each request makes its own.
        Ok(request) => match panic::catch_unwind(panic::AssertUnwindSafe(|| answer(&request))) {
            Ok(made) => (request.get("id").cloned(), made),
            Err(_) => (request.get("id").cloned(), Ok(panicked().unwrap_or_default())),
        },
        Err(error) => (None, Err(BadRequest(error))),
    };
    let mut made =
        made.unwrap_or_else(|BadRequest(why)| json!({"outcome": "fault", "error": format!("BadRequest: {why}")}));
    made["id"] = id.unwrap_or(Value::Null);
    made
}

/// Remembers panics from now on. `library` is the crate's name and version.
fn watch_panics(library: (&str, &str)) {
    FOLDER.get_or_init(|| format!("/{}-{}/", library.0, library.1));
    // Crash output must not depend on the environment. Errors of the crate anyhow must have a stack.
    env::set_var("RUST_BACKTRACE", "1"); // the referee finds the library's line in the stack of an abort
    env::set_var("RUST_LIB_BACKTRACE", "1");
    panic::set_hook(Box::new(remember_panic));
}

/// The outcome of the last panic, once.
fn panicked() -> Option<Value> {
    let (message, at) = PANIC.lock().ok()?.take()?;
    Some(with_place(json!({"outcome": "panic", "error": message}), at))
}

fn remember_panic(info: &panic::PanicHookInfo) {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let panic = (text.unwrap_or_else(|| "panic without a text".into()), place_in(&Backtrace::force_capture()));
    if let Ok(mut last) = PANIC.lock() {
        *last = Some(panic);
    }
}

/// The innermost line of a stack that is inside the library, such as `src/records.rs:12`. It tells causes apart; the
/// place of the panic itself is often in another crate.
pub fn place_in(stack: &Backtrace) -> Option<String> {
    let folder = FOLDER.get()?;
    let stack = stack.to_string();
    let path = stack.lines().find_map(|line| line.trim().strip_prefix("at ")?.split_once(folder))?.1;
    let mut parts = path.split(':');
    Some(format!("{}:{}", parts.next()?, parts.next()?))
}

// --- answers --------------------------------------------------------------------------------------------------------

pub fn rejected(error: impl ToString) -> Value {
    json!({"outcome": "rejected", "error": one_line(error.to_string())})
}

pub fn unsupported(error: impl ToString) -> Value {
    json!({"outcome": "unsupported", "error": one_line(error.to_string())})
}

fn one_line(text: String) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn with_place(mut answer: Value, at: Option<String>) -> Value {
    if let Some(at) = at {
        answer["at"] = at.into();
    }
    answer
}

/// Adds the good batches before the refused bytes, if there are any.
pub fn with_batches(mut answer: Value, batches: Vec<Value>) -> Value {
    if !batches.is_empty() {
        answer["batches"] = batches.into();
    }
    answer
}

/// The JSON form of one record. `timestamp` is in milliseconds.
pub fn record_json<'a>(
    offset: i64,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>,
) -> Value {
    let headers: Vec<Value> = headers.map(|(name, value)| json!([name, octets(value)])).collect();
    json!({"offset": offset.to_string(), "timestamp": timestamp.to_string(), "key": octets(key), "value": octets(value),
        "headers": headers})
}

fn octets(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) if bytes.len() <= LARGEST_HEX_VALUE_BYTES => hex(bytes).into(),
        Some(bytes) => json!({"sha256": hex(&Sha256::digest(bytes)), "size": bytes.len()}),
    }
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[digit as usize] as char).collect()
}

// --- requests -------------------------------------------------------------------------------------------------------

pub fn text<'a>(request: &'a Request, name: &str) -> Result<&'a str, BadRequest> {
    request.get(name).and_then(Value::as_str).ok_or_else(|| BadRequest(format!("{name} must be a text")))
}

pub fn bytes(request: &Request, name: &str) -> Result<Vec<u8>, BadRequest> {
    unhex(text(request, name)?).ok_or_else(|| BadRequest(format!("{name} must be hex")))
}

pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}
