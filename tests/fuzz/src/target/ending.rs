//! A loopback listener's report of how a request ended, and the upstream's word on its answer; header
//! lines, one per line feed of the input.
//!
//! Promised: "not run" only for a report in full, with at most one attempt, no byte sent, no flag that is
//! unknown, and a reason that says so; "answered" only where the upstream did.

use fencepost_filter_core::exchange::evidence::{Ending, Evidence};
use fencepost_filter_core::exchange::origin::{STORE_HEADER, Word, word};

pub fn run(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    report(lines[0]);
    let pairs: Vec<_> = lines.iter().map(|line| (STORE_HEADER.as_bytes().to_vec(), line.to_vec())).collect();
    let said = word(&pairs);
    match said {
        Word::None => panic!("a line is there"),
        Word::DoNotStore | Word::NotFinal | Word::StoreFor { .. } => assert_eq!(lines.len(), 1),
        Word::Unreadable => {}
    }
    if let Word::StoreFor { ttl_ms } = said {
        assert!(ttl_ms >= 1_000 && ttl_ms % 1_000 == 0, "{ttl_ms}");
    }
}

fn report(line: &[u8]) {
    let evidence = Evidence::from_report(line);
    let text = String::from_utf8_lossy(line);
    let fields: Vec<&str> = text.rsplitn(4, '|').collect();
    match evidence.ending() {
        Ending::Answered => assert!(text.starts_with("via_upstream|") && fields.len() == 4, "{text}"),
        Ending::NotRun => {
            let [sent, attempts, flags, details] = fields[..] else { panic!("not in full: {text}") };
            assert!(matches!(sent.trim_start_matches(['0', '+']), "" | "-"), "{text}");
            assert!(matches!(attempts.trim_start_matches(['0', '+']), "" | "-" | "1"), "{text}");
            let known = ["UH", "UF", "UO", "NR", "FI", "RL", "UAEX", "NC", "-"];
            assert!(flags.split(',').all(|flag| known.contains(&flag)), "{text}");
            assert!(!details.is_empty() && !details.starts_with("via_upstream"), "{text}");
        }
        Ending::Unknown(_) => {}
    }
}
