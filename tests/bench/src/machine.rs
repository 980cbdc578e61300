//! The machine, so that figures can be read: how many cores, and how busy with other things.

use crate::summary::{Goal, Summary};
use std::time::{Duration, Instant};

/// How long the cores are asked for.
const PROBE: Duration = Duration::from_millis(400);

/// Notes what a run finds.
pub fn run(summary: &mut Summary) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    summary.add("machine/cores", cores as f64, "", None, Goal::None);
    summary.add("machine/share_of_the_cores", share(cores), "", None, Goal::None);
}

/// What one busy thread for each core gets of its core: 1 where nothing else runs.
fn share(cores: usize) -> f64 {
    let before = cpu_seconds();
    let start = Instant::now();
    let spin = || {
        let mut spins = 0_u64;
        while start.elapsed() < PROBE {
            spins = std::hint::black_box(spins.wrapping_add(1));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(spin);
        }
    });
    (cpu_seconds() - before) / (start.elapsed().as_secs_f64() * cores as f64)
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    // The kernel counts in hundredths of a second, whatever its own clock is.
    ticks.sum::<f64>() / 100.0
}
