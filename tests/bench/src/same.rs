//! The fingerprint is the same in the filter's runtime as here: in V8, through Node, and natively.
//!
//! It decides whether a retry is the same request, and an instance that compares may be built for
//! another machine than the one that stored: one bit of difference would turn retries into mismatches.
//! Where there is no Node nothing is compared, and the test says so.

use crate::documents;
use crate::kernel::Kernel;
use crate::random::Random;
use fencepost_rig::scratch::Scratch;
use fencepost_rig::tools;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bodies and what they are by definition: the request is that of the kernel, under the default policy.
const GOLDEN: [(&str, &str); 4] = [
    (
        r#"{"b": 1, "a": [true, "\u0041"]}"#,
        "b3d46a6f77b5fe0971f2139b73d9c4461fc39356a7bd7e292519c0dd61f21554",
    ),
    (r#"{"a":[true,"A"],"b":1}"#, "b3d46a6f77b5fe0971f2139b73d9c4461fc39356a7bd7e292519c0dd61f21554"),
    ("no json", "666e0da1ad1b0c155d0b97a79ece8cf7f7e24fdee3c1ffa60d208ac9e1b2213d"),
    ("", "e001cae34765239a0f2531e03a4fe57ff505419bcc4d902b1b6c55a8fb7f9209"),
];

const RANDOM: usize = 400;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value with everything that the canonical text changes or keeps.
fn value(random: &mut Random, depth: usize, out: &mut String) {
    let spaces = ["", "", "", " ", "\n", "\t  ", "        "];
    let space = |random: &mut Random, out: &mut String| {
        out.push_str(spaces.get(random.below(spaces.len())).copied().unwrap_or_default());
    };
    let strings =
        ["a", "key", "", "\\u0041", "\\/", "\\n", "\\ud83d\\ude00", "é", "längerer Name", "\\\"", "k1", "k2"];
    let string = |random: &mut Random, out: &mut String| {
        out.push('"');
        for _ in 0..random.below(4) {
            out.push_str(strings.get(random.below(strings.len())).copied().unwrap_or_default());
        }
        out.push('"');
    };
    space(random, out);
    match random.below(if depth == 0 { 4 } else { 7 }) {
        0 => string(random, out),
        1 => out.push_str(["0", "-1", "1.0", "1e5", "9007199254740993"][random.below(5)]),
        2 => out.push_str(["true", "false", "null"][random.below(3)]),
        3 => out.push_str(&random.next().to_string()),
        4 => {
            out.push('[');
            for at in 0..random.below(5) {
                out.push_str(if at > 0 { "," } else { "" });
                value(random, depth - 1, out);
            }
            out.push(']');
        }
        _ => {
            out.push('{');
            for at in 0..random.below(6) {
                out.push_str(if at > 0 { "," } else { "" });
                space(random, out);
                string(random, out);
                space(random, out);
                out.push(':');
                value(random, depth - 1, out);
            }
            out.push('}');
        }
    }
    space(random, out);
}

/// Values, some of them broken: cut off, or with a byte changed.
fn bodies(random: &mut Random) -> Vec<Vec<u8>> {
    let one = |_| {
        let mut text = String::new();
        value(random, 6, &mut text);
        let mut body = text.into_bytes();
        match random.below(5) {
            0 => body.truncate(random.below(body.len())),
            1 => {
                let (place, byte) = (random.below(body.len()), random.next() as u8);
                body.get_mut(place).into_iter().for_each(|old| *old = byte);
            }
            _ => {}
        }
        body
    };
    (0..RANDOM).map(one).collect()
}

#[test]
fn fingerprints_are_those_that_they_always_were() {
    let kernel = Kernel::new().unwrap();
    for (body, expected) in GOLDEN {
        assert_eq!(hex(&kernel.fingerprint(body.as_bytes())), expected, "{body}");
    }
}

#[test]
fn fingerprints_in_v8_are_those_of_native_code() {
    if !Command::new("node").arg("--version").output().is_ok_and(|node| node.status.success()) {
        eprintln!("there is no Node: fingerprints in V8 were not compared");
        return;
    }
    let wasm = module();
    assert!(wasm.is_file(), "{} is not there: `make wasm-fingerprint` builds it", wasm.display());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("FENCEPOST_SEED").map_or(now, |seed| seed.parse().unwrap());
    let mut all = bodies(&mut Random::new(seed));
    all.extend(GOLDEN.iter().map(|(body, _)| body.as_bytes().to_vec()));
    for size in [256, 4 << 10, 64 << 10] {
        all.extend(
            [documents::canonical(size), documents::reordered(size), documents::pretty(size)]
                .map(String::into_bytes),
        );
        all.extend(documents::hostile(size).into_iter().map(|(_, body)| body.into_bytes()));
    }
    let framed =
        all.iter().flat_map(|body| [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], body].concat());
    let folder = Scratch::new("fingerprints").unwrap();
    let file = folder.path().join("bodies");
    std::fs::write(&file, framed.collect::<Vec<u8>>()).unwrap();
    let script = tools::repository().join("tests/bench/js/digests.mjs");
    let node = Command::new("node").arg(script).arg(&wasm).arg(&file).output().unwrap();
    assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
    let theirs = String::from_utf8(node.stdout).unwrap();
    assert_eq!(theirs.lines().count(), all.len());
    let kernel = Kernel::new().unwrap();
    for (body, theirs) in all.iter().zip(theirs.lines()) {
        let ours = hex(&kernel.fingerprint(body));
        assert_eq!(ours, theirs, "FENCEPOST_SEED={seed}: {:?}", String::from_utf8_lossy(body));
    }
}

/// Beside the filter.
fn module() -> PathBuf {
    fencepost_rig::envoy::filter_binary().with_file_name("fencepost_bench_wasm.wasm")
}
