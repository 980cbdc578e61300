//! Order statistics.

use std::time::Duration;

/// Durations of single operations.
#[derive(Debug, Default, Clone)]
pub struct Samples(Vec<u64>);

impl Samples {
    /// Adds one.
    pub fn add(&mut self, duration: Duration) {
        self.0.push(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Takes in those of another worker.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// A percentile (0 to 100) in microseconds.
    pub fn us(&self, percentile: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let place = (percentile / 100.0 * sorted.len() as f64) as usize;
        sorted.get(place.min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    }

    /// A percentile in milliseconds.
    pub fn ms(&self, percentile: f64) -> f64 {
        self.us(percentile) / 1e3
    }
}

/// The median; NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => (at(len / 2 - 1) + at(len / 2)) / 2.0,
        len => at(len / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics_are_those_of_the_values() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let mut samples = Samples::default();
        (1..=100).rev().for_each(|us| samples.add(Duration::from_micros(us)));
        assert_eq!(
            (samples.us(0.0), samples.us(50.0), samples.us(99.0), samples.us(100.0)),
            (1.0, 51.0, 100.0, 100.0)
        );
    }
}
