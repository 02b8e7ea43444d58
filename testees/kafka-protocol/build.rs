//! Lists the fields of all messages for src/messages.rs, because the library has no reflection.
//!
//! A field's name, and the versions that have it, are only in the library's source: `pub name: Type`, below a comment
//! `Supported API versions: 4-18`. The compiler checks the names and finds the types by itself.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const LIBRARY: &str = "kafka-protocol";
const SINCE: [u32; 6] = [11, 13, 14, 15, 16, 18];

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    for source in ["build.rs", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    let library = library(&root);
    // Rebuild when a working copy (kfuzz conform --path) changes. A registry version never changes.
    println!("cargo:rerun-if-changed={}", library.join("src/messages").display());
    let (_, version) = library.to_str().unwrap().rsplit_once('-').expect("cargo names the folder name-version");
    println!("cargo:rustc-env=LIBRARY_VERSION={version}");
    // The sources ask since which version something is there.
    let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).expect("versions are numbers");
    for since in SINCE {
        println!("cargo:rustc-check-cfg=cfg(since_0_{since})");
        if minor >= since || !version.starts_with("0.") {
            println!("cargo:rustc-cfg=since_0_{since}");
        }
    }
    let made = Path::new(&env::var("OUT_DIR").unwrap()).join("structures.rs");
    fs::write(made, structures(&library.join("src/messages"))).unwrap();
}

/// The folder of the library's source.
fn library(root: &Path) -> PathBuf {
    // The crates of other platforms need not be on this machine: without the filter, cargo asks for them as well.
    let target = env::var("TARGET").unwrap();
    let done = Command::new(env::var("CARGO").unwrap())
        .args(["metadata", "--format-version=1", "--offline", "--filter-platform", &target])
        .current_dir(root)
        .output()
        .expect("cargo can be started");
    let metadata = String::from_utf8(done.stdout).expect("cargo writes UTF-8");
    let manifests = metadata.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let folders = manifests.filter_map(|manifest| Path::new(manifest).parent());
    let is_library = |folder: &&Path| folder.file_name().is_some_and(|name| is_version_of(&name.to_string_lossy()));
    folders.into_iter().find(is_library).expect("cargo metadata lists the library").into()
}

fn is_version_of(folder: &str) -> bool {
    folder
        .strip_prefix(LIBRARY)
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|v| v.starts_with(char::is_numeric))
}

/// Calls of the macros `structure` and `messages` in src/messages.rs.
fn structures(folder: &Path) -> String {
    let mut made = String::new();
    let mut messages = String::new();
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let module = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let source = fs::read_to_string(&file).unwrap();
        let name = source.lines().next().and_then(|line| line.strip_prefix("//! ")).expect("line 1 names the message");
        write!(messages, "{name} = {module}::{name}, ").unwrap();
        add_structures(&source, &module, &mut made);
    }
    format!("{made}messages! {{ {messages} }}\n")
}

fn add_structures(source: &str, module: &str, made: &mut String) {
    let mut versions = None;
    let mut inside = false;
    let mut tags = "";
    for line in source.lines() {
        if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {")) {
            (inside, tags) = (true, "");
            write!(made, "structure! {{ {module}::{name}, ").unwrap();
        } else if inside && line == "}" {
            inside = false;
            writeln!(made, "[{tags}] }}").unwrap();
        } else if let Some(found) = line.trim().strip_prefix("/// Supported API versions: ") {
            versions = Some(found);
        } else if let Some(field) = line.strip_prefix("    pub ").filter(|_| inside) {
            let field = field.split(':').next().unwrap();
            if field == "unknown_tagged_fields" {
                tags = field; // a message without flexible versions has none
            } else {
                let (low, high) = range(versions.take().expect("a field's comment has its versions"));
                write!(made, "{field} {:?} {low} {high}, ", camel_case(field)).unwrap();
            }
        }
    }
}

/// Lowest and highest version; an empty range for `none`, a field that no stable version has.
fn range(text: &str) -> (u16, u16) {
    let number = |text: &str| text.parse().expect("versions are a number, a range or none");
    match text.split_once('-') {
        _ if text == "none" => (1, 0),
        Some((low, high)) => (number(low), number(high)),
        None => (number(text), number(text)),
    }
}

/// `topicId` of `topic_id`, `type` of `_type`.
fn camel_case(field: &str) -> String {
    let mut words = field.trim_start_matches('_').split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}
