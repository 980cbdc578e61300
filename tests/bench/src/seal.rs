//! Sealing and opening one answer, in the service's own code.

use crate::summary::{Goal, Summary};
use anyhow::Result;
use bytes::Bytes;
use fencepost_protocol::{Fingerprint, Scheme, StoreKey};
use fencepost_store::seal::{KeyRing, Seal, Subject};
use std::time::{Duration, Instant};

/// Sizes of bodies, in bytes.
const SIZES: [(&str, usize); 2] = [("1KiB", 1024), ("64KiB", 64 * 1024)];

/// Measures both.
pub fn run(summary: &mut Summary, budget: Duration) -> Result<()> {
    let line = format!("bench {}=", "AQ".repeat(21) + "A");
    let ring = KeyRing::parse(&line).map_err(anyhow::Error::msg)?;
    let seal = Seal::new(Some(ring));
    let (key, scheme) = (StoreKey::new("bench", &[1; 16])?, Scheme::parse("1-bench")?);
    let fingerprint = Fingerprint::from_bytes([2; 32]);
    let subject = Subject::Entry { key: &key, scheme: &scheme, fingerprint: &fingerprint, status: 201 };
    for (name, size) in SIZES {
        let (headers, body) = (Bytes::from(vec![0; 300]), Bytes::from(vec![7; size]));
        let (mut sealing, mut opening, mut times) = (Duration::ZERO, Duration::ZERO, 0_u32);
        while sealing + opening < budget {
            let (mut h, mut b) = (headers.clone(), body.clone());
            let start = Instant::now();
            seal.close(subject, &mut h, &mut b)?;
            sealing += start.elapsed();
            let start = Instant::now();
            seal.open(subject, &mut h, &mut b)?;
            opening += start.elapsed();
            times += 1;
        }
        let each = |total: Duration| total.as_secs_f64() * 1e6 / f64::from(times);
        summary.add(&format!("seal/seal/{name}"), each(sealing), "us", None, Goal::None);
        summary.add(&format!("seal/open/{name}"), each(opening), "us", None, Goal::None);
    }
    Ok(())
}
