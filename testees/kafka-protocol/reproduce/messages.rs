//! Decodes a file with a message's body, without its header: `reproduce-messages FILE request|response KEY VERSION`
//!
//! [dependencies] bytes = "1", kafka-protocol = { version = "0.18", features = ["messages_enums"] }

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, RequestKind, ResponseKind};

fn main() {
    decode();
    show_peaks();
}

fn decode() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, kind, key, version] = &words[..] else { panic!("usage: reproduce-messages FILE KIND KEY VERSION") };
    let mut data = Bytes::from(std::fs::read(file).expect("the file can be read"));
    let key: i16 = key.parse().expect("KEY is a number");
    let key = ApiKey::try_from(key).expect("KEY is the key of an API");
    let version = version.parse().expect("VERSION is a number");
    let message = match kind.as_str() {
        "request" => RequestKind::decode(key, &mut data, version).map(|message| format!("{message:?}")),
        _ => ResponseKind::decode(key, &mut data, version).map(|message| format!("{message:?}")),
    };
    match message {
        Ok(message) => println!("message: {message}"),
        Err(error) => println!("error: {error:#}"),
    }
}

/// On Linux: the peaks of address space and memory.
fn show_peaks() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_peak = |line: &&str| line.starts_with("VmPeak") || line.starts_with("VmHWM");
    status.lines().filter(is_peak).for_each(|line| eprintln!("{line}"));
}
