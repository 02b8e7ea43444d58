//! Tells the testee the version of the library, which cargo has just chosen.

use std::{env, fs, path::Path};

fn main() {
    let lock = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("Cargo.lock");
    println!("cargo:rerun-if-changed={}", lock.display());
    let lock = fs::read_to_string(lock).expect("cargo writes Cargo.lock before it builds");
    let entry = lock.split("name = \"rskafka\"\nversion = \"").nth(1).expect("the library is a dependency");
    println!("cargo:rustc-env=LIBRARY_VERSION={}", entry.split('"').next().unwrap());
}
