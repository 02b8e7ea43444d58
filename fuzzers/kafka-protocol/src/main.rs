//! The decoder under libFuzzer.
#![no_main]

use fuzz_kafka_protocol::{init, read};

libfuzzer_sys::fuzz_target!(init: { init() }, |data: &[u8]| read(data));
