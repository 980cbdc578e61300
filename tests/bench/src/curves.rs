//! Throughput through Envoy by the number of connections, and what a request costs it on a core.

use crate::bed;
use crate::envoys::Running;
use crate::proxy::{BODIES, Bench, Effort, Kind};
use crate::samples::median;
use crate::summary::{Goal, Summary};
use anyhow::Result;

/// Connections.
const CURVE: [usize; 4] = [1, 4, 16, 64];

/// Share of the throughput that is left to a route without a policy. Judged where the filter is off in
/// the chain and turned on by routes: the filter itself can't save what entering the VM costs.
const THROUGHPUT_MIN: f64 = 0.97;

/// One curve.
struct Curve<'a> {
    label: &'static str,
    envoy: &'a Running,
    kind: Kind,
    /// Has it to keep the throughput?
    judged: bool,
}

/// Measures all of them, in turns.
pub async fn run(summary: &mut Summary, bench: &Bench, effort: Effort) -> Result<()> {
    let curve = |label, envoy, kind| Curve { label, envoy, kind, judged: false };
    let mut curves = vec![
        curve("no_filter", &bench.plain, Kind::Unguarded),
        Curve { judged: true, ..curve("off_by_default", &bench.off, Kind::Unguarded) },
        curve("unguarded", &bench.guarded, Kind::Unguarded),
        curve("replay", &bench.guarded, Kind::Replay),
        curve("new_key", &bench.guarded, Kind::NewKey),
        curve("detached", &bench.guarded, Kind::Detached),
    ];
    curves.extend(bench.noop.iter().map(|noop| curve("noop_filter", noop, Kind::Unguarded)));
    curves.extend(bench.calls.iter().flat_map(|calls| {
        [curve("floor_replay", calls, Kind::FloorReplay), curve("floor_new_key", calls, Kind::FloorNewKey)]
    }));
    for (size_name, size) in BODIES {
        for connections in CURVE {
            let condition = format!("{size_name}/{connections}");
            point(summary, bench, &curves, (&condition, size, connections), effort).await?;
        }
    }
    let rss = bed::resident("fencepost-store")?;
    summary.add("envoy/service_memory_after", rss / 1048576.0, "MiB", None, Goal::None);
    Ok(())
}

/// All curves at one body size and number of connections.
async fn point(
    summary: &mut Summary,
    bench: &Bench,
    curves: &[Curve<'_>],
    (condition, size, connections): (&str, usize, usize),
    effort: Effort,
) -> Result<()> {
    let mut rates: Vec<Vec<f64>> = curves.iter().map(|_| Vec::new()).collect();
    let mut cpus = rates.clone();
    for round in 0..=effort.rounds {
        // Every other round backwards, so that none is always the one that follows another.
        let mut turns: Vec<_> = rates.iter_mut().zip(&mut cpus).zip(curves).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for ((rates, cpus), curve) in turns {
            let before = bed::cpu_us(curve.envoy.pid)?;
            let load = bench.load(curve.envoy.proxy(), curve.kind, size, connections, effort.slice).await?;
            if round > 0 {
                rates.push(load.rate());
                cpus.push((bed::cpu_us(curve.envoy.pid)? - before) / load.samples.len() as f64);
            }
        }
    }
    let (base_rate, base_cpu) = match (rates.first(), cpus.first()) {
        (Some(rates), Some(cpus)) => (rates.clone(), cpus.clone()),
        _ => return Ok(()),
    };
    let to_base = |values: &[f64], base: &[f64]| {
        Some(median(&values.iter().zip(base).map(|(ours, base)| ours / base).collect::<Vec<_>>()))
    };
    for (curve, values) in curves.iter().zip(&rates) {
        let goal = if curve.judged { Goal::RatioAtLeast(THROUGHPUT_MIN) } else { Goal::None };
        let name = format!("envoy/throughput/{condition}/{}", curve.label);
        let with = format!("no filter, {:.0}/s", median(&base_rate));
        summary.add_ratio(&name, median(values), "/s", &with, to_base(values, &base_rate), goal);
    }
    for (curve, values) in curves.iter().zip(&cpus) {
        let goal = if curve.judged { Goal::RatioAtMost(1.0 / THROUGHPUT_MIN) } else { Goal::None };
        let name = format!("envoy/cpu/{condition}/{}", curve.label);
        let with = format!("no filter, {:.1} us", median(&base_cpu));
        summary.add_ratio(&name, median(values), "us", &with, to_base(values, &base_cpu), goal);
    }
    Ok(())
}
