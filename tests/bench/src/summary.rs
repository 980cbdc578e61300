//! What was measured, as a table and as `summary.json`.

use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// `area/what/condition`.
    pub name: String,
    /// None where it was not measured.
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: String,
    /// What the ratio is to, or why there is no value.
    pub compared_with: String,
    /// Value divided by what it is compared with.
    pub ratio: Option<f64>,
    /// The goal, in words.
    pub goal: String,
    /// Whether it was met; none where there is no goal or no value.
    pub met: Option<bool>,
}

/// What a figure must be.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// Nothing: the figure explains others.
    None,
    /// The value at most this.
    AtMost(f64),
    /// The ratio at most this.
    RatioAtMost(f64),
    /// The ratio at least this.
    RatioAtLeast(f64),
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Summary {
    figures: Vec<Figure>,
}

impl Summary {
    /// Adds a figure and prints its line.
    pub fn add(&mut self, name: &str, value: f64, unit: &str, compared: Option<(&str, f64)>, goal: Goal) {
        let ratio = compared.map(|(_, other)| value / other).filter(|ratio| ratio.is_finite());
        self.add_ratio(name, value, unit, compared.map_or("", |(with, _)| with), ratio, goal);
    }

    /// Adds a figure whose ratio is a median of its own, not the quotient of two medians.
    pub fn add_ratio(
        &mut self,
        name: &str,
        value: f64,
        unit: &str,
        compared_with: &str,
        ratio: Option<f64>,
        goal: Goal,
    ) {
        let (text, met) = match goal {
            Goal::None => (String::new(), None),
            Goal::AtMost(most) => (format!("<= {most} {unit}"), Some(value <= most)),
            Goal::RatioAtMost(most) => (format!("ratio <= {most:.3}"), ratio.map(|ratio| ratio <= most)),
            Goal::RatioAtLeast(least) => (format!("ratio >= {least}"), ratio.map(|ratio| ratio >= least)),
        };
        self.push(Figure {
            name: name.to_owned(),
            value: Some(value),
            unit: unit.to_owned(),
            compared_with: compared_with.to_owned(),
            ratio,
            goal: text,
            met,
        });
    }

    /// Notes that something was not measured, and why.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.push(Figure {
            name: name.to_owned(),
            value: None,
            unit: String::new(),
            compared_with: format!("not measured: {why}"),
            ratio: None,
            goal: String::new(),
            met: None,
        });
    }

    fn push(&mut self, figure: Figure) {
        println!("{}", line(&figure));
        self.figures.push(figure);
    }

    /// Prints everything as one table.
    pub fn print(&self) {
        println!("\n{}", head());
        for figure in &self.figures {
            println!("{}", line(figure));
        }
        let missed = self.figures.iter().filter(|figure| figure.met == Some(false)).count();
        let met = self.figures.iter().filter(|figure| figure.met == Some(true)).count();
        println!("{} figures; goals met {met}, missed {missed}", self.figures.len());
    }

    /// Writes the file. Figures of an earlier run that this one did not measure stay.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut all: Vec<serde_json::Value> = std::fs::read(path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        all.retain(|old| !self.figures.iter().any(|new| old["name"] == new.name.as_str()));
        for figure in &self.figures {
            all.push(serde_json::to_value(figure)?);
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, serde_json::to_vec_pretty(&all)?)
            .with_context(|| format!("write {}", path.display()))
    }
}

/// The head of the table.
pub fn head() -> String {
    format!(
        "{:<52} {:>12} {:<8} {:>8}  {:<16} {:<6} compared with",
        "figure", "value", "unit", "ratio", "goal", "met"
    )
}

fn line(figure: &Figure) -> String {
    let value = figure.value.map_or_else(|| "-".into(), number);
    let ratio = figure.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}"));
    let met = match figure.met {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "-",
    };
    format!(
        "{:<52} {value:>12} {:<8} {ratio:>8}  {:<16} {met:<6} {}",
        figure.name, figure.unit, figure.goal, figure.compared_with
    )
}

fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1_000.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
